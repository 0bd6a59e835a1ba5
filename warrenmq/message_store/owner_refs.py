"""References by owner: which queue holds which message.

RabbitMQ's store knows only how many references a message has.  When a queue process dies, it cannot be said which of them
were its own: its references to transient messages leak until the next start, and a queue that recovers may give
back what it never held.  Here each owner (a queue) has its references by name, so they outlive its process,
and the next one says which of them it still wants (`reconcile`).

Belongs to the store's process.  The sum over all owners of a message, and of the removes that wait for a locked
file, is its ref_count in the index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator


class OwnerRefs:
    """Owner -> message id -> references; two only if a queue holds one message twice."""

    def __init__(self) -> None:
        self._held: dict[str, dict[bytes, int]] = {}
        self.doubtful: set[str] = set()
        """Owners that hold messages, and whose process ended without a word: what it had given up may not have come here.
        (A crashed queue's client reference stays in RabbitMQ's store for the same reason, and has the next start read all.)
        """

    def add(self, owner: str, msg_id: bytes) -> None:
        held = self._held.setdefault(owner, {})
        held[msg_id] = held.get(msg_id, 0) + 1

    def drop(self, owner: str, msg_id: bytes) -> None:
        """Give one reference up; an owner may only give up what it holds."""
        held = self._held.get(owner, {})
        count = held.get(msg_id, 0)
        if count == 0:
            msg = f"{owner!r} removes message {msg_id.hex()}, which it does not hold"
            raise ValueError(msg)
        if count > 1:
            held[msg_id] = count - 1
        else:
            del held[msg_id]
            if not held:  # it may be gone for good
                del self._held[owner]

    def holds(self, owner: str, msg_id: bytes) -> bool:
        return msg_id in self._held.get(owner, ())

    def held(self, owner: str) -> dict[bytes, int]:
        return self._held.get(owner, {})

    def reconcile(self, owner: str, wanted: Iterable[bytes]) -> list[bytes]:
        """The references that `owner` holds beyond those in `wanted`, each as often as it is too many."""
        want = Counter(wanted)
        return [m for m, count in self.held(owner).items() for _ in range(count - want[m])]

    def all_of(self, owner: str) -> list[bytes]:
        """Every reference of an owner."""
        return self.reconcile(owner, ())

    def forget(self, msg_ids: Container[bytes]) -> None:
        """Drop all references to messages that do not exist."""
        for owner, held in list(self._held.items()):
            if left := {m: count for m, count in held.items() if m not in msg_ids}:
                self._held[owner] = left
            else:
                del self._held[owner]

    def counts(self) -> dict[bytes, int]:
        """Reference counts by message id."""
        counts: dict[bytes, int] = {}
        for held in self._held.values():
            for msg_id, count in held.items():
                counts[msg_id] = counts.get(msg_id, 0) + count
        return counts

    def owners(self) -> Iterator[str]:
        return iter(self._held)
