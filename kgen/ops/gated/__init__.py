"""Linear attention with decay, token by token: gla, simple_gla, rwkv6, linear_attention, their gradients and steps."""
