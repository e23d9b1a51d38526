"""Argument types that several commands share."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """A whole number above 0."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a count: give a whole number above 0")
    return value
