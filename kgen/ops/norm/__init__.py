"""Layer, group and RMS normalization, and their gradients."""
