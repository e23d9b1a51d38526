"""The acceptance suite: one file per workflow step; a test reads a fixture and asserts one fact.

Run it anywhere with `pytest --pyargs harness.acceptance -m real_step --train-cmd "..."`.
"""
