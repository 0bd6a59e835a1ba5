"""RabbitMQ's credit_flow: how a slow receiver slows its senders down (docs/reference/message-store.md#credit_flow).

Pure bookkeeping of one process: what it may still send to its peers, and when it owes a peer more credit.
It sends nothing: a grant comes back to the caller, who puts it in a bump message to the peer.

| call        | counter (absent = its start)      | what happens                                            |
| ----------- | --------------------------------- | ------------------------------------------------------- |
| send        | credit from peer, starts initial  | 1 -> 0: blocked by peer; goes below 0, never waits      |
| ack         | credit to peer, starts more_after | 1 -> 0: grant more_after, counter starts again          |
| grant       |                                   | not blocked: granted now; blocked: deferred             |
| handle_bump | credit from peer, starts 0        | from <= 0 to > 0: unblocked by peer                     |
| unblock     |                                   | by the last peer: all deferred grants are due           |
| peer_down   | both forgotten                    | unblocked by peer; what was deferred for it is dropped  |

Sender and receiver of a pair must use the same CreditSpec.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

Grants = list[tuple[Hashable, int]]


class CreditSpec(NamedTuple):
    """`{InitialCredit, MoreCreditAfter}`."""

    initial: int
    more_after: int


class CreditFlow:
    """The credit of one process.  Not thread-safe: it belongs to its actor."""

    def __init__(self, spec: CreditSpec) -> None:
        self.spec = spec
        """Used where a call names no other."""
        self._from: dict[Hashable, int] = {}
        self._to: dict[Hashable, int] = {}
        self._blocked_by: dict[Hashable, None] = {}  # a dict, for its order
        self._deferred: Grants = []

    @property
    def blocked(self) -> bool:
        """True if some peer gave no more credit: senders to this process should wait."""
        return bool(self._blocked_by)

    def send(self, peer: Hashable, n: int = 1, spec: CreditSpec | None = None) -> None:
        """`n` messages go to `peer`.  Never waits: ask `blocked` before taking in more work."""
        credit = self._from.get(peer, (spec or self.spec).initial)
        self._from[peer] = credit - n
        if credit > 0 >= credit - n:
            self.block(peer)

    def ack(self, peer: Hashable, n: int = 1, spec: CreditSpec | None = None) -> int:
        """`n` messages of `peer` were taken in: the credit to grant now, 0 if none is due or it is deferred."""
        more = (spec or self.spec).more_after
        left = self._to.get(peer, more) - n
        grants = 0 if left > 0 else 1 + -left // more
        self._to[peer] = left + grants * more
        if grants and self.blocked:
            self._deferred.append((peer, grants * more))
            return 0
        return grants * more

    def handle_bump(self, peer: Hashable, n: int) -> Grants:
        """`peer` granted `n`: the deferred grants that are due now, as (peer, credit)."""
        credit = self._from.get(peer, 0)
        self._from[peer] = credit + n
        return self.unblock(peer) if credit <= 0 < credit + n else []

    def peer_down(self, peer: Hashable) -> Grants:
        """`peer` died: forget it; the deferred grants that are due now."""
        self._deferred = [grant for grant in self._deferred if grant[0] != peer]
        self._from.pop(peer, None)
        self._to.pop(peer, None)
        return self.unblock(peer)

    def block(self, peer: Hashable) -> None:
        """Hold grants back until `peer` unblocks."""
        self._blocked_by[peer] = None

    def unblock(self, peer: Hashable) -> Grants:
        """`peer` blocks no more: the deferred grants that are due now."""
        self._blocked_by.pop(peer, None)
        if self.blocked:
            return []
        due, self._deferred = self._deferred, []
        return due
