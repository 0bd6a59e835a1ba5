"""Brokers on a simulated machine (warrenmq.testing), with settings under which everything overflows soon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

from warrenmq.replay.drive.engine import replay_memory
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedMachine

_SMALL: dict[str, Any] = {
    "msg_store_file_size_limit": 4096,
    "queue_index_embed_msgs_below": 100,
    "queue_index_max_journal_entries": 12,
    "queue_index_segment_entry_count": 8,
    "vhost_restart_intensity": (1000, 1),
    "classic_queue_index_v2_segment_entry_count": 8,
    "msg_store_io_batch_size": 2,
    "queue_ram_bytes": 3_000,
}
SMALL = Settings(**_SMALL)
"""Everything that can overflow does so soon; the profile is the default one, modern."""
SMALL_CLASSIC = Settings(profile="classic", **_SMALL)
BOTH_PROFILES = {"classic": SMALL_CLASSIC, "modern": SMALL}

QUEUE_VERSIONS = (1, 2)
COLLECTORS = ("combine", "compact")
PAGINGS = ("memory_target", "read_ahead")
EVERY_KIND = [
    replace(SMALL, queue_version=version, msg_store_gc=gc, queue_paging=paging)
    for version, gc, paging in product(QUEUE_VERSIONS, COLLECTORS, PAGINGS)
]
"""Every combination of what a profile presets.  One directory may be opened with any of them after any other."""


class SimulatedHost(SimulatedMachine):
    """A machine with small limits whose runs are traced and can be replayed."""

    def __init__(self, seed: int, settings: Settings = SMALL, *, traced: bool = True) -> None:
        super().__init__(seed, settings, traced=traced)

    @contextmanager
    def at_most(self, operations: int) -> Iterator[None]:
        """Fail when the broker takes more disk operations than these: it does not come to an end."""
        left = operations

        def before_op(op: str, path: str) -> None:
            nonlocal left
            left -= 1
            assert left >= 0, "it does not come to an end"
            simulate(op, path)

        simulate = self.before_op
        self.before_op = before_op  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.before_op = simulate  # type: ignore[method-assign]
            self.disk.before_op = simulate

    def check_trace(self) -> None:
        """Replay all runs: every invariant holds."""
        assert self.sink is not None
        result = replay_memory(self.sink.files())
        assert result.verdict == "ok", "\n".join(
            map(str, (result.verdict, *result.violations, *result.indeterminate))
        )
