"""The codecs of warrenmq.Queue: items as the bytes that are stored, and back.  Pickle is none of them:
reading one runs code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

from warrenmq.checks import is_a, shown, text
from warrenmq.errors import ArgumentTypeError, ArgumentValueError


class Codec(NamedTuple):
    """One way to store items."""

    name: str
    encoder: Callable[[Any], Any]
    decoder: Callable[[bytes], Any]

    def encode(self, item: object) -> Any:
        """The item as bytes; ArgumentTypeError or ArgumentValueError if the codec cannot."""
        try:
            return self.encoder(item)
        except ArgumentTypeError:
            raise
        except Exception as why:  # of the encoder, or of the item's own methods
            msg = f"the item of type {type(item).__name__} cannot be encoded: {why}"
            raise (ArgumentTypeError(msg) if isinstance(why, TypeError) else ArgumentValueError(msg)) from why

    def decode(self, body: bytes) -> Any:
        """The item of these bytes; ArgumentValueError if another codec, or another program, has written them."""
        try:
            return self.decoder(body)
        except Exception as why:
            reason = str(why) or type(why).__name__  # msgpack's errors have no words
            raise ArgumentValueError(f"the item of {len(body):,} bytes is not {self.name}: {reason}") from why


def codec_of(name: str) -> Codec:
    """The codec of this name; ArgumentValueError if there is none."""
    if (known := _CODECS.get(text("codec", name))) is None:
        raise ArgumentValueError(f"there is no codec {shown(name)}; use {', '.join(_CODECS)}")
    return known


def _bytes(item: object) -> object:
    """The item itself, whose bytes are checked and copied where it is published."""
    if not is_a(item, (bytes, bytearray, memoryview)):
        msg = (
            f'this queue holds bytes, not {type(item).__name__}; open it with codec="json" or codec="msgpack"'
        )
        raise ArgumentTypeError(msg)
    return item


def _json(item: object) -> bytes:
    return json.dumps(item, separators=(",", ":")).encode()


def _msgpack(item: object) -> Any:
    body = msgpack.packb(item)
    # what could not be got is not put: a tuple as a key would come back as a list, which is none
    _from_msgpack(body)
    return body


def _from_msgpack(body: bytes) -> Any:
    return msgpack.unpackb(body, strict_map_key=False)


_CODECS = {
    each.name: each
    for each in (
        Codec("bytes", _bytes, lambda body: body),
        Codec("json", _json, json.loads),
        Codec("msgpack", _msgpack, _from_msgpack),
    )
}
