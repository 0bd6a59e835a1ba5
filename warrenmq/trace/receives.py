"""Rows that are the receive of a SEND, which was written before them."""

from __future__ import annotations

from collections.abc import Mapping

from warrenmq.trace.block import ROW
from warrenmq.trace.events import Ev, Publish
from warrenmq.trace.schema import Shared, T, also_called

RECEIVES = frozenset({Ev.RECV, Ev.PUBLISH, Ev.ACK, Ev.UNDELIVERED})


class Receive(Shared[T], of=RECEIVES):
    """A row that names the SEND which it is the receive of; 0 = the sender has no trace."""

    sender: T = also_called("publisher", "acker")
    send: T


_named = Receive.getter("sender", "send")
_sends_of = Publish.getter("sends")
_PUBLISH = int(Ev.PUBLISH)


def last_sends_named(rows: Mapping[int, bytes]) -> dict[int, int]:
    """Each sender, with the last of its SENDs that these rows name, which are as they stand in slabs, by actor."""
    found: dict[int, int] = {}
    for actor, raw in rows.items():
        for row in ROW.iter_unpack(raw):
            event = row[-1] >> 8 & 0xFF
            if event not in RECEIVES:
                continue
            sender, send = _named(row)
            if send <= 0:
                continue
            if event == _PUBLISH:
                send += max(_sends_of(row)[0], 1) - 1
            sender = sender or actor
            if send > found.get(sender, 0):
                found[sender] = send
    return found
