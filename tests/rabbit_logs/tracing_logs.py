"""A model of RabbitMQ's tracing plugin that writes logs as rabbit_tracing_consumer prints them."""

import base64
import json
from datetime import UTC, datetime

from warrenmq.rabbit_logs.record import Record

LINE = b"=" * 80


def time_text(t):
    whole, rest = divmod(t, 1_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:03d}+00:00"


def json_log(records):
    return b"".join(map(json_line, records))


def json_line(record):
    told = {
        "channel": record.channel, "connection": record.connection, "exchange": record.exchange, "node": record.node,
        "payload": base64.b64encode(record.payload).decode(), "properties": record.properties,
        "queue": "none" if record.published else record.queues[0],
        "routed_queues": list(record.queues) if record.published else "none", "routing_keys": list(record.routing_keys),
        "timestamp": time_text(record.t), "type": "published" if record.published else "received", "user": record.user,
        "vhost": record.vhost,
    }  # fmt: skip
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def text_log(records):
    return b"".join(map(text_record, records))


def text_record(record):
    kind = b"published" if record.published else b"received"
    parts = [
        b"\n" + LINE + b"\n" + time_text(record.t).encode() + b": Message " + kind + b"\n",
        b"Node:         " + record.node.encode(),
        b"Connection:   " + record.connection.encode(),
        b"Virtual host: " + record.vhost.encode(),
        b"User:         " + record.user.encode(),
        b"Channel:      " + str(record.channel).encode(),
        b"Exchange:     " + record.exchange.encode(),
        b"Routing keys: " + names(record.routing_keys),
    ]
    if record.published:
        parts.append(b"Routed queues: " + names(record.queues))
    else:
        parts.append(b"Queue:        " + record.queues[0].encode())
    parts += [b"Properties:   " + table(record.properties), b"Payload: ", record.payload]
    return b"\n".join(parts) + b"\n"


def names(found):
    return b"[" + b",\n                 ".join(map(binary, found)) + b"]"


def binary(text):
    """Format a binary as ~tp does: as a string if every byte is printable Latin-1, else as numbers."""
    data = text.encode()
    if all(32 <= byte < 127 or byte >= 160 or byte in b"\n\t\r" for byte in data) and data:
        escaped = data.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        for raw, shown in ((b"\n", b"\\n"), (b"\t", b"\\t"), (b"\r", b"\\r")):
            escaped = escaped.replace(raw, shown)
        return b'<<"' + escaped + b'">>'
    return b"<<" + b",".join(str(byte).encode() for byte in data) + b">>"


def table(properties):
    entries = (b"{" + binary(name) + b"," + typed(value) + b"}" for name, value in properties.items())
    return b"[" + b",\n               ".join(entries) + b"]"


def typed(value):
    match value:
        case bool():
            return b"bool," + str(value).lower().encode()
        case int():
            return b"signedint," + str(value).encode()
        case str():
            return b"longstr," + binary(value)
        case dict():
            return b"table," + table(value)
        case list():
            return b"array,[" + b",".join(b"{" + typed(each) + b"}" for each in value) + b"]"
    raise AssertionError(value)


def published(
    t, *queues, body=b"x", channel=1, exchange="events", key="k", connection="publisher", **properties
):
    return Record(
        t, True, "rabbit@host", connection, "/", "guest", channel, exchange, (key,), queues, properties, body
    )


def received(t, queue, body=b"x", channel=1, exchange="events", key="k", connection="consumer", **properties):
    return Record(
        t,
        False,
        "rabbit@host",
        connection,
        "/",
        "guest",
        channel,
        exchange,
        (key,),
        (queue,),
        properties,
        body,
    )
