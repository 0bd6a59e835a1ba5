"""Transcripts of AMQP: a program of raw frames is run against a server, and each frame that comes back is a line of text.

    > 1 queue.declare queue='q'                       sent on channel 1
    < 1 queue.declare-ok queue='q' message_count=0    received
    # ..., = ...                                      notes of the program

Differences between runs, or brokers, that mean nothing are left out: generated names, what the server
says about itself beyond product, version and capabilities, and the order in which channels are answered: what is received in
one step is listed channel by channel.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pamqp.commands import Basic, Channel, Connection, Queue

from tests.amqp.raw_client import RawClient
from warrenmq.amqp.connection.handshake import PROTOCOL_HEADER
from warrenmq.amqp.wire.codec import decode_header, decode_method, encode_header, encode_method, make
from warrenmq.amqp.wire.frames import BODY, HEADER, METHOD, Frame, FrameCutter
from warrenmq.amqp.wire.frames import frame as raw_frame
from warrenmq.erlang.amqp_table import properties_of_bytes

CLIENT = {"capabilities": {"consumer_cancel_notify": True, "authentication_failure_close": True}}
_GENERATED = re.compile(r"amq\.(gen|ctag)-[\w-]{22}")
_TIME = re.compile(r"\['time', 'T', \d+\]")
"""In x-death."""
_SHOWN = 500
"""Characters of a value; longer ones are told apart by their checksums."""
_TOLD = ("product", "version", "capabilities")
"""Server properties that clients decide by."""


class Transcript:
    """The frames that one program saw; `lines` is the text."""

    def __init__(self, port: int) -> None:
        self.lines: list[str] = []
        self._port = port

    @contextmanager
    def connection(self, *channels: int, name: str = "") -> Iterator[Wire]:
        """An open connection with these channels; `name` tells several apart."""
        with RawClient(self._port) as client:
            wire = Wire(self, client, name)
            client.send(PROTOCOL_HEADER)
            wire.start = client.next(Connection.Start)
            client.method(Connection.StartOk(CLIENT, "PLAIN", "\0guest\0guest", "en_US"))
            wire.tune = client.next(Connection.Tune)
            client.method(make(Connection.TuneOk, channel_max=2047, frame_max=131072, heartbeat=0))
            client.method(Connection.Open("/"))
            client.next(Connection.OpenOk)
            for number in channels:
                client.method(Channel.Open(), number)
                client.next(Channel.OpenOk)
            yield wire

    def comment(self, text: str) -> None:
        """A line for the reader."""
        self.lines.append(f"# {text}")


class Wire:
    """One connection of a program."""

    start: Connection.Start
    tune: Connection.Tune

    def __init__(self, transcript: Transcript, client: RawClient, name: str) -> None:
        self._transcript = transcript
        self._client = client
        self._name = f"{name} " if name else ""

    def send(self, channel: int, *methods: Any) -> bytes:
        """Send methods in one go."""
        return self.send_all(*((channel, method) for method in methods))

    def send_all(self, *what: tuple[int, Any]) -> None:
        """Send methods, and contents made by `published`, on several channels in one go."""
        data = b""
        for channel, method in what:
            if isinstance(method, bytes):
                data += method
                publish = FrameCutter(0).feed(method)[0]
                self._note(">", channel, describe(publish))
            else:
                data += encode_method(channel, method)
                self._note(">", channel, _method(method))
        self._client.send(data)

    def until(self, *last: str, ordered: bool = True) -> list[Frame]:
        """Note all frames until each of these has come: "1 basic.get-ok", once for each time that it is listed.

        A message has come when its body has.  Not `ordered`: the order within a channel is left to chance, too.
        """
        wanted, seen = list(last), []
        behind: str | None = None
        while wanted:
            frame = self._client.frame()
            assert frame is not None, (
                f"closed where {wanted} was expected, after {[describe(each) for each in seen]}"
            )
            seen.append(frame)
            if frame.type == METHOD:
                behind = f"{frame.channel} {describe(frame).split(' ')[0]}"
            if behind in wanted and _complete(frame, behind):
                wanted.remove(behind)
        self._note_all(seen, ordered=ordered)
        return seen

    def declare(self, channel: int, queue: str, **how: Any) -> str:
        """queue.declare, and its answer; the queue's name."""
        self.send(channel, make(Queue.Declare, queue=queue, **how))
        return str(decode_method(self.until(f"{channel} queue.declare-ok")[-1].payload).queue)  # type: ignore[attr-defined]

    def fence(self, channel: int, queue: str) -> None:
        """A passive declare: what a queue and a channel had to say before is in front of its answer."""
        self.declare(channel, queue, passive=True)

    def call(self, channel: int, method: Any, answer: str) -> None:
        """A method, and its answer."""
        self.send(channel, method)
        self.until(f"{channel} {answer}")

    def _note(self, sign: str, channel: int, text: str) -> None:
        self._transcript.lines.append(f"{sign} {self._name}{channel} {text}")

    def _note_all(self, frames: list[Frame], *, ordered: bool) -> None:
        by_channel: dict[int, list[str]] = {}
        for frame in frames:
            by_channel.setdefault(frame.channel, []).append(describe(frame))
        for channel in sorted(by_channel):
            for text in by_channel[channel] if ordered else sorted(by_channel[channel]):
                self._note("<", channel, text)


def published(channel: int, routing_key: str, body: bytes = b"x", *, exchange: str = "", mandatory: bool = False,
              raw_properties: bytes = b"\0\0") -> bytes:  # fmt: skip
    """The frames of a basic.publish."""
    method = make(Basic.Publish, exchange=exchange, routing_key=routing_key, mandatory=mandatory)
    return (
        encode_method(channel, method)
        + encode_header(channel, raw_properties, len(body))
        + raw_frame(BODY, channel, body)
    )


def _complete(frame: Frame, method: str) -> bool:
    """True if a frame is the last of its method; the bodies of programs are not empty, and fit into one frame."""
    return frame.type == (BODY if method.endswith((".deliver", ".get-ok", ".return")) else METHOD)


def describe(frame: Frame) -> str:
    """A frame as text, without its channel."""
    if frame.type == METHOD:
        return _method(decode_method(frame.payload))
    if frame.type == HEADER:
        size, raw = decode_header(frame.payload)
        return f"header size={size} properties={_short(properties_of_bytes(raw))}"
    return f"body {_short(frame.payload)}"


def identity(wire: Wire) -> list[str]:
    """The server's description of itself and its capabilities, as far as clients decide by it."""
    about = {name: wire.start.server_properties.get(name) for name in _TOLD}
    tune = wire.tune
    return [
        *(f"{name}={value!r}" for name, value in about.items() if name != "capabilities"),
        *(f"capability {name}={value}" for name, value in sorted(about["capabilities"].items())),
        f"mechanisms={sorted(wire.start.mechanisms.split())}",
        f"channel_max={tune.channel_max} frame_max={tune.frame_max} heartbeat={tune.heartbeat}",
    ]  # fmt: skip


def _method(method: Any) -> str:
    upper, _, name = method.name.partition(".")
    words = re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
    fields = [f"{field}={_short(getattr(method, field))}" for field in method.__slots__ if getattr(method, field) or
              field in ("message_count", "consumer_count")]  # fmt: skip
    return " ".join([f"{upper.lower()}.{words}", *fields])


def _short(value: Any) -> str:
    text = _TIME.sub("['time', 'T', '*']", _GENERATED.sub(r"amq.\1-*", repr(value)))
    if len(text) <= _SHOWN:
        return text
    return f"<{len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
