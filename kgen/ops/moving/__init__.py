"""Operators that move or re-encode elements: transpose, take and embedding, rope, casts and quantization."""
