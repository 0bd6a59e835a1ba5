"""The messages and the SENDs that a row of any event covers."""

from __future__ import annotations

from warrenmq.trace.events import processes, queues, stores, system  # noqa: F401 - EVENTS is to be complete
from warrenmq.trace.schema import CONSUMER, EVENTS, Row
from warrenmq.trace.words import Ev

COVERS_SEQ_IDS = frozenset(
    number for number, event in EVENTS.items() if event.has("first_seq_id") and number != Ev.SEND
)
"""Events of messages with consecutive sequence ids of the queue that writes the row."""
OF_CONSUMERS = frozenset(
    number
    for number, event in EVENTS.items()
    if any((each.place, each.type) == ("peer", CONSUMER) for each in event.columns)
)
"""Events whose `peer` is a consumer's number, not an actor's."""


# Column groups that several events share, for readers of rows of any event.

_SPAN = {number: EVENTS[number].getter("first_seq_id", "count") for number in COVERS_SEQ_IDS}
_MESSAGES = {
    number: event.getter("message", "count")
    for number, event in EVENTS.items()
    if event.has("message") and event.has("count")
}
_RECEIPT = {
    int(Ev.RECV): processes.Recv.getter("sender", "send"),
    int(Ev.ACK): queues.Ack.getter("acker", "send"),
    int(Ev.UNDELIVERED): processes.Undelivered.getter("sender", "send"),
}
_receipt_of_several = queues.Publish.getter("publisher", "send", "sends")
_NOTHING = range(0)


def seq_ids_of(row: Row) -> range:
    """The sequence ids of the messages that a row of a queue covers."""
    get = _SPAN.get(row.event)
    if get is None:
        return _NOTHING
    first, count = get(row)
    return range(first, first + count)


def message_ids_of(row: Row) -> range:
    """The message ids that a row names; of an event of a later version, the first."""
    get = _MESSAGES.get(row.event)
    first, count = (row.msg, 1) if get is None else get(row)
    return range(first, first + max(count, 1)) if first else _NOTHING


def sends_of(row: Row) -> tuple[int, range]:
    """The SENDs that a row is the receive of: (sender, their numbers)."""
    event, sends = row.event, 1
    if event == Ev.PUBLISH:
        sender, send, sends = _receipt_of_several(row)
    elif event in _RECEIPT:
        sender, send = _RECEIPT[event](row)
    else:
        return 0, _NOTHING
    return sender or row.actor, range(send, send + max(sends, 1)) if send > 0 else _NOTHING
