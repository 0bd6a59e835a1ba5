"""Message containers, RabbitMQ's stored messages from 3.13 on (deps/rabbit/src/mc*.erl).

    {mc, Protocol, Data, #{Annotation => Value}}

    mc_amqpl    AMQP 0-9-1    a content record, as before
    mc_amqp     AMQP 1.0      {v1, MessageAnnotations, Bytes, PropertiesPos, ApplicationPropertiesPos, BodyPos, BodyCode}
    mc_mqtt     MQTT          {mqtt_msg, Retain, Qos, Topic, Dup, PacketId, Payload, #{Property => Value}, ...}

Each becomes what a consumer of AMQP 0-9-1 is given, as RabbitMQ converts it; a body of AMQP 1.0 that is not plain
data stays encoded, with property type `amqp-1.0`.  Annotations are applied as by mc_amqpl:protocol_state, but headers
stay in the publisher's order (RabbitMQ sorts them and drops all but one of a name).

    x | exchange    rk | routing_keys    id    d | durable (absent: true)    p | priority    ttl    ts | timestamp (ms)
    deaths          as header x-death
    <<"x-...">>     as headers
"""

from __future__ import annotations

from typing import Any, Literal

from warrenmq.erlang import amqp10
from warrenmq.erlang.amqp10_properties import SHORT, legacy_properties
from warrenmq.erlang.amqp_table import text
from warrenmq.erlang.amqp_table_terms import table_of_term
from warrenmq.erlang.message_parts import NotAMessage, RabbitMessage, content, name, routing_keys
from warrenmq.erlang.values import Atom, shown

_PERSISTENT = 2
_AMQP10 = "amqp-1.0"
_Parts = tuple[dict[str, Any], Literal["record"] | None, list[bytes]]
"""Properties, how they were stored, fragments of the body last one first."""


def container(protocol: Any, stored: Any, annotations: dict[Any, Any]) -> RabbitMessage:
    """The message, or NotAMessage or BadTable."""
    read = _PROTOCOLS.get(protocol) if isinstance(protocol, Atom) else None
    if read is None:
        raise NotAMessage(f"its protocol {shown(protocol)!r} is unknown")
    properties, how, fragments = read(stored)
    exchange = _get(annotations, "x", "exchange")
    msg_id = _get(annotations, "id")
    durable = _get(annotations, "d", "durable") != "false"
    return RabbitMessage(
        exchange=name(exchange) if isinstance(exchange, bytes) else "",
        routing_keys=routing_keys(_get(annotations, "rk", "routing_keys") or []),
        properties=_annotated(properties, annotations, durable=durable),
        body=b"".join(reversed(fragments)),
        fragments=len(fragments),
        persistent=durable,
        msg_id=msg_id if isinstance(msg_id, bytes) else None,
        stored_properties=how,
    )


def _get(annotations: dict[Any, Any], *keys: str) -> Any:
    """The annotation under its short name or the long one of 3.13's first releases."""
    return next((annotations[key] for key in keys if key in annotations), None)


def _annotated(properties: dict[str, Any], annotations: dict[Any, Any], *, durable: bool) -> dict[str, Any]:
    found = dict(properties)
    if headers := _headers(found.get("headers") or [], annotations):
        found["headers"] = headers
    if "ttl" in annotations:
        found.pop("expiration", None)  # dead lettering sets it to undefined
        if isinstance(annotations["ttl"], int):
            found["expiration"] = str(annotations["ttl"])
    if isinstance(timestamp := _get(annotations, "ts", "timestamp"), int):
        found["timestamp"] = timestamp // 1000
    if isinstance(priority := _get(annotations, "p", "priority"), int):
        found.setdefault("priority", priority)
    if durable:
        found.setdefault("delivery_mode", _PERSISTENT)
    return found


def _headers(headers: list[Any], annotations: dict[Any, Any]) -> list[Any]:
    """The publisher's headers with those that the broker added, or put in the place of."""
    added = {}
    for key, value in annotations.items():
        if isinstance(key, bytes) and (key.startswith(b"x-") or key == b"timestamp_in_ms"):
            if isinstance(value, int):
                added[name(key)] = ["l", value]
            elif isinstance(value, bytes):
                added[name(key)] = ["S", text(value)]
            elif value == "true" or value == "false":  # noqa: PLR1714 - it may be a list, which is in no set
                added[name(key)] = ["t", value == "true"]
    if (deaths := annotations.get("deaths")) is not None:
        added["x-death"] = ["A", [["F", _death(*each)] for each in _deaths(deaths)]]
    kept = [each for each in headers if not (isinstance(each[0], str) and each[0] in added)]
    return kept + [[key, *value] for key, value in added.items()]


def _deaths(deaths: Any) -> list[tuple[Any, Any]]:
    """[({Queue, Reason}, Death)], the latest first: a list since 4.0, a map by that key before."""
    match deaths:
        case ("deaths", _, _, dict() as records):
            found = sorted(records.items(), key=_last_time, reverse=True)
        case list():
            found = deaths
        case _:
            raise NotAMessage("its deaths are neither a list nor a record")
    for each in found:
        match each:
            case ((bytes(), str() | bytes()), ("death", bytes(), list(), int(), dict())):
                continue
        raise NotAMessage("one of its deaths is not a death record")
    return found


def _last_time(entry: tuple[Any, Any]) -> int:
    match entry[1]:
        case ("death", _, _, _, {"last_time": int() as time}):
            return time
    return 0


