"""Proof that a training job really trained: launch it, watch it, judge it from evidence."""

__version__ = "0.1.0"
