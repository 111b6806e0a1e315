"""What a GPU gives for every instruction that the executor knows, and whether the executor gives the same.

form, tables, products      one-instruction kernels as tables of text
inputs, specials, tiles     their operands, made anew from the form's name
kernels                     the CUDA around an instruction
device, executor            run them, on a GPU and on the CPU
golden, compare             what was recorded, and what differs from it
golden data of whole kernels: tests/cpu/conformance_cases.py, conformance_samples.py
"""
