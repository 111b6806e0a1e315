"""Launches under watch: each in a process of its own, what it may not do, told with its lines."""
