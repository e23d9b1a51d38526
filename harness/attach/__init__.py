"""Jobs that others started: what they print, followed where it is written, and whether their processes live."""
