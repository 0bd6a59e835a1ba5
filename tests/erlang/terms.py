"""Erlang terms as bytes, in the tags that RabbitMQ 3.10 uses (and the newer ones on demand)."""

import struct
import zlib

from warrenmq.erlang.values import Atom, BitString, ImproperList, Opaque


def encode(term, *, utf8_atoms=False):
    """131 and the term; atoms in Latin-1 up to OTP 25, in UTF-8 since."""
    return b"\x83" + inner(term, utf8_atoms=utf8_atoms)


def compressed(term):
    plain = inner(term)
    return b"\x83\x50" + struct.pack(">I", len(plain)) + zlib.compress(plain)


def inner(term, *, utf8_atoms=False):
    def walk(term):
        match term:
            case Atom():
                return _atom(term, utf8_atoms=utf8_atoms)
            case bool():
                return _atom(Atom(str(term).lower()), utf8_atoms=utf8_atoms)
            case int():
                return _integer(term)
            case float():
                return b"F" + struct.pack(">d", term)
            case bytes():
                return b"m" + struct.pack(">I", len(term)) + term
            case BitString():
                return b"M" + struct.pack(">IB", len(term.data), term.bits) + term.data
            case Opaque():
                return term.encoded
            case tuple():
                head = (
                    struct.pack(">BB", 0x68, len(term))
                    if len(term) < 256
                    else struct.pack(">BI", 0x69, len(term))
                )
                return head + b"".join(map(walk, term))
            case ImproperList():
                return struct.pack(">BI", 0x6C, len(term.items)) + b"".join(
                    map(walk, [*term.items, term.tail])
                )
            case []:
                return b"j"
            case list() if len(term) < 65536 and all(type(each) is int and 0 <= each < 256 for each in term):
                return b"k" + struct.pack(">H", len(term)) + bytes(term)
            case list():
                return struct.pack(">BI", 0x6C, len(term)) + b"".join(map(walk, term)) + b"j"
            case dict():
                pairs = (walk(each) for pair in term.items() for each in pair)
                return struct.pack(">BI", 0x74, len(term)) + b"".join(pairs)
        raise TypeError(term)

    return walk(term)


def _atom(name, *, utf8_atoms):
    if utf8_atoms:
        text = name.encode()
        return (
            struct.pack(">BB", 0x77, len(text)) if len(text) < 256 else struct.pack(">BH", 0x76, len(text))
        ) + text
    text = name.encode("latin-1")
    return b"d" + struct.pack(">H", len(text)) + text


def _integer(number):
    if 0 <= number < 256:
        return struct.pack(">BB", 0x61, number)
    if -(2**31) <= number < 2**31:
        return struct.pack(">Bi", 0x62, number)
    size = (abs(number).bit_length() + 7) // 8
    head = struct.pack(">BB", 0x6E, size) if size < 256 else struct.pack(">BI", 0x6F, size)
    return head + bytes([number < 0]) + abs(number).to_bytes(size, "little")


def basic_message(exchange, routing_keys, properties, body, *, msg_id=bytes(16), persistent=True, vhost="/"):
    """The record of 3.10; `properties` are bytes, or a P_basic record; a body given as a list is its fragments."""
    record, encoded = (
        (properties, Atom("none")) if isinstance(properties, tuple) else (Atom("none"), properties)
    )
    fragments = list(reversed(body)) if isinstance(body, list) else [body] if body else []
    content = (Atom("content"), 60, record, encoded, Atom("rabbit_framing_amqp_0_9_1"), fragments)
    name = (Atom("resource"), vhost.encode(), Atom("exchange"), exchange.encode())
    return (Atom("basic_message"), name, [key.encode() for key in routing_keys], content, msg_id, persistent)
