"""Scripts: prepared beginnings of a Drive.

A script is "empty", a broker that has just been opened, or a lesson (lesson.py), whose scenario runs first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from warrenmq.broker.broker import Broker
from warrenmq.lens.patience import run_code
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedMachine

SMALL: Mapping[str, Any] = {
    "msg_store_file_size_limit": 65_536,
    "queue_index_max_journal_entries": 64,
    "queue_index_segment_entry_count": 32,
    "classic_queue_index_v2_segment_entry_count": 32,
}
"""Limits that a few messages reach, where RabbitMQ's need thousands."""


@dataclass(frozen=True)
class Script:
    """The beginning of a run."""

    seed: int = 0
    profile: str = "modern"
    begin: Callable[[SimulatedMachine], Any] = lambda machine: machine.open()
    """The scenario."""
    where: str = "the empty script"
    limits: Mapping[str, Any] = field(default_factory=lambda: SMALL)

    def run(self, machine: SimulatedMachine, row: int | None = None) -> Broker | None:
        """Run the scenario, or its part up to a row; returns the broker that is open then.  CallerError, in
        one sentence, if it fails or does not end.
        """
        run_code(
            self.where, lambda: self.begin(machine) if row is None else machine.run_to_row(row, self.begin)
        )
        return machine.broker

    def settings(self, profile: str) -> Settings:
        """The settings of its broker."""
        return Settings(**{"profile": profile, **self.limits})
