"""softmax, log_softmax and logsumexp over any axes, and their gradients."""
