"""Promises to a publisher and a consumer, and the messages that a recovery has to give back because of them.

Events are told in the order in which one client saw them.  Messages have numbers that ascend; a message is one of

    must be there   confirmed, and not acked
    may be there    not confirmed, or acked since anything later on that queue was known to be on disk
    must be gone    acked before a publish to the same queue that was confirmed: one journal holds both, in order
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


class Ledger:
    """Several queues, one publisher, one consumer."""

    def __init__(self) -> None:
        self.queues: defaultdict[str, dict[int, bool]] = defaultdict(dict)
        """Per queue: number -> whether it is confirmed, of messages that were not acked."""
        self.acked: defaultdict[str, set[int]] = defaultdict(set)
        """Per queue: acked, and perhaps not yet on disk."""
        self._acked_before: dict[int, dict[str, set[int]]] = {}

    def published(self, number: int, queues: Iterable[str]) -> None:
        """The publish is about to be sent to these queues."""
        for queue in queues:
            self.queues[queue][number] = False
        self._acked_before[number] = {queue: set(self.acked[queue]) for queue in queues}

    def confirmed(self, number: int) -> None:
        """The answer was yes."""
        for queue, gone in self._acked_before.pop(number, {}).items():
            if number in self.queues[queue]:
                self.queues[queue][number] = True
            self.acked[queue] -= gone

    def settled(self, queue: str, number: int) -> None:
        """It was acked, or rejected for good; the cast is about to be sent."""
        del self.queues[queue][number]
        self.acked[queue].add(number)

    def synced(self, queue: str) -> None:
        """Acks up to here are on disk: the queue had the time, or was closed cleanly."""
        self.acked[queue].clear()

    def check(self, queue: str, found: list[int]) -> None:
        """Compare with what a recovery found in one queue, and go on from there."""
        expected = self.queues[queue]
        assert found == sorted(set(found)), f"{queue}: out of order, or twice: {found}"
        must = {number for number, confirmed in expected.items() if confirmed}
        missing = sorted(must - set(found))
        assert not missing, f"{queue}: confirmed and lost: {missing}"
        unknown = sorted(set(found) - set(expected) - self.acked[queue])
        assert not unknown, f"{queue}: known to be gone, or never there: {unknown}"
        self.queues[queue] = dict.fromkeys(found, True)
        self.acked[queue].clear()
        self._acked_before.clear()
