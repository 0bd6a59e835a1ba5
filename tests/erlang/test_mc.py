"""Message containers of 3.13 and 4.x: what a consumer of AMQP 0-9-1 would be given of each protocol's messages."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.erlang.terms import basic_message, encode
from warrenmq.erlang import rabbit_message
from warrenmq.erlang.term import BadTerm
from warrenmq.erlang.values import Atom, ImproperList, Opaque

PROPERTIES = b"\x90\x00\x04text\x02"  # content type and delivery mode
NO_PROPERTIES = b"\0\0"


def content(properties, *fragments):
    return basic_message("", [], properties, list(fragments))[3]


def mc(protocol, stored, **annotations):
    found = {Atom(key): value for key, value in annotations.items() if not key.startswith("x_")}
    found |= {
        key.replace("_", "-").encode(): value for key, value in annotations.items() if key.startswith("x_")
    }
    return rabbit_message.decode(encode((Atom("mc"), Atom(protocol), stored, found), utf8_atoms=True))


def header(message, name):
    return next((value for key, *value in message.properties["headers"] if key == name), None)


def amqp(bare, *, body_at=0, code=0x75, annotations=(), **rest):
    pairs = [((Atom("symbol"), key), value) for key, value in annotations]
    return mc("mc_amqp", (Atom("v1"), pairs, bare, [], [], body_at, code), **rest)


def described(code, value):
    return b"\x00\x53" + bytes([code]) + value


def small(code, data):
    return bytes([code, len(data)]) + data


def compound(code, *values):
    data = b"".join(values)
    return bytes([code, len(data) + 1, len(values)]) + data


DATA = described(0x75, small(0xA0, b"hello"))


def test_amqp_0_9_1_is_a_content_record_with_annotations():
    found = mc(
        "mc_amqpl", content(PROPERTIES, b"two ", b"parts"), x=b"ex", rk=[b"a", b"b"], id=b"i" * 16, p=7
    )
    assert found == rabbit_message.RabbitMessage(
        exchange="ex",
        routing_keys=["a", "b"],
        properties={"content_type": "text", "delivery_mode": 2, "priority": 7},
        body=b"two parts",
        fragments=2,
        persistent=True,
        msg_id=b"i" * 16,
        stored_properties=None,
    )


def test_annotations_may_have_their_first_long_names():
    found = mc(
        "mc_amqpl", content(NO_PROPERTIES), exchange=b"ex", routing_keys=[b"a"], durable=False, timestamp=5999
    )
    assert (found.exchange, found.routing_keys, found.persistent) == ("ex", ["a"], False)
    assert found.properties == {"timestamp": 5}


def test_an_annotated_ttl_replaces_the_expiration_and_dead_lettering_takes_it_away():
    expires = b"\x01\x00\x0260"
    assert mc("mc_amqpl", content(expires), ttl=70, d=False).properties == {"expiration": "70"}
    assert mc("mc_amqpl", content(expires), ttl=Atom("undefined"), d=False).properties == {}
    assert mc("mc_amqpl", content(expires), d=False).properties == {"expiration": "60"}


def test_annotations_named_x_are_headers():
    own = b"\x20\x00" + struct.pack(">I", 12) + b"\3x-bt\1" + b"\3own" + b"t\0"
    found = mc("mc_amqpl", content(own), x_a=5, x_b=b"text", x_c=True, d=False)
    assert found.properties["headers"] == [
        ["own", "t", False],
        ["x-a", "l", 5],
        ["x-b", "S", "text"],
        ["x-c", "t", True],
    ]


DEATH = (
    Atom("death"),
    b"ex",
    [b"key"],
    3,
    {Atom("first_time"): 5000, Atom("last_time"): 9000, Atom("ttl"): 60},
)
LATER = (Atom("death"), b"", [], 1, {Atom("first_time"): 8000, Atom("last_time"): 10000})
EXPIRED, REJECTED = (b"q", Atom("expired")), (b"r", Atom("rejected"))


@pytest.mark.parametrize(
    "deaths",
    [
        [(REJECTED, LATER), (EXPIRED, DEATH)],
        (Atom("deaths"), EXPIRED, REJECTED, {EXPIRED: DEATH, REJECTED: LATER}),
    ],
    ids=["4.x", "3.13"],
)
def test_deaths_are_the_header_x_death_latest_first(deaths):
    found = mc("mc_amqpl", content(NO_PROPERTIES), deaths=deaths)
    latest, first = header(found, "x-death")[1]
    assert first == ["F", [
        ["original-expiration", "S", "60"], ["count", "l", 3], ["reason", "S", "expired"], ["queue", "S", "q"],
        ["time", "T", 5], ["exchange", "S", "ex"], ["routing-keys", "A", [["S", "key"]]],
    ]]  # fmt: skip
    assert latest[1][:3] == [["count", "l", 1], ["reason", "S", "rejected"], ["queue", "S", "r"]]


def test_plain_data_of_amqp_1_0_is_the_body():
    assert amqp(DATA + DATA).body == b"hellohello"
    assert amqp(DATA + described(0x78, compound(0xC1))).body == b"hello"  # a footer follows
    assert amqp(DATA, d=False).properties == {}
    assert amqp(DATA, p=4, ttl=60, ts=7000).properties == {
        "expiration": "60", "timestamp": 7, "priority": 4, "delivery_mode": 2,
    }  # fmt: skip


def test_other_bodies_of_amqp_1_0_stay_encoded():
    value = described(0x77, small(0xA1, b"text"))
    found = amqp(value, code=0x77)
    assert found.body == value
    assert found.properties["type"] == "amqp-1.0"


def test_amqp_1_0_s_properties_are_0_9_1_s():
    uuid = bytes(range(16))
    properties = described(0x73, compound(
        0xC0, b"\x98" + uuid, small(0xA0, b"user"), small(0xA1, b"to"), b"\x40", small(0xA1, b"reply"),
        small(0xA0, b"\xff"), small(0xA3, b"text/plain"), small(0xA3, b"gzip"), b"\x40",
        b"\x83" + struct.pack(">q", 5999), small(0xA1, b"group"),
    ))  # fmt: skip
    application = described(0x74, compound(
        0xC1, small(0xA1, b"int"), b"\x54\xff", small(0xA1, b"yes"), b"\x41", small(0xA1, b"none"), b"\x40",
        small(0xA1, b"text"), small(0xA1, b"v"), small(0xA1, b"char"), b"\x73\0\0\0a", small(0xA1, b"nan"),
        b"\x72" + struct.pack(">f", float("nan")),
    ))  # fmt: skip
    head = properties + application
    assert amqp(head + DATA, body_at=len(head), d=False).properties == {
        "message_id": "urn:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f",
        "user_id": "user",
        "reply_to": "reply",
        "content_type": "text/plain",
        "content_encoding": "gzip",
        "timestamp": 5,
        "app_id": "group",
        "headers": [
            ["x-correlation-id", "x", {"b64": "/w=="}],
            ["int", "I", -1],
            ["yes", "t", True],
            ["none", "V", None],
            ["text", "S", "v"],
            ["nan", "f", {"b64": "f8AAAA=="}],
        ],
    }


def test_message_annotations_are_headers_and_basic_properties():
    utf8, ubyte = Atom("utf8"), Atom("ubyte")
    found = amqp(
        DATA,
        annotations=[
            (b"x-basic-type", (utf8, b"kind")),
            (b"x-basic-priority", (ubyte, 3)),
            (b"x-cc", (Atom("list"), [(utf8, b"other")])),
            (b"x-opt-rabbitmq-received-time", (Atom("timestamp"), 7)),
            (b"x-mine", (Atom("map"), [((Atom("symbol"), b"k"), Atom("true"))])),
            (b"x-exchange", (utf8, b"left out")),
            (b"not-x", (utf8, b"left out")),
        ],
        d=False,
    )
    assert found.properties == {
        "type": "kind",
        "priority": 3,
        "headers": [
            ["CC", "A", [["S", "other"]]],
            ["timestamp_in_ms", "l", 7],
            ["x-mine", "F", [["k", "t", True]]],
        ],
    }


def test_an_mqtt_message_has_its_user_properties_as_headers():
    given = {
        Atom("User-Property"): [(b"a", b"1"), (b"a", b"2")],
        Atom("Response-Topic"): b"to/+/me",
        Atom("Content-Type"): b"text",
        Atom("Correlation-Data"): b"\xff",
        Atom("Message-Expiry-Interval"): 3,
    }
    undefined = Atom("undefined")
    stored = (Atom("mqtt_msg"), False, 1, b"t", False, undefined, b"body", given, undefined)
    found = mc("mc_mqtt", stored, x=b"amq.topic", rk=[b"t"])
    assert found.body == b"body"
    assert found.properties == {
        "delivery_mode": 2,
        "content_type": "text",
        "expiration": "3000",
        "headers": [
            ["a", "S", "1"],
            ["a", "S", "2"],
            ["x-reply-to-topic", "S", "to.*.me"],
            ["x-correlation-id", "S", {"b64": "/w=="}],
        ],
    }
    assert mc("mc_mqtt", (*stored[:6], [b"bo", b"dy"], {}), d=False).body == b"body"


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        ((Atom("mc"), Atom("mc_stomp"), (), {}), "its protocol 'mc_stomp' is unknown"),
        ((Atom("mc"), Atom("mc_amqp"), (Atom("msg"),), {}), "its AMQP 1.0 sections are kept as 'msg', of which only v1"),
        ((Atom("mc"), Atom("mc_amqp"), (Atom("v1"), [], b"x", [], [], 0, 0x75), {}), "its AMQP 1.0 sections make no"),
        ((Atom("mc"), Atom("mc_mqtt"), 5, {}), "its MQTT message is not such a record"),
        ((Atom("mc"), Atom("mc_amqpl"), 5, {}), "its content is not a content record"),
        ((Atom("basic_message"), 5, [], content(b"\0\0"), b"", True), "its exchange is not a resource"),
        (basic_message("", [], b"\x80", b""), "a message's properties cannot be read"),
        (basic_message("", [], Atom("none"), b""), "it has no properties"),
        ((Atom("other"),), "it is an Erlang term, but no message of RabbitMQ"),
        (5, "it is an Erlang term, but no message of RabbitMQ"),
    ],
)  # fmt: skip
def test_an_invalid_message_says_why(term, reason):
    with pytest.raises(BadTerm, match=reason):
        rabbit_message.decode(encode(term), path="0.rdq", offset=24)


NAMES = [
    "mc", "mc_amqpl", "mc_amqp", "mc_mqtt", "v1", "content", "P_basic", "basic_message", "mqtt_msg", "deaths", "death",
    "x", "rk", "d", "id", "ttl", "utf8", "symbol", "list", "map", "longstr", "table", "true", "undefined", "resource",
]  # fmt: skip
LEAVES = (
    st.sampled_from(NAMES).map(Atom)
    | st.sampled_from([0, 60, 0x75, 0x77, 1])
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary(max_size=20)
    | st.sampled_from(
        [DATA, NO_PROPERTIES, b"x-cc", b"x-basic-type", Opaque("pid", b"g" + b"w\0" + bytes(9))]
    )
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=7).map(tuple)
        | st.lists(inner, max_size=4)
        | st.dictionaries(LEAVES, inner, max_size=3)
        | st.builds(ImproperList, st.lists(inner, min_size=1, max_size=2), LEAVES)
    ),
    max_leaves=15,
)
CONTENT = st.tuples(
    st.just(Atom("content")),
    st.just(60),
    ANYTHING,
    ANYTHING | st.binary(max_size=30),
    ANYTHING,
    st.lists(st.binary()),
)
V1 = st.tuples(
    st.just(Atom("v1")),
    st.lists(st.tuples(st.tuples(LEAVES, LEAVES), ANYTHING), max_size=3),
    st.builds(lambda head, tail: head + tail, st.sampled_from([b"", DATA]), st.binary(max_size=30)),
    ANYTHING,
    ANYTHING,
    st.sampled_from([0, len(DATA)]),
    st.sampled_from([0x75, 0x77]),
)
MQTT = st.tuples(st.just(Atom("mqtt_msg")), ANYTHING, st.just(1), *[ANYTHING] * 3, st.binary(), ANYTHING)
MESSAGES = ANYTHING | st.tuples(
    st.just(Atom("mc")),
    st.sampled_from(["mc_amqpl", "mc_amqp", "mc_mqtt"]).map(Atom),
    ANYTHING | CONTENT | V1 | MQTT,
    st.dictionaries(LEAVES | st.sampled_from(["x", "rk", "deaths", "ts"]).map(Atom), ANYTHING, max_size=5),
)


@given(MESSAGES)
def test_any_term_is_a_message_or_a_bad_term(term):
    try:
        found = rabbit_message.decode(encode(term))
    except BadTerm:
        return
    assert isinstance(found.body, bytes)


@given(st.sampled_from([b"", b"\0\x53\x73", b"\0\x53\x74", b"\0\x53\x77"]), st.binary(max_size=60))
def test_any_bytes_of_amqp_1_0_are_a_message_or_a_bad_term(head, tail):
    for body_at in (0, len(head + tail)):
        try:
            amqp(head + tail, body_at=body_at)
        except BadTerm as bad:
            assert "AMQP 1.0" in bad.reason  # noqa: PT017 - most are none
