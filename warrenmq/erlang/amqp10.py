"""AMQP 1.0's types and sections, read from the bytes that RabbitMQ 4 stores of messages published with that protocol.

A value is (type, value), as RabbitMQ's own parser and its stored message annotations have it:

    ("utf8", bytes) ("symbol", bytes) ("binary", bytes) ("uuid", bytes) ("boolean", bool) ("null", None)
    ("ubyte" ... "long", int) ("timestamp", milliseconds) ("float" | "double", float)
    ("list", [value]) ("map", [(key, value)]) ("described", (descriptor, value))
    ("other", None)     arrays, characters and decimals, which AMQP 0-9-1 cannot say

Source: the AMQP 1.0 standard, part 1 (types) and part 3.2 (message format).
"""

from __future__ import annotations

from struct import Struct
from typing import Any

Value = tuple[str, Any]

MAX_DEPTH = 100
MAX_ELEMENTS = 100_000
"""The most elements of a section: an empty list or a null takes one byte of the message and a hundred of memory."""

SECTIONS = {
    0x70: "header", 0x71: "delivery_annotations", 0x72: "message_annotations", 0x73: "properties",
    0x74: "application_properties", 0x75: "data", 0x76: "amqp_sequence", 0x77: "amqp_value", 0x78: "footer",
}  # fmt: skip

_CONSTANT: dict[int, Value] = {
    0x40: ("null", None), 0x41: ("boolean", True), 0x42: ("boolean", False),
    0x43: ("uint", 0), 0x44: ("ulong", 0), 0x45: ("list", []),
}  # fmt: skip
_FIXED = {
    0x50: ("ubyte", "B"), 0x51: ("byte", "b"), 0x52: ("uint", "B"), 0x53: ("ulong", "B"), 0x54: ("int", "b"),
    0x55: ("long", "b"), 0x56: ("boolean", "?"), 0x60: ("ushort", "H"), 0x61: ("short", "h"), 0x70: ("uint", "I"),
    0x71: ("int", "i"), 0x72: ("float", "f"), 0x80: ("ulong", "Q"), 0x81: ("long", "q"), 0x82: ("double", "d"),
    0x83: ("timestamp", "q"), 0x98: ("uuid", "16s"), 0x73: ("other", "4s"), 0x74: ("other", "4s"),
    0x84: ("other", "8s"), 0x94: ("other", "16s"),
}  # fmt: skip
_LAYOUT = {code: (name, Struct(">" + layout)) for code, (name, layout) in _FIXED.items()}
_VARIABLE = {0xA0: "binary", 0xA1: "utf8", 0xA3: "symbol", 0xE0: "other"}
_COMPOUND = {0xC0: "list", 0xC1: "map"}
_WIDE = 0x10
"""A variable or compound code with this bit has a size of four bytes, else of one."""
_u8, _u32 = Struct(">B"), Struct(">I")


class BadAmqp(Exception):
    """Raised for bytes that are not valid AMQP 1.0."""


def sections(data: bytes) -> list[tuple[str, Value]]:
    """(name, contents) of each section."""
    found = []
    reader = _Reader(data)
    while reader.at < len(data):
        reader.elements = MAX_ELEMENTS
        kind, described = reader.value(MAX_DEPTH)
        if kind != "described" or described[0][1] not in SECTIONS:
            raise BadAmqp(f"there is no section at byte {reader.at}")
        found.append((SECTIONS[described[0][1]], described[1]))
    return found


class _Reader:
    __slots__ = ("at", "data", "elements")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.elements = 0

    def number(self, layout: Struct) -> Any:
        return layout.unpack(self.take(layout.size))[0]

    def take(self, size: int) -> bytes:
        at = self.at
        if at + size > len(self.data):
            raise BadAmqp(f"{size} bytes are claimed at byte {at}, {len(self.data) - at} follow")
        self.at = at + size
        return self.data[at : at + size]

    def value(self, depth: int) -> Value:
        self.elements -= 1
        if not depth or self.elements < 0:
            raise BadAmqp("values are nested too deeply, or too many")
        code = self.number(_u8)
        if code in _CONSTANT:
            return _CONSTANT[code]
        if code in _LAYOUT:
            name, layout = _LAYOUT[code]
            found = self.number(layout)
            return name, None if name == "other" else found
        if code == 0:
            return "described", (self.value(depth - 1), self.value(depth - 1))
        narrow = code & ~_WIDE
        width = _u32 if code & _WIDE else _u8
        if narrow in _VARIABLE:
            name, found = _VARIABLE[narrow], self.take(self.number(width))
            return name, None if name == "other" else found
        if narrow in _COMPOUND:
            return self.compound(_COMPOUND[narrow], width, depth)
        raise BadAmqp(f"{code} at byte {self.at - 1} is no type")

    def compound(self, name: str, width: Struct, depth: int) -> Value:
        end = self.number(width) + self.at
        count = self.number(width)
        if count > end - self.at or end > len(self.data):
            raise BadAmqp(f"{count} elements are claimed at byte {self.at}")
        values = [self.value(depth - 1) for _ in range(count)]
        if self.at != end or (name == "map" and count % 2):
            raise BadAmqp(f"a {name} does not end where it says, at byte {end}")
        return name, list(zip(values[::2], values[1::2], strict=True)) if name == "map" else values
