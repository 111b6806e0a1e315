"""Causal linear attention without a gate, as the kernels of fast-transformers compute it, and its chunked forms."""
