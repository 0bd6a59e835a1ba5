"""Arguments that arrive over AMQP: whatever a table holds, the method is answered or refused with a code, and no process dies."""

from __future__ import annotations

from struct import pack

import pytest
from pamqp import commands

from tests.amqp.channels import Client, method_of
from tests.support.simulated import SimulatedHost
from warrenmq.amqp.channel.context import hard_error
from warrenmq.runtime.life import inbox_of


def _nested(depth: int) -> bytes:
    value = b"V"
    for _ in range(depth):
        value = b"A" + pack(">I", len(value)) + value
    return value


VALUES = {
    "90 deep": _nested(90), "200 deep": _nested(200), "15000 deep": _nested(15_000), "nan": b"d" + pack(">d", float("nan")),
    "inf": b"d" + pack(">d", float("inf")), "float nan": b"f" + pack(">f", float("nan")), "void": b"V", "u64": b"L" + b"\xff" * 8,
    "a late time": b"T" + b"\xff" * 8, "decimal": b"D" + b"\xff" * 5, "bytes": b"x\0\0\0\3\xff\0\xfe", "no UTF-8": b"S\0\0\0\3\xff\0\xfe",
    "negative": b"b\x80", "true": b"t\x02", "an empty table": b"F\0\0\0\0",
}  # fmt: skip
NAMES = (b"x-odd", b"", b"\xff", b"n" * 255, b"x-max-length", b"x-expires", b"x-dead-letter-exchange", b"x-overflow", b"x-match",
         b"alternate-exchange", b"x-priority", b"x-queue-type", b"x-single-active-consumer")  # fmt: skip


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


METHODS = {
    "queue.declare": b"\0\x32\0\x0a\0\0" + _short(b"new") + b"\0",
    "exchange.declare": b"\0\x28\0\x0a\0\0" + _short(b"new") + _short(b"direct") + b"\0",
    "queue.bind": b"\0\x32\0\x14\0\0" + _short(b"q") + _short(b"headers") + _short(b"k") + b"\0",
    "queue.unbind": b"\0\x32\0\x32\0\0" + _short(b"q") + _short(b"headers") + _short(b"k"),
    "exchange.bind": b"\0\x28\0\x1e\0\0" + _short(b"amq.fanout") + _short(b"headers") + _short(b"k") + b"\0",
    "basic.consume": b"\0\x3c\0\x14\0\0" + _short(b"q") + _short(b"") + b"\0",
}
"""Each up to its table, which is its last argument."""


@pytest.mark.parametrize("method", METHODS)
def test_a_table_is_taken_or_refused(method: str) -> None:
    host = SimulatedHost(5, traced=False)
    broker = host.open()
    broker.declare_queue("q")
    broker.declare_exchange("headers", "headers")
    client = Client(broker)
    client.open(1)
    number = 1
    for value in VALUES.values():
        for name in NAMES:
            entry = _short(name) + value
            payload = METHODS[method] + pack(">I", len(entry)) + entry
            client.send(number, b"\x01" + pack(">HI", number, len(payload)) + payload + b"\xce")
            host.sim.event().wait(0.05)
            answers = client.received(number)
            refused = hard_error(inbox_of(client.refs[number]).reason) is not None
            closed = [each for each in answers if isinstance(method_of(each), commands.Channel.Close)]
            assert answers or refused, f"{method} with {name!r}: {value[:20]!r} has no answer"
            assert all(each.reply_code != 541 for each in closed)
            if closed or refused:
                number += 1
                client.open(number)
            else:
                answers.clear()
    assert not [actor for actor in broker.stats().actors if actor.restarts]
    assert broker.declare_queue("served").info().ready == 0
    host.sim.close()
