"""The process that owns one run and is the single writer of its out-dir."""
