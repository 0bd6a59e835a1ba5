"""Measures warrenmq against wanted figures (figures.py), and beside other durable queues (run.py)."""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The repository."""
