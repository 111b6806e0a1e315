"""Sums, products, extrema and their places, means and dot products over any axes."""
