"""The operators, one module a family: its kernels and their geometry, how a problem picks one, the public functions."""
