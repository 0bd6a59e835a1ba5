"""Flying counters: writes and removes that are still on their way to the store (rabbit_msg_store, flying_ets).

Source: docs/reference/message-store.md#flying-to-312.

A queue may remove a message before the store has handled its write.  Then neither needs to be done: the message
never touches the disk.  For each client and message the table holds

    value = writes sent - removes sent - those already handled;  no row = 0

and the store decides, as it handles an operation, by the value it sees:

    | value seen  | a write                        | a remove                       | the row afterwards           |
    | ----------- | ------------------------------ | ------------------------------ | ---------------------------- |
    | no row      | ignore                         | ignore                         | none                         |
    | 0           | ignore                         | ignore                         | deleted                      |
    | +1          | process                        | ignore (its write was ignored) | write: -1, deleted if now 0  |
    | -1          | ignore (a remove came between) | process                        | remove: +1, deleted if now 0 |
    | 2 and more  | process                        | ignore                         | as +1                        |
    | -2 and less | ignore                         | process                        | as -1                        |

Ignored writes and removes cancel out in pairs, because the value is a sum, and each side takes away what it acts on.  The
last two rows need one message twice in one queue.  RabbitMQ processes a remove at 2 and more and crashes at
-2; a remove whose write was ignored before the value rose would then give back a reference that is not there.

An ignored write must still be confirmed (`ignored`), and its cache row be dropped.

Concurrency: one lock, taken once a batch (in a traced store once a message).  Clients send under it, the
store handles under it, so a value is never acted on when it is no longer true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock
from typing import TypeAlias

Seen: TypeAlias = int | None
"""A value as the store saw it; None = no row."""


def processes_write(seen: Seen) -> bool:
    """True if a write is done, at this value."""
    return seen is not None and seen > 0


def processes_remove(seen: Seen) -> bool:
    """True if a remove is done, at this value."""
    return seen is not None and seen < 0


class FlyingTable:
    """Client -> message id -> value."""

    def __init__(self) -> None:
        self._rows: dict[bytes, dict[bytes, int]] = {}
        self._lock = Lock()

    # for clients

    def written(self, cref: bytes, msg_ids: Iterable[bytes]) -> None:
        """Count writes that are about to be sent."""
        self._add(cref, msg_ids, 1)

    def removed(self, cref: bytes, msg_ids: Iterable[bytes]) -> None:
        """Count removes that are about to be sent."""
        self._add(cref, msg_ids, -1)

    def _add(self, cref: bytes, msg_ids: Iterable[bytes], difference: int) -> None:
        with self._lock:
            row = self._rows.setdefault(cref, {})
            get = row.get
            for msg_id in msg_ids:
                row[msg_id] = get(msg_id, 0) + difference

    # for the store

    def handle_writes(self, cref: bytes, msg_ids: Iterable[bytes]) -> list[Seen]:
        """The values seen by these writes, one after the other."""
        return self._handle(cref, msg_ids, 1)

    def handle_removes(self, cref: bytes, msg_ids: Iterable[bytes]) -> list[Seen]:
        """The values seen by these removes, one after the other."""
        return self._handle(cref, msg_ids, -1)

    def handle_writes_one_by_one(self, cref: bytes, msg_ids: Iterable[bytes]) -> Iterator[Seen]:
        """`handle_writes`, each when its turn comes: for a traced store, whose rows stand where it looked."""
        return (self._handle(cref, (msg_id,), 1)[0] for msg_id in msg_ids)

    def handle_removes_one_by_one(self, cref: bytes, msg_ids: Iterable[bytes]) -> Iterator[Seen]:
        """`handle_removes`, each when its turn comes."""
        return (self._handle(cref, (msg_id,), -1)[0] for msg_id in msg_ids)

    def _handle(self, cref: bytes, msg_ids: Iterable[bytes], sign: int) -> list[Seen]:
        """Take `sign` from each value that has its direction, and delete what becomes, or is, 0."""
        seen: list[Seen] = []
        append = seen.append
        with self._lock:
            row = self._rows.get(cref, {})
            get = row.get
            for msg_id in msg_ids:
                value = get(msg_id)
                append(value)
                if value is not None:
                    if value in {0, sign}:
                        del row[msg_id]
                    elif value * sign > 0:
                        row[msg_id] = value - sign
        return seen

    def forget(self, cref: bytes) -> None:
        """The client is dead and all that it sent has been handled, or will be ignored."""
        with self._lock:
            self._rows.pop(cref, None)

    def __len__(self) -> int:
        with self._lock:
            return sum(len(row) for row in self._rows.values())
