"""A simulated disk behind a commit log, for tests of storage without a broker."""

from __future__ import annotations

from typing import Any

from warrenmq.commit_log.disk import open_logged
from warrenmq.testing import SimulatedDisk


class LoggedSimulation:
    """A simulation whose disk is reached through a commit log; a power cut is followed by a start."""

    def __init__(self, raw: SimulatedDisk, root: str) -> None:
        self.raw = raw
        self._root = root
        raw.mkdir(root)
        self.start()

    def start(self) -> None:
        """A new process finds what the last one left."""
        self._logged, found = open_logged(self.raw, self._root, 1)
        assert not found.damage

    def power_cut(self) -> None:
        self.raw.power_cut()
        self.raw.before_op = None
        self.start()

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._logged, name)
        except AttributeError:
            return getattr(self.raw, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in {"before_op", "free_bytes", "in_order"}:
            setattr(self.raw, name, value)
        else:
            super().__setattr__(name, value)
