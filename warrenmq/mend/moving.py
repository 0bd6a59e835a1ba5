"""Moving the messages of one queue into a queue of an open broker, a batch at a time.

    1  read a batch from the source         only messages that are not in the ledger
    2  write it into the ledger, synced     from here on they are in doubt
    3  publish it                           a few batches are on their way at once
    4  when it is confirmed, say so in the ledger

Messages that an earlier run left in doubt have been looked for in the target before (doubts.py).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.broker import Broker
from warrenmq.broker.migration import MigratedMessage, MigrationPublisher
from warrenmq.errors import PreconditionFailed
from warrenmq.inspect.inspection import Row
from warrenmq.inspect.message import Message
from warrenmq.mend.ledger import Ledger, key
from warrenmq.message.plain_properties import name_of_rabbit, properties_of_plain
from warrenmq.message.stored import encode_head

BATCH = 512
BATCH_BYTES = 4 << 20
ON_THEIR_WAY = 3
"""Batches published and not confirmed yet."""


@dataclass
class Outcome:
    """The outcome for one queue: how many messages for each reason."""

    moved: int = 0
    """Published by this run."""
    already: int = 0
    """Published by an earlier run."""
    salvaged: Counter[str] = field(default_factory=Counter)
    """Among both: what RabbitMQ itself would lose, and why."""
    not_recovered: Counter[str] = field(default_factory=Counter)
    altered: Counter[str] = field(default_factory=Counter)
    expiring: int = 0
    """Messages with a time to live."""
    redelivered: int = 0
    """Messages moved by this run that had been delivered before."""
    redelivered_below: int = 0
    """One more than the last of them in the target's queue; 0 = it has no message."""
    marked_too: int = 0
    """Messages before that one that had not been delivered."""
    not_delivered: int = 0
    """Messages behind it."""


def fingerprint(message: Message) -> bytes:
    """Enough of a message to know it again."""
    whole = "\0".join((message.exchange, *message.routing_keys)).encode(errors="surrogateescape")
    return blake2b(message.body, digest_size=16, key=blake2b(whole, digest_size=32).digest()).digest()


class Candidate(NamedTuple):
    """A message that has not been moved yet."""

    key: bytes
    fingerprint: bytes
    message: Message
    milliseconds: int | None
    """The remaining time to live."""
    redelivered: bool


def candidates(rows: Iterable[Row], ledger: Ledger, outcome: Outcome, now_us: int) -> Iterator[Candidate]:
    """The messages to move; the others are counted, with the reasons."""
    for row in rows:
        message = row.message
        if row.reason is not None or message is None:
            outcome.not_recovered[row.reason or "unreadable"] += 1
            continue
        if row.salvaged is not None:
            outcome.salvaged[row.salvaged] += 1
        if row.entry.expiry:
            outcome.expiring += 1
        print_of_it = fingerprint(message)
        me = key(row.entry.seq_id, row.entry.msg_id or message.msg_id or print_of_it)
        if me in ledger.moved:
            outcome.already += 1
        else:
            yield Candidate(
                me, print_of_it, message, milliseconds_left(row.entry.expiry, now_us), row.redelivered
            )


def move(
    broker: Broker, queue: str, rows: Iterable[Row], ledger: Ledger, outcome: Outcome, now_us: int
) -> None:
    """Publish what has not been moved yet; a message may live as long after this as it could after `now_us`."""
    mover = _Mover(broker, queue, ledger, outcome)
    for each in candidates(rows, ledger, outcome, now_us):
        moved = mover.prepared(each.message, each.milliseconds)
        if moved is not None:
            mover.add(each.key, each.fingerprint, moved, redelivered=each.redelivered)
    mover.finish()


def milliseconds_left(expiry: int, now_us: int) -> int | None:
    """The remaining time to live of a message in milliseconds; `expiry` in microseconds since 1970, 0 = none.

    | expiry     | now_us     | left |
    | ---------- | ---------- | ---- |
    | 0          | 5 000 000  | None |
    | 5 002 000  | 5 000 000  | 2    |
    | 5 000 001  | 5 000 000  | 1    |
    """
    return -((now_us - expiry) // 1000) if expiry else None


class _Mover:
    def __init__(self, broker: Broker, queue: str, ledger: Ledger, outcome: Outcome) -> None:
        self._publisher = MigrationPublisher(broker.inside.local_client, queue)
        self._queue = queue
        self._ledger = ledger
        self._outcome = outcome
        self._keys: list[bytes] = []
        self._prints: list[bytes] = []
        self._messages: list[MigratedMessage] = []
        self._priority = 0
        """The priority of the target that these go to."""
        self._bytes = 0
        self._sent: deque[tuple[int, int, Confirm]] = deque()
        """(first sequence id, how many, confirm) of each batch on its way."""
        self._plain_size = lru_cache(maxsize=1024)(
            lambda exchange, keys: len(encode_head(exchange, list(keys), None))
        )

    def prepared(self, message: Message, milliseconds: int | None) -> MigratedMessage | None:
        """The message as it will be stored; None, counted, for one that cannot be."""
        exchange, odd_exchange = name_of_rabbit(message.exchange)
        names = [name_of_rabbit(each) for each in message.routing_keys or [self._queue]]
        keys = [name for name, _ in names]
        try:
            properties, altered = properties_of_plain(message.properties)
            head = encode_head(exchange, keys, properties)
        except (ValueError, PreconditionFailed) as why:
            self._outcome.not_recovered[f"it cannot be stored here: {why}"] += 1
            return None
        if odd_exchange or any(odd for _, odd in names):
            altered = [
                *altered,
                "its exchange or a routing key is not UTF-8; the invalid bytes are written as \\xNN",
            ]
        self._outcome.altered.update(altered)
        return MigratedMessage(head, len(head) - self._plain_size(exchange, tuple(keys)), message.body,
                     milliseconds, message.properties.get("priority") or 0)  # fmt: skip

    def add(self, key: bytes, fingerprint: bytes, message: MigratedMessage, *, redelivered: bool) -> None:
        priority = self._publisher.priority_of(message)
        if priority != self._priority:
            self._send()
            self._priority = priority
        self._note_delivery(self._publisher.next_seq_id(priority) + len(self._keys), redelivered=redelivered)
        self._keys.append(key)
        self._prints.append(fingerprint)
        self._messages.append(message)
        self._bytes += len(message.body)
        if len(self._keys) >= BATCH or self._bytes >= BATCH_BYTES:
            self._send()

    def _note_delivery(self, seq_id: int, *, redelivered: bool) -> None:
        outcome = self._outcome
        if redelivered:
            outcome.redelivered += 1
            outcome.redelivered_below = seq_id + 1
            outcome.marked_too += outcome.not_delivered
            outcome.not_delivered = 0
        else:
            outcome.not_delivered += 1

    def _send(self) -> None:
        if not self._keys:
            return
        first = self._publisher.next_seq_id(self._priority)
        self._ledger.moving(first, self._keys, self._prints)
        self._sent.append((first, len(self._keys), self._publisher.put(self._messages)))
        self._keys, self._prints, self._messages, self._bytes = [], [], [], 0
        while len(self._sent) >= ON_THEIR_WAY:
            self._settle()

    def _settle(self) -> None:
        """Wait for the oldest batch; raises what it was refused with."""
        first, count, confirm = self._sent.popleft()
        confirm.result()
        self._ledger.done(first)
        self._outcome.moved += count

    def finish(self) -> None:
        self._send()
        while self._sent:
            self._settle()
