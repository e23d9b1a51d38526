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


def seconds(text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r:.80} is no duration: give seconds above 0")
    return value
