"""Directories as RabbitMQ would have written them, made by hand: what the golden ones lack."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

VHOST, QUEUE = "/", "orders"
V = "628WB79CIFDYO9LJI6DKMI09L"


class Made(NamedTuple):
    """A message as it was stored."""

    msg_id: bytes
    body: bytes
    term: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    @property
    def record(self) -> bytes:
        """In a message store's file."""
        return record(self.msg_id, self.term)


def make(number: int, size: int = 300, *, fill: bytes = b"", mc: bool = False) -> Made:
    msg_id = hashlib.md5(b"id %d" % number).digest()
    body = fill * size if fill else (b"body %d " % number * size)[:size]
    return Made(msg_id, body, mc_term(msg_id, body) if mc else term(msg_id, body))


# -- Erlang terms


def atom(name: str) -> bytes:
    return b"d" + len(name).to_bytes(2, "big") + name.encode()


def binary(data: bytes) -> bytes:
    return b"m" + len(data).to_bytes(4, "big") + data


def tuple_of(*terms: bytes) -> bytes:
    return b"h" + bytes([len(terms)]) + b"".join(terms)


def list_of(*terms: bytes) -> bytes:
    return b"l" + len(terms).to_bytes(4, "big") + b"".join(terms) + b"j" if terms else b"j"


def term(msg_id: bytes, body: bytes) -> bytes:
    """#basic_message{} of 3.5 to 3.12."""
    exchange = tuple_of(atom("resource"), binary(b"/"), atom("exchange"), binary(b""))
    properties = b"\x10\x00\x02"  # delivery_mode 2
    content = tuple_of(
        atom("content"),
        b"a\x3c",
        atom("none"),
        binary(properties),
        atom("rabbit_framing_amqp_0_9_1"),
        list_of(binary(body)),
    )
    keys = list_of(binary(QUEUE.encode()))
    return b"\x83" + tuple_of(atom("basic_message"), exchange, keys, content, binary(msg_id), atom("true"))


def mc_term(msg_id: bytes, body: bytes) -> bytes:
    """Begins like a message container of 3.13; what a scan looks at is only that."""
    return b"\x83" + tuple_of(atom("mc"), atom("mc_amqpl"), binary(body), binary(msg_id))


# -- files


def record(msg_id: bytes, stored: bytes) -> bytes:
    return (16 + len(stored)).to_bytes(8, "big") + msg_id + stored + b"\xff"


def facts(made: Made, *, embedded: bool) -> bytes:
    """The facts about a message in journal and segment files, behind the prefix."""
    inside = made.term if embedded else b""
    return (
        made.msg_id
        + bytes(8)  # it never expires
        + len(made.body).to_bytes(4, "big")
        + len(inside).to_bytes(4, "big")
        + inside
    )


def journal_publish(
    seq_id: int, made: Made, *, embedded: bool = False, persistent: bool = True, deliver: bool = True
) -> bytes:
    mark = (2 << 62 | seq_id).to_bytes(8, "big") if deliver else b""
    return (
        (seq_id | (0 if persistent else 1 << 62)).to_bytes(8, "big") + facts(made, embedded=embedded) + mark
    )


def journal_ack(seq_id: int) -> bytes:
    return (3 << 62 | seq_id).to_bytes(8, "big")


def segment_publish(relative: int, made: Made, *, embedded: bool = False, deliver: bool = True) -> bytes:
    mark = (0x4000 | relative).to_bytes(2, "big")
    return (
        (0xC000 | relative).to_bytes(2, "big") + facts(made, embedded=embedded) + (mark if deliver else b"")
    )


def qi_file(entries: dict[int, bytes], count: int, *, first: int = 0, end: int = 4096) -> bytes:
    header = b"RCQI\x02" + first.to_bytes(8, "big") + end.to_bytes(8, "big") + bytes(43)
    return header + b"".join(entries.get(n, bytes(32)) for n in range(count))


def qi_entry(made: Made, offset: int | None, stored_size: int = 0, *, persistent: bool = True) -> bytes:
    """In the message store, or in the .qs file at `offset`."""
    place = (
        made.msg_id
        if offset is None
        else offset.to_bytes(8, "big") + stored_size.to_bytes(4, "big") + bytes(4)
    )
    return (
        bytes([1, persistent, 0, 1 if offset is None else 2])
        + place
        + len(made.body).to_bytes(4, "big")
        + bytes(8)
    )


def qs_file(messages: list[Made], padding: int = 0) -> tuple[bytes, list[int]]:
    """The file, and where each message's entry begins; `padding` as 3.12 and later leave it."""
    data = b"RCQS\x02" + bytes(8) + (4096).to_bytes(8, "big") + bytes(43)
    offsets = []
    for made in messages:
        offsets.append(len(data))
        size = len(made.term) + padding
        data += size.to_bytes(4, "big") + b"\x01" + (crc32(made.term) & 0xFFFF).to_bytes(2, "big") + b"\0"
        data += made.term + bytes(padding)
    return data, offsets


# -- folders


DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def base36(digest: bytes) -> str:
    """RabbitMQ's names of folders, computed once more: tests do not ask the code that they test."""
    number, text = int.from_bytes(digest, "big"), ""
    while number:
        number, digit = divmod(number, 36)
        text = DIGITS[digit] + text
    return text or "0"


def queue_folder(vhost: str = VHOST, queue: str = QUEUE) -> str:
    return base36(hashlib.md5(f"queue{vhost}{queue}".encode()).digest())


class Node:
    """A node's data directory with one vhost and one queue."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.vhost = root / "msg_stores" / "vhosts" / V
        self.queue = self.vhost / "queues" / queue_folder()
        self.store = self.vhost / "msg_store_persistent"
        self.transient = self.vhost / "msg_store_transient"
        for folder in (self.queue, self.store, self.transient):
            folder.mkdir(parents=True)
        (self.vhost / ".vhost").write_text(VHOST)
        (self.vhost / ".config").write_text("%% comment\n{segment_entry_count, 2048}.\n")
        (self.queue / ".queue_name").write_text(f"VHOST: {VHOST}\nQUEUE: {QUEUE}\n")

    def in_journal(self, messages: list[Made], *, embedded: bool = False) -> None:
        """Publish them, sequence ids from 0."""
        data = b"".join(journal_publish(n, made, embedded=embedded) for n, made in enumerate(messages))
        (self.queue / "journal.jif").write_bytes(data)

    def write(self, name: str, *parts: bytes) -> None:
        """A file of the persistent store."""
        (self.store / name).write_bytes(b"".join(parts))
