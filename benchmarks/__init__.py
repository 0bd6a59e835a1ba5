"""Measures warrenmq against wanted figures (figures.py), and beside other durable queues (run.py)."""
