"""Group commit: a pause before a sync, in which other threads send what would else wait for the next one.

A queue that has run out of mail is about to sync.  Under one interpreter lock, the thread that syncs has just
confirmed, or delivered to, the threads whose next messages would belong into this sync: a publisher that
keeps many on their way, publishers that wait for each confirm, a consumer whose ack follows.  They have not
run since.  So the thread gives way, once, and what they send meanwhile is handled before the sync.

    without a pause                              with one
    A's first message comes, sync                A's first message comes, pause, the others of A and B's, sync
    the others come meanwhile, sync

There is no pause where it gains nothing: for a lone publisher that waits for its confirm, without fsync
(durability), where a sync costs next to nothing (tmpfs), and after a pause in vain, for twice as many rounds
each time.

RabbitMQ has no counterpart; PostgreSQL's commit_delay and MariaDB's binlog_commit_wait_usec are such pauses, of fixed times.
"""

from __future__ import annotations

WORTH_NS = 100_000
"""Nanoseconds of a sync from which on a pause is worth its time, which is some 20 to 100 us."""
MOST_SKIPPED = 64
"""Rounds without a pause, at most, after one in vain."""


class GroupCommit:
    """Decides on the pauses of one queue; a round is all that one sync covers.

    _syncs        the files are synced: the time alone does not tell, as waiting for the interpreter is part of it
    _is_worth_it  a sync takes long enough
    _expects      the last one confirmed several publishes at once: more are on their way
    _delivered    messages delivered until the last sync
    _paused       this round had its pause
    _skip         rounds that have none
    _skip_next    the same after the next pause in vain
    """

    def __init__(self, *, syncs: bool) -> None:
        self._syncs = syncs
        self._is_worth_it = self._expects = self._paused = False
        self._delivered = self._skip = 0
        self._skip_next = 1

    def pauses(self, delivered: int) -> bool:
        """True if the round, whose sync is due, has a pause now; `delivered` counts the queue's deliveries so far."""
        if self._paused or not self._is_worth_it or not (self._expects or delivered > self._delivered):
            return False
        self._paused = True
        if self._skip:
            self._skip -= 1
            return False
        return True

    def paused(self, *, in_vain: bool) -> None:
        """The pause is over: mail came, or it was in vain."""
        if in_vain:
            self._skip, self._skip_next = self._skip_next, min(2 * self._skip_next, MOST_SKIPPED)
        else:
            self._skip_next = 1

    def synced(self, took: int | None, delivered: int, *, several: bool) -> None:
        """A sync of so many nanoseconds has ended the round, and confirmed one publish or `several`; None:
        there was nothing to sync, since all was acked before it was written.
        """
        if took is not None:
            self._is_worth_it = self._syncs and took >= WORTH_NS
        self._expects = several
        self._delivered = delivered
        self._paused = False
