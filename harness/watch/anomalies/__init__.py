"""Detectors of what can go wrong while a run goes on: pure, fed point by point and line by line."""
