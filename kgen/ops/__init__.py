"""The operators, one folder a family: its kernels and their geometry, how a problem picks one, the public functions."""
