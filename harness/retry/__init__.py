"""A retry: whether it is the same job as the run before it, and what the two runs show beside each other."""
