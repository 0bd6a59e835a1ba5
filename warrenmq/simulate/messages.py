"""Messages of a simulated run, and what the client knows of each in each queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.simulate.amqp_client import AmqpConfirm

MAIN = 0
"""The number of the publisher that is the script itself; bursts have numbers of their own."""

_BYTES = bytes(range(256))


class PromiseBroken(Exception):
    """Raised when the broker breaks a guarantee to a client.  `promise` names it in a word or two."""

    def __init__(self, promise: str, text: str) -> None:
        super().__init__(f"{promise}: {text}")
        self.promise = promise


class State(Enum):
    """The state of a message in one queue."""

    READY = "ready"
    HELD = "held"
    SETTLED = "settled"


@dataclass(slots=True)
class Message:
    """A message as it was published."""

    number: int
    body: bytes
    persistent: bool
    priority: int
    publisher: int
    way: tuple[str, str] = "", ""
    """The exchange that it is published to, and the routing key."""
    headers: Mapping[str, Any] = field(default_factory=dict)
    """Headers that it is published with."""
    confirm: Confirm | AmqpConfirm | None = None
    """None before `publish` has returned."""


@dataclass(slots=True)
class Copy:
    """A message in one queue."""

    message: Message
    state: State = State.READY
    is_certain: bool = True
    """It is in the queue, or on its way to it; False after a nack, and once it may have expired."""
    awaits_confirm: bool = False
    """It may be refused until its confirm comes, and is certain from then on."""
    is_redelivered: bool | None = False
    """The flag that its next delivery must have; None: either."""
    was_found: bool = False
    """After its queue ended."""
    is_safe: bool = False
    """Found by a broker or vhost that began anew, and has synced what it found: as good as confirmed."""
    is_dead_letter: bool = False
    """A queue published it, which no confirm tells of."""
    way: tuple[str, str] | None = None
    """The exchange and the key of a dead letter."""
    due_at: float = -inf
    """Virtual seconds before which it may not come; a delayed message is only certain once `dues_came` says so."""
    may_be_gone: bool = False
    """It may have been there when the queue was purged, or deleted, or when its ack was handled."""
    may_expire: bool = False
    """It may go at any time, as its time to live may be over."""
    place: tuple[int, int] = 0, 0
    """How many messages its publisher had sent to the queue with it, and how many bytes before it."""
    has_ttl: bool = False
    """Its queue had a time to live when it was sent."""
    settled_over_amqp: bool = False
    """So that its ack may be behind what others send later."""
    came_at: float | None = None
    """Virtual seconds at which it was surely there, in a queue whose messages expire."""
    settled_at: float = inf
    """Virtual seconds at which the client acked or rejected it."""
    sent_at: float = -inf
    """Virtual seconds before which it was not sent, in this life of its queue."""
    returns: int = 0
    """How often it came back to its queue at most, and ..."""
    sure_returns: int = 0
    """... how often at least, as far as the queue's process must know."""

    def doubt(self) -> None:
        """It may be there or gone, whatever a client hears of it later."""
        self.is_certain = self.awaits_confirm = False
        self.may_be_gone = True
        self.sent_at = -inf

    @property
    def is_on_its_way(self) -> bool:
        """True if it was delayed, and may not have come."""
        return self.due_at > 0 and not self.is_certain

    @property
    def is_confirmed(self) -> bool:
        confirm = None if self.is_dead_letter else self.message.confirm
        return self.is_safe or (confirm is not None and confirm.done() and confirm.exception() is None)


def body_of(number: int, size: int) -> bytes:
    """Build the body of a message: its number and a pattern that reveals bytes of other messages."""
    begin = number * 31 & 0xFF
    pattern = _BYTES * (size // len(_BYTES) + 2)
    return b"%d " % number + pattern[begin : begin + size]


def number_of(body: bytes) -> int:
    """Read the number of a message from its body; -1 if it has none."""
    head = body.split(b" ", 1)[0]
    return int(head) if head.isdigit() else -1
