"""The time limit of a wait in tests: long enough for any machine, so that only a hang fails by it."""

LIMIT = 200.0
"""Seconds, real ones or those of a simulation: fewer than tests/run.py gives a whole test, so that the wait says what did not come."""
