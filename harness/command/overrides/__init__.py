"""Overrides: each KEY=VALUE placed once, where the trainer reads it, without running the trainer."""
