"""The codecs of warrenmq.Queue: items as the bytes that are stored, and back.  Pickle is none of them: reading one runs code."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

from warrenmq.checks import is_a, shown, text
from warrenmq.errors import ArgumentTypeError, ArgumentValueError


class Codec(NamedTuple):
    """One way to store items."""

    encoder: Callable[[Any], Any]
    decode: Callable[[bytes], Any]

    def encode(self, item: object) -> Any:
        """The item as bytes; ArgumentTypeError or ArgumentValueError if the codec cannot."""
        try:
            return self.encoder(item)
        except ArgumentTypeError:
            raise
        except Exception as why:  # of the encoder, or of the item's own methods
            msg = f"the item of type {type(item).__name__} cannot be encoded: {why}"
            raise (ArgumentTypeError(msg) if isinstance(why, TypeError) else ArgumentValueError(msg)) from why


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


_CODECS = {
    "bytes": Codec(_bytes, lambda body: body),
    "json": Codec(_json, json.loads),
    "msgpack": Codec(msgpack.packb, msgpack.unpackb),
}