def _death(key: tuple[Any, Any], death: tuple[Any, ...]) -> list[Any]:
    """An entry of header x-death."""
    queue, reason = key
    _, exchange, keys, count, about = death
    first, ttl = about.get("first_time"), about.get("ttl")
    entry: list[Any] = (
        [(b"original-expiration", Atom("longstr"), str(ttl).encode())] if isinstance(ttl, int) else []
    )
    entry += [
        (b"count", Atom("long"), count),
        (b"reason", Atom("longstr"), reason.encode() if isinstance(reason, str) else reason),
        (b"queue", Atom("longstr"), queue),
        (b"time", Atom("timestamp"), first // 1000 if isinstance(first, int) else 0),
        (b"exchange", Atom("longstr"), exchange),
        (b"routing-keys", Atom("array"), [(Atom("longstr"), each) for each in keys]),
    ]
    return table_of_term(entry)


def _amqp(stored: Any) -> _Parts:
    """AMQP 1.0: the header is gone, the rest is the publisher's bytes."""
    match stored:
        case ("v1", list() as annotations, bytes() as bare, _, _, int() as body_at, int() as code):
            pass
        case _:
            shape = stored[0] if isinstance(stored, tuple) and stored else stored
            msg = f"its AMQP 1.0 sections are kept as {shown(shape)!r}, of which only v1 is known"
            raise NotAMessage(msg)
    if not 0 <= body_at <= len(bare):
        raise NotAMessage("its body begins behind its end")
    try:
        head = dict(amqp10.sections(bare[:body_at]))
        plain = amqp10.SECTIONS.get(code) == "data"
        body = amqp10.sections(bare[body_at:]) if plain else []
        properties = legacy_properties(
            [_annotation(each) for each in annotations],
            head.get("properties"),
            head.get("application_properties"),
        )
    except (amqp10.BadAmqp, TypeError, ValueError, AttributeError) as why:
        raise NotAMessage(f"its AMQP 1.0 sections make no sense ({why})") from None
    if not plain:
        properties["type"] = _AMQP10
        return properties, None, [bare[body_at:]]
    return properties, None, [value for kind, (_, value) in reversed(body) if kind == "data"]


def _annotation(pair: Any) -> tuple[amqp10.Value, amqp10.Value]:
    match pair:
        case ((str() as kind, key), value):
            return (str(kind), key), _tagged(value)
    raise NotAMessage("its message annotations are not pairs")


def _tagged(value: Any) -> amqp10.Value:
    """A value as Erlang keeps it, as amqp10 gives it."""
    match value:
        case ("list", list() as inside):
            return "list", [_tagged(each) for each in inside]
        case ("map", list() as inside):
            return "map", [(_tagged(key), _tagged(each)) for key, each in inside]
        case ("boolean", "true" | "false" as inside):
            return "boolean", inside == "true"
        case ("array", *_):
            return "other", None
        case (str() as kind, bytes() | int() | float() as inside):
            return str(kind), inside
        case "true" | "false":
            return "boolean", value == "true"
        case "null" | "undefined":
            return "null", None
    raise NotAMessage("one of its message annotations is no AMQP value")


def _mqtt(stored: Any) -> _Parts:
    match stored:
        case ("mqtt_msg", _, int() as qos, _, _, _, payload, dict() as given, *_):
            pass
        case _:
            raise NotAMessage("its MQTT message is not such a record")
    properties: dict[str, Any] = {"delivery_mode": _PERSISTENT if qos else 1}
    headers = [(key, value) for key, value in _pairs(given.get("User-Property")) if len(key) <= SHORT]
    if isinstance(topic := given.get("Response-Topic"), bytes):
        headers.append((b"x-reply-to-topic", topic.translate(_AMQP_TOPIC)))
    if isinstance(kind := given.get("Content-Type"), bytes) and len(kind) <= SHORT and kind.isascii():
        properties["content_type"] = text(kind)
    if isinstance(correlation := given.get("Correlation-Data"), bytes):
        if len(correlation) <= SHORT and isinstance(readable := text(correlation), str):
            properties["correlation_id"] = readable
        else:
            headers.append((b"x-correlation-id", correlation))
    if isinstance(seconds := given.get("Message-Expiry-Interval"), int):
        properties["expiration"] = str(1000 * seconds)
    if headers:
        properties["headers"] = [[text(key), "S", text(value)] for key, value in headers]
    return properties, None, _payload(payload)


_AMQP_TOPIC = bytes.maketrans(b"/+", b".*")
"""MQTT's separators and wild cards as AMQP's (rabbit_mqtt_util:mqtt_to_amqp)."""


def _pairs(found: Any) -> list[tuple[bytes, bytes]]:
    pairs = found if isinstance(found, list) else []
    return [
        each for each in pairs if isinstance(each, tuple) and [type(one) for one in each] == [bytes, bytes]
    ]


def _payload(found: Any) -> list[bytes]:
    """Last part first; a message converted from another protocol has a list of parts."""
    if isinstance(found, bytes):
        return [found] if found else []
    if isinstance(found, list) and all(isinstance(each, bytes) for each in found):
        return list(reversed(found))
    raise NotAMessage("its MQTT payload is not bytes")


_PROTOCOLS = {"mc_amqpl": content, "mc_amqp": _amqp, "mc_mqtt": _mqtt}
