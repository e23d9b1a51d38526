"""Checkpoints: found, whole, finite, changed against the start."""
