"""Mailbox messages that batch: senders append single publishes and acks until the queue takes them, so a run
costs one message.

    sender   add, then send unless it is on its way
    queue    clear `on_its_way`, then take what was added

An addition after the take finds `on_its_way` False and sends the message again, so nothing is left behind,
and no lock is needed: a deque's `append` and `popleft` are atomic.  A message that is sent again may turn out
empty.

A publish may be added as long as nobody sent the queue anything since the message was sent (`Inbox.newest`); its order among
all that the queue receives is that of a publish sent alone.  Acks name what they settle, so their order does not matter.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import repeat, starmap
from typing import TypeVar

from warrenmq.message.queue_message import Publication
from warrenmq.queue.messages import Acks, Publish, Publisher
from warrenmq.queue.unconfirmed import Promise, Promises

T = TypeVar("T")


def _take(added: deque[T]) -> list[T]:
    """Take the entries that are there now; called by the queue, or by the thread that finds its process dead."""
    taken: list[T] = []
    with suppress(IndexError):  # the process was killed while it took them: another thread takes them as well
        taken.extend(starmap(added.popleft, repeat((), len(added))))
    return taken


class OpenPublish:
    """Publisher -> queue: a growing batch of single publishes with consecutive ids that differ only in their bodies.

    on_its_way   it was sent, and the queue has not begun to take what was added
    alike        the publication that each of them is, but for id and body
    added        how many were added, ever
    sent_seq     the row of the first one's SEND; those of the others follow it
    sent_t       the time of the last one's
    """

    __slots__ = (
        "_added", "added", "alike", "on_its_way", "publisher", "sender", "sent_seq", "sent_t", "taken",
    )  # fmt: skip

    def __init__(self, alike: Publication, publisher: Publisher, body: bytes, promise: Promise, sender: int,
                 sent_seq: int, sent_t: int) -> None:  # fmt: skip
        """Begin with a first message: `body`, `promise`, `sent_seq` and `sent_t` are its."""
        self._added: deque[tuple[bytes, Promise]] = deque(((body, promise),))
        self.on_its_way = False
        self.alike = alike
        self.publisher = publisher
        self.sender = sender
        self.sent_seq = sent_seq
        self.sent_t = sent_t
        self.added, self.taken = 1, 0

    def add(self, body: bytes, promise: Promise, sent_t: int) -> None:
        """Append a message; only its one sender calls this."""
        self.sent_t = sent_t
        self._added.append((body, promise))
        self.added += 1  # last: if this is interrupted before, the next message starts another batch

    def take(self) -> Publish | None:
        """Take the messages added since the last time, as one publish."""
        self.on_its_way = False
        if not (taken := _take(self._added)):
            return None
        alike, count, before = self.alike, len(taken), self.taken
        self.taken = before + count
        bodies, promises = zip(*taken, strict=True)
        publication = Publication(
            alike.id_prefix, alike.first_id + before, alike.head, alike.properties_size, bodies, alike.persistent,
        )  # fmt: skip
        promise = promises[0] if count == 1 else Promises(promises)
        first_send = self.sent_seq and self.sent_seq + before
        return Publish(publication, promise, self.publisher, self.sender, first_send, self.sent_t, count)


class OpenAcks:
    """Consumer -> queue: a growing batch of single acks, from any thread."""

    __slots__ = ("_added", "consumer", "on_its_way")

    def __init__(self, consumer: int) -> None:
        self._added: deque[int] = deque()
        self.on_its_way = False
        self.consumer = consumer

    def add(self, tag: int) -> None:
        """Append the ack of a delivery."""
        self._added.append(tag)

    def take(self) -> Acks:
        """Take the acks added since the last time; possibly none."""
        self.on_its_way = False
        return Acks(self.consumer, _take(self._added))
