"""Frames: how AMQP 0-9-1 cuts a stream of bytes (section 2.3.5), and FrameCutter, which cuts it.

    | type:8 | channel:16 | size:32 | payload: size bytes | 206 |

    1 method    class:16 | method:16 | arguments
    2 header    class:16 | weight:16 | body size:64 | property flags:16 | properties
    3 body      bytes
    8 heartbeat nothing

Payloads are not looked at here.  A size is checked before the payload arrives, so a peer can make the server buffer one
frame of the negotiated size and no more.  Source: rabbit_reader:handle_input.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from warrenmq.amqp.wire.errors import FRAME_ERROR, UNEXPECTED_FRAME, AmqpError

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 206
FRAME_MIN_SIZE = 4096
"""The limit before tune-ok; every peer must accept frames of this size."""
OVERHEAD = 8
"""Bytes of a frame that are no payload."""

HEARTBEAT_FRAME = b"\x08\0\0\0\0\0\0\xce"
_HEAD = Struct(">BHI")
_SNIPPET = 16


class Frame(NamedTuple):
    """One frame, its payload undecoded."""

    type: int
    channel: int
    payload: bytes


def frame(type: int, channel: int, payload: bytes) -> bytes:
    """The bytes of a frame."""
    return b"%b%b\xce" % (_HEAD.pack(type, channel, len(payload)), payload)


class FrameCutter:
    """Cuts the bytes of one peer into frames.  Not thread-safe: it belongs to its connection."""

    def __init__(self, frame_max: int = FRAME_MIN_SIZE) -> None:
        self.frame_max = frame_max
        """The largest frame that the peer may send, in RabbitMQ's reading: this is a limit of the payload; 0: none."""
        self.error: AmqpError | None = None
        """Set at the first bytes that are not a frame; nothing behind them is cut."""
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = _HEAD.size

    @property
    def pending(self) -> int:
        """Bytes received of the frame that is still incomplete."""
        return self._have

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that end in `data`, up to the first bytes that are not a frame (see `error`)."""
        if self.error is not None:
            return []
        self._pieces.append(data)
        self._have += len(data)
        if self._have < self._need:  # a body of many reads is joined once, when it is there
            return []
        data = b"".join(self._pieces) if len(self._pieces) > 1 else data
        frames: list[Frame] = []
        at, end = 0, len(data)
        while True:
            if end - at < _HEAD.size:
                self._need = _HEAD.size
                break
            kind, channel, size = _HEAD.unpack_from(data, at)
            if size > self.frame_max > 0:
                why = f"{{frame_too_large,{size},{self.frame_max - OVERHEAD}}}"
                return self._broken(frames, frame_error(kind, b"", why))
            stop = at + _HEAD.size + size
            if stop >= end:
                self._need = size + OVERHEAD
                break
            payload = data[at + _HEAD.size : stop]
            if data[stop] != FRAME_END:
                why = f"{{invalid_frame_end_marker,{data[stop]}}}"
                return self._broken(frames, frame_error(kind, payload, why))
            frames.append(Frame(kind, channel, payload))
            at = stop + 1
        self._pieces = [data[at:]] if at < end else []
        self._have = end - at
        return frames

    def _broken(self, frames: list[Frame], error: AmqpError) -> list[Frame]:
        self.error = error
        self._pieces, self._have = [], 0
        return frames


def frame_error(type: int, payload: bytes, why: str) -> AmqpError:
    """501 with RabbitMQ's description of the frame."""
    return AmqpError(FRAME_ERROR, f"type {type}, {snippet(payload)}: {why}")


def check_shape(frame: Frame) -> None:
    """Raise AmqpError unless a frame has the length and channel that its type needs (rabbit_command_assembler:analyze_frame).

    | type                | on channel 0           | on another             |
    | ------------------- | ---------------------- | ---------------------- |
    | method, 4 and more  | fine                   | fine                   |
    | header, 12 and more | 505                    | fine                   |
    | body                | 505                    | fine                   |
    | heartbeat, empty    | fine                   | 505                    |
    | all else            | 501 unknown_frame      | 501 unknown_frame      |
    """
    least = _LEAST.get(frame.type)
    if least is None or len(frame.payload) < least or (frame.type == HEARTBEAT and frame.payload):
        raise frame_error(frame.type, frame.payload, "unknown_frame")
    if (frame.channel == 0) != (frame.type == HEARTBEAT) and frame.type != METHOD:
        raise AmqpError(UNEXPECTED_FRAME, f"type {frame.type}, {snippet(frame.payload)}")


_LEAST = {METHOD: 4, HEADER: 12, BODY: 0, HEARTBEAT: 0}
"""Bytes of a payload."""


def snippet(payload: bytes) -> str:
    """The beginning of a payload, as Erlang prints it.

    >>> snippet(b"ab")
    'all octets = <<"ab">>'
    >>> snippet(bytes(20))
    'first 16 octets = <<0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0>>'
    """
    which = "all" if len(payload) <= _SNIPPET else f"first {_SNIPPET}"
    return f"{which} octets = {_erlang_binary(payload[:_SNIPPET])}"


def _erlang_binary(data: bytes) -> str:
    """~p of a binary: text when it can be printed, numbers otherwise."""
    if data and all(32 <= byte < 127 or byte in b"\n\t\r\v\b\f\x1b" or byte >= 160 for byte in data):
        text = data.decode("latin-1")
        for char, code in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
            text = text.replace(char, code)
        return f'<<"{text}">>'
    return f"<<{','.join(map(str, data))}>>"
