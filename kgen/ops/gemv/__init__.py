"""A matrix times a vector, quantized weights included, and batches of such products."""
