"""The plugin's text format, as rabbit_tracing_consumer:log(text, ...) prints it.

    (empty line)
    ================================================================================
    2022-11-21T16:26:44.949+00:00: Message published
    (empty line)
    Node:         rabbit@localhost
    Connection:   127.0.0.1:40264 -> 127.0.0.1:5672           these four not in the first versions
    Virtual host: /
    User:         guest
    Channel:      1
    Exchange:     events
    Routing keys: [<<"order.new">>]                           a term: may go on in lines that begin with a space
    Queue:        orders                                      of a received message
    Routed queues: [<<"orders">>]                             of a published one, not in the first versions
    Properties:   [{<<"message_id">>,longstr,<<"m-0">>}]      a term
    Payload:
    the body as it is, then a line feed

No record says how long its body is: it ends where the next record begins, and a body can contain that, too:

    | in a body, or after it                                             | is                                    |
    | ------------------------------------------------------------------ | ------------------------------------- |
    | the line of equals signs without a time and a node behind it       | text of the body                      |
    | what begins a record, more than CLOCK_STEP before the record       | text of the body: a log that was      |
    | around it                                                          | itself sent as a message              |
    | what begins a record, and is not a whole one                       | damage: the end of the body           |
    | a whole record                                                     | the next record                       |

So a body that is a copy of a young record cannot be told from a record; the JSON format has no such limits.
Versions since the end of 2022 print bodies as text (~ts): letters up to U+00FF take one byte whatever they
took in the message, and records with other letters never reach the file, nor do the up to 99 that would have
been written with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from warrenmq.rabbit_logs.record import MAX_CHANNEL, RECEIVED, TIME_PATTERN, BadRecord, Record, moment
from warrenmq.rabbit_logs.terms import names_of, properties_of

CLOCK_STEP = 60_000_000
"""Microseconds that the clock of a node may be set back within a log."""
LONGEST_HEAD = 16 << 20
"""Bytes of a record without its body."""
_LONGEST_BEGIN = 256
_LINE = rb"\n={80}\n"
BEGIN = re.compile(_LINE + rb"(" + TIME_PATTERN + rb"): Message (published|received)\n\nNode: {9}")
_TERM = rb"([^\n]*(?:\n [^\n]*)*)"
_HEAD = re.compile(
    BEGIN.pattern
    + rb"([^\n]*)\n"
    + rb"(?:Connection: {3}([^\n]*)\n)?(?:Virtual host: ([^\n]*)\n)?(?:User: {9}([^\n]*)\n)?(?:Channel: {6}([^\n]*)\n)?"
    + rb"Exchange: {5}([^\n]*)\nRouting keys: " + _TERM
    + rb"\n(?:Queue: {8}([^\n]*)\n)?(?:Routed queues: " + _TERM + rb"\n)?Properties: {3}" + _TERM + rb"\nPayload: \n"
)  # fmt: skip


@dataclass(slots=True)
class TextLog:
    """Counts of damage in a log."""

    damaged: int = 0
    """Beginnings of records that do not go on as records do, and an end in the middle of one."""
    in_bodies: int = 0
    """Whole records that were taken for text of a body."""
    skipped: int = 0
    """Bytes ahead of the first record."""

    def records(self, chunks: Iterable[bytes]) -> Iterator[Record]:
        """The records of a log that comes in pieces; one record at a time is in memory."""
        text = _Text(chunks)
        open_record: Record | None = None
        began = False
        at = body = 0
        while (found := text.search(at)) is not None:
            t, head = self._beginning(text, found)
            if open_record is not None and t is not None and t < open_record.t - CLOCK_STEP:
                self.in_bodies += 1
                at = found + 1
                continue
            if open_record is not None:
                yield open_record._replace(payload=self._body(text, body, found))
            elif not began:
                self.skipped = max(found - 1, 0)
            began = True
            if head is None:
                self.damaged += 1
                open_record, at = None, 1
                text.forget(found)
                continue
            open_record = head[0]
            body = at = head[1] - found
            # the line feed that ends the head may begin the line of equals signs: an empty body, torn
            at -= 1
            text.forget(found)
        if open_record is not None:
            yield open_record._replace(payload=self._body(text, body, len(text.data)))
        elif not began:
            self.skipped = len(text.data) - 1

    def _beginning(self, text: _Text, at: int) -> tuple[int | None, tuple[Record, int] | None]:
        """(time, (record without its body, where that begins)) of what begins here; None = it is not whole."""
        text.have_head(at)
        begin = BEGIN.match(text.data, at)
        assert begin is not None
        try:
            t = moment(begin[1].decode())
        except BadRecord:
            return None, None
        head = _HEAD.match(text.data, at)
        if head is None:
            return t, None
        try:
            return t, (_record(head, t), head.end())
        except BadRecord:
            return t, None

    def _body(self, text: _Text, begin: int, end: int) -> bytes:
        """The body without the line feed that the plugin adds."""
        found = bytes(text.data[begin:end])
        if found.endswith(b"\n"):
            return found[:-1]
        self.damaged += 1
        return found


class _Text:
    """A file's bytes from the open record on."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self.data = bytearray(b"\n")  # so that a log whose first line feed was lost begins with a record

    def _more(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self.data += chunk
        return True

    def search(self, at: int) -> int | None:
        """The offset of the next record at or after `at`."""
        while True:
            found = BEGIN.search(self.data, at)
            if found is not None:
                return found.start()
            at = max(at, len(self.data) - _LONGEST_BEGIN)
            if not self._more():
                return None

    def have_head(self, at: int) -> None:
        """Read on until the record that begins here has a body, or the next record begins."""
        searched = at + 1
        while True:
            if self.data.find(b"\nPayload: \n", searched) >= 0 or BEGIN.search(self.data, searched):
                return
            searched = max(searched, len(self.data) - _LONGEST_BEGIN)
            if len(self.data) - at > LONGEST_HEAD or not self._more():
                return

    def forget(self, before: int) -> None:
        del self.data[:before]


def _record(head: re.Match[bytes], t: int) -> Record:
    _, kind, node, connection, vhost, user, channel, exchange, keys, queue, routed, properties = head.groups()
    received = kind.decode() == RECEIVED
    if received and queue is None:
        raise BadRecord("received from no queue")
    return Record(
        t,
        not received,
        _name(node),
        _name(connection or b""),
        _name(vhost or b""),
        _name(user or b""),
        _channel(channel or b""),
        _name(exchange),
        names_of(keys),
        (_name(queue),) if received else names_of(routed or b"[]"),
        properties_of(properties),
        b"",
    )


def _channel(data: bytes) -> int:
    found = int(data) if data.isdigit() and len(data) <= 5 else 0
    return found if found <= MAX_CHANNEL else 0


def _name(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")  # as ~ts prints it
