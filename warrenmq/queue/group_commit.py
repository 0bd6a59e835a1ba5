"""Group commit among the publishers of one queue: a sync waits a moment for those that the last one has confirmed.

A publisher that waits for each confirm publishes again at once, but not before the thread that has just confirmed it gives the
interpreter away.  If that thread went on to the next sync, the first publisher would have that one to itself, and the others
the one after it.

    last round      A B C D confirmed
    this round      A              the sync would come now: B, C and D are expected
                    A B C D        all are there, or the time is up: sync

A round of many messages does not wait, nor does one whose publishers are the last round's.  The wait is limited by what it can
save, a sync: where that costs nothing (tmpfs, durability=os) there is none.  After a wait in vain the next rounds do not wait, twice
as many each time.

RabbitMQ has no counterpart; PostgreSQL's commit_delay and MariaDB's binlog_commit_wait_usec are such waits, with fixed times.
"""

from __future__ import annotations

MOST_MESSAGES = 64
"""A round with so many publishes does not wait for more: its sync is shared already."""
WORTH_NS = 100_000
"""Nanoseconds of a sync that is worth a wait."""
MOST_NS = 1_000_000
"""Nanoseconds after a sync that the next one waits at most, however long a sync takes."""
MOST_SKIPPED = 64
"""Rounds without a wait, at most, after one in vain."""


class GroupCommit:
    """The publishers of this round, and those that are expected.

    present     publishers whose messages wait for the next sync
    expected    those that the last sync has confirmed, and that did not come again yet
    until       the time until which they are waited for (monotonic, ns)
    skip        rounds that do not wait
    skip_next   the same after the next wait in vain
    """

    def __init__(self) -> None:
        self._present: set[object] = set()
        self.expected: set[object] = set()
        self._until = 0
        self._skip = 0
        self._skip_next = 1

    def came(self, publisher: object) -> None:
        """A message of this publisher waits for the next sync."""
        self._present.add(publisher)
        self.expected.discard(publisher)

    def waits_until(self, now: int, publishes: int) -> int:
        """The time until which the sync of a round with so many publishes waits for the expected ones; 0 = not at all."""
        if not self.expected or not self._present or publishes >= MOST_MESSAGES or now >= self._until:
            return 0
        if self._skip:
            self._skip -= 1
            self.expected.clear()
            return 0
        return self._until

    def waited_in_vain(self) -> None:
        """The time is up."""
        self.expected.clear()
        self._skip, self._skip_next = self._skip_next, min(2 * self._skip_next, MOST_SKIPPED)

    def synced(self, began: int, ended: int) -> None:
        """A sync has covered all that are present."""
        if len(self._present) > 1:
            self._skip_next = 1
        self.expected, self._present = self._present, set()
        took = ended - began
        self._until = ended + min(took * 3 // 2, MOST_NS) if took >= WORTH_NS else 0
