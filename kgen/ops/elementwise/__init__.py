"""Operators that take each element by itself: a user's expression, the activations, NumPy's broadcasting."""
