"""SASL: decoding the responses of the two mechanisms (rabbit_auth_mechanism_plain, _amqplain).

| mechanism | the response                                                                  |
| --------- | ----------------------------------------------------------------------------- |
| PLAIN     | NUL name NUL password (RFC 4616, without the authorization identity)          |
| AMQPLAIN  | a field table without its size: LOGIN and PASSWORD, both long strings         |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from warrenmq.amqp.wire.codec import decode_table
from warrenmq.amqp.wire.errors import ACCESS_REFUSED, COMMAND_INVALID, SYNTAX_ERROR, AmqpError
from warrenmq.erlang.amqp_table import BadTable

START_OK = (10, 11)
EXTERNAL = "EXTERNAL"
"""The mechanism of clients whom something else has let in already: here, the permissions of the data directory."""


class Credentials(NamedTuple):
    """A name and a password."""

    name: bytes
    password: bytes


def credentials(mechanism: str, response: bytes) -> Credentials:
    """Decode a SASL response.  Raises AmqpError for an unknown mechanism or a malformed response."""
    if (read := _MECHANISMS.get(mechanism)) is None:
        raise AmqpError(COMMAND_INVALID, f"unknown authentication mechanism '{mechanism}'", *START_OK)
    return read(response)


def _plain(response: bytes) -> Credentials:
    parts = response.split(b"\0")
    if len(parts) != 3 or parts[0]:
        raise AmqpError(SYNTAX_ERROR, "response invalid", *START_OK)  # RabbitMQ repeats it, password and all
    return Credentials(parts[1], parts[2])


def _amqplain(response: bytes) -> Credentials:
    try:
        table = decode_table(response)
    except (BadTable, ValueError) as why:
        raise AmqpError(SYNTAX_ERROR, "AMQPLAIN auth info is no table", *START_OK) from why
    if "LOGIN" not in table or "PASSWORD" not in table:
        raise AmqpError(SYNTAX_ERROR, "AMQPLAIN auth info is missing LOGIN or PASSWORD field", *START_OK)
    if not all(isinstance(table[name], str | bytes) for name in ("LOGIN", "PASSWORD")):
        said = "AMQPLAIN auth info uses unsupported type for LOGIN or PASSWORD field"
        raise AmqpError(SYNTAX_ERROR, said, *START_OK)
    return Credentials(_bytes(table["LOGIN"]), _bytes(table["PASSWORD"]))


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


_MECHANISMS: dict[str, Callable[[bytes], Credentials]] = {"PLAIN": _plain, "AMQPLAIN": _amqplain}
MECHANISMS = " ".join(_MECHANISMS)
"""The mechanisms that connection.start offers."""


def refused(mechanism: str) -> AmqpError:
    """The error of a refused login: it does not say whether name, password or origin was wrong."""
    why = f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
    return AmqpError(ACCESS_REFUSED, why)
