"""Operators on arrays, each test on the CPU executor and on the GPU where there is one."""
