"""Datasets: rows read raw and through the loader, and what the algorithm's contract says about each."""
