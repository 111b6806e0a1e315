"""Libraries -> results: launches, their arguments and memory."""
