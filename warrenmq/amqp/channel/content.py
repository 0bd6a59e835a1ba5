"""Assembles the frames of one channel into methods and publishes (rabbit_command_assembler).

    method without content           -> handed over decoded
    basic.publish, header, bodies    -> handed over when the body is complete

Publishes that follow one another in one batch of frames, with the same method and the same properties, are a run; they are
handed over as one, with many bodies.  Clients that publish much do it that way, so this is where their time goes: what
repeats is compared as bytes and not decoded again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Protocol

from pamqp.base import Frame as Method

from warrenmq.amqp.wire import batch
from warrenmq.amqp.wire.codec import PUBLISH, PUBLISH_START, decode_header, decode_method
from warrenmq.amqp.wire.errors import PRECONDITION_FAILED, UNEXPECTED_FRAME, AmqpError
from warrenmq.amqp.wire.frames import BODY, HEADER, METHOD, Frame
from warrenmq.seams.memory import LARGE, check_room

_EXPECTED = {
    METHOD: "expected method frame, got non method frame instead",
    HEADER: "expected content header for class 60, got non content header frame instead",
    BODY: "expected content body, got non content body frame instead",
}
LARGEST_MESSAGE = 536_870_912
"""Bytes of the largest message, whatever the settings (MAX_MSG_SIZE)."""


class Sink(Protocol):
    """The receiver of assembled methods and publishes."""

    def method(self, method: Method) -> None:
        """A method without content."""

    def publish(self, method: bytes, raw_properties: bytes, bodies: list[bytes]) -> None:
        """A run of basic.publish; `method` is the payload of its frame."""


class ContentAssembler:
    """The assembler of one channel; belongs to the channel process."""

    def __init__(self, sink: Sink, max_message_size: int) -> None:
        self._sink = sink
        self._largest = min(max_message_size, LARGEST_MESSAGE)
        self._expected = METHOD
        self._method = self._header = self._raw = b""
        self._size = self._have = 0
        self._pieces: list[bytes] = []
        self._run_method = self._run_raw = b""
        self._bodies: list[bytes] = []
        """The bodies of the current run, whose method and properties are _run_method and _run_raw."""
        self._in_hand: tuple[Frame, ...] = ()
        """The method behind the current run, while that is handed over."""

    def take(self, frames: Iterator[Frame]) -> None:
        """Handle frames in order; AmqpError for those that come out of turn, and whatever the sink raises.

        The frames behind the one that failed are left to `rest`.
        """
        for kind, number, payload in frames:
            if kind != self._expected:
                self.flush()
                raise AmqpError(UNEXPECTED_FRAME, _EXPECTED[self._expected], *self._of())
            if kind == BODY:
                self._take_body(payload)
            elif kind == HEADER:
                self._take_header(payload)
            elif payload.startswith(PUBLISH_START):
                self._method = payload
                self._expected = HEADER
            else:
                if self._bodies:
                    self._in_hand = (Frame(kind, number, payload),)
                    self.flush()
                    self._in_hand = ()
                self._sink.method(decode_method(payload))
        self.flush()

    def rest(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        """The frames that `take` left of these: a method goes to nobody if the run before it was refused."""
        in_hand, self._in_hand = self._in_hand, ()
        return chain(in_hand, frames)

    def flush(self) -> None:
        """Hand the current run to the sink."""
        if bodies := self._bodies:
            self._bodies = []
            self._sink.publish(self._run_method, self._run_raw, bodies)

    def check_sizes(self, bodies: list[bytes]) -> None:
        """Raise AmqpError 406 for a body of a batch that is larger than a message may be."""
        if (largest := max(map(len, bodies))) > self._largest:
            raise self._too_large(largest)

    def _too_large(self, size: int) -> AmqpError:
        which = "max size" if self._largest == LARGEST_MESSAGE else "configured max size"
        why = f"message size {size} is larger than {which} {self._largest}"
        return AmqpError(PRECONDITION_FAILED, why, *PUBLISH)

    def _take_header(self, payload: bytes) -> None:
        if payload != self._header:
            size, self._raw = decode_header(payload)
            self._header, self._size = payload, size
        if self._size > self._largest and (self._size > batch.LARGEST or self._method != batch.METHOD):
            # Before the body has come, where RabbitMQ looks when it is complete: it need not be kept.
            self.flush()
            raise self._too_large(self._size)
        if self._size > LARGE:
            self.flush()
            check_room(self._size)
        if self._size:
            self._expected = BODY
        else:
            self._complete(b"")

    def _take_body(self, payload: bytes) -> None:
        if not self._have and len(payload) == self._size:
            self._complete(payload)
            return
        self._pieces.append(payload)
        self._have += len(payload)
        if self._have > self._size:
            self.flush()
            raise AmqpError(
                UNEXPECTED_FRAME, "the body of a message is longer than its header says", *PUBLISH
            )
        if self._have == self._size:
            body = b"".join(self._pieces)
            self._pieces, self._have = [], 0
            self._complete(body)

    def _complete(self, body: bytes) -> None:
        self._expected = METHOD
        if self._bodies and (self._raw != self._run_raw or self._method != self._run_method):
            self.flush()
        if not self._bodies:
            self._run_method, self._run_raw = self._method, self._raw
        self._bodies.append(body)

    def _of(self) -> tuple[int, int]:
        return (0, 0) if self._expected == METHOD else PUBLISH
