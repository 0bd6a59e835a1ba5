"""The class access (30) of AMQP 0-9-1's predecessors, which RabbitMQ still answers: any realm is granted, as ticket 1.

Clients of those days ask before they declare anything; pamqp has no such class.
"""

from __future__ import annotations

from typing import ClassVar

from pamqp.base import Frame


class AccessRequest(Frame):
    """access.request."""

    # in the order on the wire
    __slots__: ClassVar[list[str]] = ["realm", "exclusive", "passive", "active", "write", "read"]  # noqa: RUF023
    name: ClassVar[str] = "Access.Request"
    index: ClassVar[int] = 0x001E000A
    _realm = "shortstr"
    _exclusive = _passive = _active = _write = _read = "bit"


class AccessRequestOk(Frame):
    """access.request-ok."""

    __slots__: ClassVar[list[str]] = ["ticket"]
    name: ClassVar[str] = "Access.RequestOk"
    index: ClassVar[int] = 0x001E000B
    _ticket = "short"


TICKET = 1
"""The only one; the reserved first field of queue.declare and others has no other use."""
METHODS: dict[int, type[Frame]] = {kind.index: kind for kind in (AccessRequest, AccessRequestOk)}
