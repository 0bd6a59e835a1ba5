"""Brokers that share their directory with other processes."""

from __future__ import annotations

from pathlib import Path

import warrenmq
from warrenmq.shared.broker import SharedBroker


def opened(path: Path | str, **options) -> SharedBroker:
    """Open a directory with shared=True."""
    broker = warrenmq.open(path, shared=True, **options)
    assert isinstance(broker, SharedBroker)
    return broker
