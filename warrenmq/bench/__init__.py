"""Rates of warrenmq on this machine and this disk, measured through its public face.

`warrenmq bench` shows it to a user who wants to know what to expect; `benchmarks/` in the repository sets the same
measures against wanted figures and against other queues.
"""

from __future__ import annotations

from warrenmq.bench.measures import MEASURES, QUICK, THOROUGH, Scale
from warrenmq.bench.profiles import profile

__all__ = ["MEASURES", "QUICK", "THOROUGH", "Scale", "profile"]
