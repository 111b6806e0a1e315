"""The verbs of the command line, a module for each group of them; `kgen.cli` puts them together.

Each imports what it needs inside the command, so that `kgen --help` answers at once on a machine with nothing else.
"""
