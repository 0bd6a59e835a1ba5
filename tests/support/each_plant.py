"""For a test of every wrong that is known: its rule, what plants it, the other rules that it breaks of necessity."""

from __future__ import annotations

import pytest

from tests.support.trace_plants import PLANTS

each_plant = pytest.mark.parametrize(
    ("rule", "plant", "implied"), PLANTS, ids=[f"{rule}-{plant.__name__}" for rule, plant, _ in PLANTS]
)
