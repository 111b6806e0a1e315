"""Random calls of all operators, compared with float64: `make fuzz`, or `python -m tests.random_calls`.

A call's arrays are views, of random strides and beginnings, of memory that is otherwise poison, which must not reach a
result and must stay as it is. All that a call draws follows from a seed and the call's number, so that it can be made
alone: `--seed S --call N`. References are NumPy's on the host, on the same rounded inputs.
"""
