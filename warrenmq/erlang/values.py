"""Erlang's values that Python has no type for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Atom(str):
    """An atom: equal to the string, but told from it by its class."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Atom({str(self)!r})"


@dataclass(frozen=True, slots=True)
class Opaque:
    """A term that means something only to the node that wrote it."""

    kind: str
    """pid, port, reference, fun, or key."""
    encoded: bytes


@dataclass(frozen=True, slots=True)
class BitString:
    """Bytes of whose last one only the first `bits` bits count."""

    data: bytes
    bits: int


@dataclass(frozen=True, slots=True)
class ImproperList:
    """[a, b | c]."""

    items: list[Any]
    tail: Any


def shown(term: Any) -> str:
    """A term for a message: at most 40 characters; what can be nested deeper than printing goes is only named."""
    return type(term).__name__ if isinstance(term, (tuple, list, dict, ImproperList)) else str(term)[:40]
