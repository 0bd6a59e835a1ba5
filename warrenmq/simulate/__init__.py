"""Simulated runs of the whole broker by the thousand, each one a number."""
