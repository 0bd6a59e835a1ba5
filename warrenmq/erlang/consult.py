"""Erlang terms written as text: `.config` of a virtual host, `clean.dot` of a message store.

The part of the grammar that file:consult and io:format("~w"), ("~p") agree on: integers, floats, atoms, strings (lists of
characters), binaries of bytes or of one string, as <<"o">> or <<"o"/utf8>>, tuples, lists and maps, `%` comments; each
term ends with a dot.

    {segment_entry_count, 2048}.
    {client_refs,[<<34,64,186,...>>]}.

Values are those of term.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from warrenmq.erlang.term import BadTerm
from warrenmq.erlang.values import Atom

MAX_DEPTH = 64

_TOKEN = re.compile(
    r"""(?:\s|%[^\n]*)*(?:
      (?P<float>[+-]?\d{1,300}\.\d{1,300}(?:[eE][+-]?\d{1,4})?)
    | (?P<based>\d{1,2}\#[0-9a-zA-Z]{1,1000})
    | (?P<integer>[+-]?\d{1,1000})
    | (?P<atom>[a-z][\w@]*)
    | '(?P<quoted>(?:[^'\\]|\\.)*)'
    | "(?P<string>(?:[^"\\]|\\.)*)"
    | (?P<utf8>/utf8)
    | (?P<mark><<|>>|=>|\#\{|[][{}(),|])
    | (?P<dot>\.(?=\s|%|\Z))
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x\{[0-9a-fA-F]{1,6}\}|x[0-9a-fA-F]{2}|[0-7]{1,3}|\^.|.)", re.DOTALL)
_NAMED = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "s": " ",
    "e": "\x1b",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "d": "\x7f",
}
_CLOSES = {"{": "}", "[": "]", "#{": "}"}


def consult(data: bytes, path: str = "a file of Erlang terms") -> list[Any]:
    """Parse all terms of a file; BadTerm if one is malformed."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # the encoding of Erlang before release 17
    tokens = _Tokens(text, path)
    found = []
    while tokens.kind != "end":
        found.append(_term(tokens, MAX_DEPTH))
        tokens.expect("dot", ".")
    return found


class _Tokens:
    """The token in front, and the way to the next."""

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self.at = 0
        self.kind = ""
        self.value = ""
        self.begin = 0
        self.next()

    def next(self) -> None:
        found = _TOKEN.match(self.text, self.at)
        if found is None or found.lastgroup is None:
            raise self.bad("this is no Erlang term")
        self.kind = found.lastgroup
        self.value = found[self.kind]
        self.begin = found.start(self.kind)
        self.at = found.end()

    def take(self) -> tuple[str, str]:
        taken = self.kind, self.value
        self.next()
        return taken

    def skip(self, mark: str) -> bool:
        if self.kind != "mark" or self.value != mark:
            return False
        self.next()
        return True

    def expect(self, kind: str, value: str) -> None:
        if (self.kind, self.value) != (kind, value):
            raise self.bad(f"{value!r} is missing")
        self.next()

    def bad(self, reason: str) -> BadTerm:
        return BadTerm(self.path, self.begin, reason)


def _term(tokens: _Tokens, depth: int) -> Any:
    if not depth:
        raise tokens.bad("terms are nested too deeply")
    kind, value = tokens.kind, tokens.value
    if kind == "mark":
        return _container(tokens, depth)
    if kind in {"dot", "end"}:
        raise tokens.bad("a term is missing")
    try:
        found = _simple(kind, value)
    except (ValueError, OverflowError):
        raise tokens.bad("this is no number, or a string with an invalid escape") from None
    tokens.next()
    return found


def _simple(kind: str, value: str) -> Any:
    if kind == "integer":
        return int(value)
    if kind == "based":
        base, _, digits = value.partition("#")
        return int(digits, int(base))
    if kind == "float":
        return float(value)
    if kind == "string":
        return [ord(each) for each in _unescaped(value)]
    return Atom(_unescaped(value) if kind == "quoted" else value)


def _container(tokens: _Tokens, depth: int) -> Any:
    mark = tokens.value
    if mark == "<<":
        return _binary(tokens)
    if mark not in _CLOSES:
        raise tokens.bad(f"{mark!r} begins no term")
    tokens.next()
    if mark == "#{":
        pairs = list(_items(tokens, depth, mark))
        try:
            return dict(pairs)
        except TypeError:
            raise tokens.bad("a map has a list or a map for a key") from None
    items = [item for item, _ in _items(tokens, depth, mark)]
    return tuple(items) if mark == "{" else items


def _items(tokens: _Tokens, depth: int, mark: str) -> Iterator[tuple[Any, Any]]:
    """(item, None), or (key, value) in a map, up to the mark that closes."""
    if tokens.skip(_CLOSES[mark]):
        return
    while True:
        item, value = _term(tokens, depth - 1), None
        if mark == "#{":
            tokens.expect("mark", "=>")
            value = _term(tokens, depth - 1)
        yield item, value
        if not tokens.skip(","):
            tokens.expect("mark", _CLOSES[mark])
            return


def _binary(tokens: _Tokens) -> bytes:
    tokens.next()
    parts: list[int] = []
    while not tokens.skip(">>"):
        kind, value = tokens.take()
        if kind not in {"integer", "string"}:
            raise tokens.bad("a binary is written as bytes or as a string")
        try:
            parts += [int(value)] if kind == "integer" else _bytes_of(tokens, _unescaped(value))
        except ValueError:
            raise tokens.bad("a string has an invalid escape") from None
        tokens.skip(",")
    try:
        return bytes(parts)
    except ValueError:
        raise tokens.bad("a byte of a binary is larger than 255") from None


def _bytes_of(tokens: _Tokens, text: str) -> list[int]:
    """A string in a binary: its characters are bytes, or text when /utf8 follows."""
    if tokens.kind == "utf8":
        tokens.next()
        return list(text.encode())
    return [ord(each) for each in text]


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        escape = found[1]
        if escape[0] == "x" and len(escape) > 1:
            return chr(int(escape[1:].strip("{}"), 16))
        if escape[0] in "01234567":
            return chr(int(escape, 8))
        if escape[0] == "^":
            return chr(ord(escape[1]) & 31)
        return _NAMED.get(escape, escape)

    return _ESCAPE.sub(character, text) if "\\" in text else text
