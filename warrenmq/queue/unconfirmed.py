"""Outstanding confirms of a queue, and the syncs that each waits for (rabbit_variable_queue's UC, MOD and MIOD sets).

A durable publication is safe when the index has been synced after it was published and each of its bodies that
went to the store has been reported by the store: `written`, after the store's own sync, or `ignored`, because
the message was acked before it was ever written.

    embedded bodies         one part:   the index sync
    k bodies in the store   1 + k parts: the index sync and each body

The answer goes out with the last part, in whatever order they come
(docs/reference/classic-queue.md#confirms-inside-the-queue).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias


class Promise(Protocol):
    """A publisher's confirm (actors/sending/confirms.py); each queue that the publish went to calls confirm,
    nack or fail, once.

    A queue that takes some of the messages and refuses others calls `parts` instead, and then one of these of each part.
    """

    def confirm(self) -> None: ...
    def nack(self, why: str) -> None: ...
    def fail(self, error: Exception) -> None: ...
    def parts(self, count: int) -> Sequence[Promise]: ...


class _Unanswered:
    """The promise of a publish that wants no confirm: see UNANSWERED."""

    def confirm(self) -> None:
        """No publisher waits."""

    def nack(self, why: str) -> None:
        """No publisher waits."""

    def fail(self, error: Exception) -> None:
        """No publisher waits."""

    def parts(self, count: int) -> list[_Unanswered]:
        """One for each message."""
        return [self] * count


class Promises:
    """The promise of messages that were published one by one, each with its own, and are handled as one publication."""

    __slots__ = ("_each",)

    def __init__(self, each: Sequence[Promise]) -> None:
        self._each = each

    def confirm(self) -> None:
        """Confirm each."""
        for promise in self._each:
            promise.confirm()

    def nack(self, why: str) -> None:
        """Nack each."""
        for promise in self._each:
            promise.nack(why)

    def fail(self, error: Exception) -> None:
        """Fail each."""
        for promise in self._each:
            promise.fail(error)

    def parts(self, count: int) -> Sequence[Promise]:
        """One for each message: they are their own."""
        assert count == len(self._each)
        return self._each


UNANSWERED = _Unanswered()
"""The promise of a publish that wants no confirm, of a channel that is not in confirm mode and of dead letters: no sync is
made for it alone (needs_confirming of rabbit_variable_queue)."""

Publication: TypeAlias = tuple[int, int, int, Promise]
"""Messages published together: first sequence id, how many, the first message as traces name it, the promise.
A plain tuple, as there is one for each publish."""


def are_several(complete: Sequence[Publication]) -> bool:
    """True if more than one call published these messages: one publication may be several single ones."""
    return len(complete) > 1 or (bool(complete) and isinstance(complete[0][3], Promises))


class _Parts:
    """A publication with bodies in the store."""

    __slots__ = ("missing", "publication")

    def __init__(self, publication: Publication, missing: int) -> None:
        self.publication = publication
        self.missing = missing


class Outstanding:
    """The confirms that a queue owed at one time; true as long as one of them has not been given."""

    def __init__(self, unconfirmed: Unconfirmed, parts: list[_Parts]) -> None:
        self._unconfirmed = unconfirmed
        self._unsynced = unconfirmed.unsynced
        self._parts = parts

    def __bool__(self) -> bool:
        if self._unsynced and self._unsynced is self._unconfirmed.unsynced:  # no sync came since
            return True
        while self._parts and not self._parts[-1].missing:
            self._parts.pop()
        return bool(self._parts)


class Unconfirmed:
    """The outstanding confirms of one queue.  `nack_all` may be called from any thread, once, when its owner
    is dead; the rest only by the owner.

    unsynced    publications since the last index sync, in order
    _bodies     message id -> the publication that waits for this body
    """

    def __init__(self) -> None:
        self.unsynced: list[Publication | _Parts] = []
        self._bodies: dict[bytes, _Parts] = {}

    def __bool__(self) -> bool:
        return bool(self.unsynced or self._bodies)

    def outstanding(self) -> Outstanding:
        """The ones that are in here now, whatever is added later."""
        return Outstanding(self, [*self._bodies.values()])

    def messages(self) -> int:
        """The number of messages neither confirmed nor refused."""
        in_parts = {*self._bodies.values(), *(each for each in self.unsynced if isinstance(each, _Parts))}
        whole = sum(each[1] for each in self.unsynced if not isinstance(each, _Parts))
        return whole + sum(parts.publication[1] for parts in in_parts)

    def add(self, publication: Publication, in_store: list[bytes]) -> None:
        """Add a publication; `in_store` are the ids of its bodies that the store must report."""
        if not in_store:
            self.unsynced.append(publication)
            return
        parts = _Parts(publication, 1 + len(in_store))
        for msg_id in in_store:
            self._bodies[msg_id] = parts
        self.unsynced.append(parts)

    def index_synced(self) -> list[Publication]:
        """The index entries of all publications so far are safe; returns those that are complete, in order."""
        unsynced, self.unsynced = self.unsynced, []
        complete: list[Publication] = []
        for each in unsynced:
            if not isinstance(each, _Parts):
                complete.append(each)
            else:
                each.missing -= 1
                if not each.missing:
                    complete.append(each.publication)
        return complete

    def on_disk(self, msg_ids: Iterable[bytes]) -> list[Publication]:
        """The store has synced these bodies, or will never need them; unknown ids are ignored.  Returns the
        complete publications.
        """
        complete: list[Publication] = []
        for msg_id in msg_ids:
            if (parts := self._bodies.pop(msg_id, None)) is not None:
                parts.missing -= 1
                if not parts.missing:
                    complete.append(parts.publication)
        return complete

    def give_up(self) -> list[Publication]:
        """Everything that has no answer yet, which gets another one than a confirm."""
        unsynced, bodies = self.unsynced, self._bodies
        self.unsynced, self._bodies = [], {}
        owed: dict[_Parts, None] = dict.fromkeys(bodies.values())
        whole: list[Publication] = []
        for each in unsynced:
            if isinstance(each, _Parts):
                owed[each] = None
            else:
                whole.append(each)
        for parts in owed:
            parts.missing = 0  # for those who look at what was outstanding
        return [*whole, *(parts.publication for parts in owed)]

    def nack_all(self, why: str) -> list[tuple[int, int]]:
        """The queue process is dead: nack all that has no answer yet; returns it as (first message, how many)."""
        publications = self.give_up()
        for _, _, _, promise in publications:
            promise.nack(why)
        return [(message, count) for _, count, message, _ in publications]
