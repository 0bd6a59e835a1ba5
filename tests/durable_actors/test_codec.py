"""Messages and states of durable actors come back as they were, or are refused."""

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.durable_actors.codec import Codec, read
from warrenmq.errors import ArgumentTypeError, ArgumentValueError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


@dataclass
class Everything:
    number: int
    text: str
    maybe: Point | None
    points: list[Point]
    named: dict[str, Point]
    pair: tuple[int, str]
    many: tuple[int, ...]
    colours: set[Colour]
    at: datetime
    day: date
    price: Decimal
    id: UUID
    either: int | str
    anything: Any
    truth: bool
    defaulted: list[int] = field(default_factory=list)


POINTS = st.builds(Point, st.integers(-100, 100), st.floats(allow_nan=False, allow_infinity=False))
EVERYTHING = st.builds(
    Everything, st.integers(-(1 << 63), (1 << 63) - 1), st.text(), st.none() | POINTS, st.lists(POINTS, max_size=3),
    st.dictionaries(st.text(max_size=5), POINTS, max_size=3), st.tuples(st.integers(0, 9), st.text(max_size=3)),
    st.lists(st.integers(0, 9), max_size=3).map(tuple), st.sets(st.sampled_from(Colour)),
    st.datetimes(timezones=st.just(UTC)), st.dates(), st.decimals(allow_nan=False, allow_infinity=False), st.uuids(),
    st.integers(0, 9) | st.text(max_size=3), st.none() | st.integers(0, 9) | st.lists(st.text(max_size=2), max_size=2),
    st.booleans(), st.lists(st.integers(0, 9), max_size=2),
)  # fmt: skip
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("name", ["msgpack", "json"])
@given(message=EVERYTHING)
def test_a_dataclass_comes_back_equal(name, message):
    codec = Codec(name, [Everything])
    data, kind = codec.encode(message)
    assert kind == "Everything"
    assert codec.decode(data, kind) == message


@given(value=PLAIN)
def test_plain_data_comes_back_equal_and_may_be_a_state(value):
    codec = Codec("msgpack")
    data, kind = codec.encode(value)
    assert kind is None
    assert codec.decode(data, None) == value
    assert codec.decode(codec.state_bytes(value, Any), None) == value


@given(data=st.binary(max_size=50))
def test_bytes_of_a_stranger_are_a_message_or_refused(data):
    for name in ("msgpack", "json"):
        codec = Codec(name, [Point])
        for kind in (None, "Point"):
            try:
                found = codec.decode(data, kind)
            except ArgumentValueError:
                continue
            assert kind is None or isinstance(found, Point)


@pytest.mark.parametrize(
    "fields", [{}, {"x": "1"}, {"x": 1, "z": 2}, {"x": 1, "y": "far"}, {"x": True}, [1, 2], None]
)
def test_fields_that_do_not_fit_are_refused(fields):
    codec = Codec("msgpack", [Point])
    data, _ = codec.encode(fields)
    with pytest.raises(ArgumentValueError):
        codec.decode(data, "Point")


def test_a_class_that_is_not_listed_is_neither_written_nor_made():
    with pytest.raises(ArgumentTypeError, match="not among the messages"):
        Codec("msgpack").encode(Point(1))
    data, kind = Codec("msgpack", [Point]).encode(Point(1))
    with pytest.raises(ArgumentValueError, match="there is no message 'Point'"):
        Codec("msgpack").decode(data, kind)


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), b"bytes", 1j, lambda: None])
def test_what_json_cannot_hold_is_refused(value):
    with pytest.raises(ArgumentTypeError):
        Codec("json").encode(value)


@pytest.mark.parametrize("state", [Point(1), (1, 2), {"a": {1}}, {"at": datetime.now(UTC)}, [Colour.RED]])
def test_a_state_that_would_come_back_as_something_else_needs_a_type(state):
    with pytest.raises(ArgumentTypeError, match="state_type"):
        Codec("msgpack").state_bytes(state, Any)


@dataclass
class Created:
    id: int


@dataclass
class Moved:
    id: int
    to: str


@dataclass
class Deleted:
    id: int


@dataclass
class Unions:
    event: Created | Moved | Deleted | None = None
    events: list[Created | Moved | Deleted] = field(default_factory=list)
    named: dict[str, tuple[int, Created | Deleted]] | None = None
    price: Decimal | str | None = None
    moment: datetime | date | None = None
    day: date | datetime | None = None
    number: float | None = None
    numbers: list[int] | None = None


UNION_CODEC = Codec("msgpack", [Unions])


@pytest.mark.parametrize(
    "message",
    [
        Unions(),
        Unions(event=Moved(1, "there")),
        Unions(events=[Created(1), Moved(2, "there")]),
        Unions(named={"a": (1, Created(1))}),
        Unions(price=Decimal(5)),
        Unions(price="five"),
        Unions(moment=datetime(2026, 1, 2, tzinfo=UTC)),
        Unions(day=date(2026, 1, 2)),
        Unions(day=datetime(2026, 1, 2, tzinfo=UTC)),
        Unions(number=5),
        Unions(numbers=[1]),
    ],
)
def test_a_union_whose_types_can_be_told_apart_comes_back(message):
    assert UNION_CODEC.decode(*UNION_CODEC.encode(message)) == message
    UNION_CODEC.state_bytes(message, Unions)


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (Unions(event=Deleted(1)), "event"),
        (Unions(events=[Created(1), Deleted(2)]), "events"),
        (Unions(named={"a": (1, Deleted(1))}), "named"),
        (Unions(price="5"), "price"),
        (Unions(moment=date(2026, 1, 2)), "moment"),
    ],
)
def test_a_value_that_another_type_of_its_union_would_take_is_refused(message, place):
    for write in (UNION_CODEC.encode, lambda state: UNION_CODEC.state_bytes(state, Unions)):
        with pytest.raises(ArgumentTypeError, match=f"in Unions.{place} would come back as"):
            write(message)


class Planet(Enum):
    EARTH = (5.97e24, 6.37e6)
    MARS = (6.42e23, 3.39e6)


class Rate(Enum):
    LOW = Decimal("1.5")


@dataclass
class Typed:
    number: int = 0
    text: str = ""
    day: date = date(2026, 1, 2)
    planets: list[Planet] = field(default_factory=list)
    rate: Rate | None = None
    point: Point | None = None
    whatever: list = field(default_factory=list)
    counts: Counter = field(default_factory=dict)


TYPED_CODEC = Codec("msgpack", [Typed])


def test_an_enum_whose_values_are_no_plain_data_comes_back():
    message = Typed(planets=[Planet.MARS, Planet.EARTH], rate=Rate.LOW)
    assert TYPED_CODEC.decode(*TYPED_CODEC.encode(message)) == message
    TYPED_CODEC.state_bytes(message, Typed)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Typed(number=0.5), "Typed.number: 0.5 is not int"),
        (Typed(number=True), "Typed.number: True is not int"),
        (Typed(text=None), "Typed.text: None is not str"),
        (Typed(day=datetime(2026, 1, 2, 3, tzinfo=UTC)), "Typed.day"),
        (Typed(planets=["EARTH"]), "Typed.planets"),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_refused_where_it_is_written(value, why):
    """A message could not be decoded, and a state would keep its actor from starting ever again."""
    for write in (TYPED_CODEC.encode, lambda state: TYPED_CODEC.state_bytes(state, Typed)):
        with pytest.raises(ArgumentTypeError, match=why):
            write(value)


@pytest.mark.parametrize(
    "state", [Typed(whatever=[Point(1)]), Typed(whatever=[Colour.RED]), Typed(counts=Counter("a"))]
)
def test_an_object_in_a_state_that_would_come_back_as_another_is_refused(state):
    with pytest.raises(ArgumentTypeError, match=r"in Typed\.\w+ would come back as a"):
        TYPED_CODEC.state_bytes(state, Typed)


@dataclass
class Derived:
    number: int
    double: int = field(init=False)
    cache: int = field(default=0, init=False, compare=False)
    count: int = field(default=0, init=False)

    def __post_init__(self):
        self.double = 2 * self.number


def test_a_field_of_a_state_that_would_be_lost_is_refused():
    state = Derived(5)
    state.cache = 1
    assert read(Derived, msgpack.unpackb(Codec("msgpack").state_bytes(state, Derived))) == state
    state.count = 1
    with pytest.raises(ArgumentTypeError, match=r"Derived\.count is not written"):
        Codec("msgpack").state_bytes(state, Derived)


class OutOfRange(Exception):
    pass


@dataclass
class Strict:
    number: int = 1
    names: set = field(default_factory=set)
    inner: list["Strict"] = field(default_factory=list)

    def __post_init__(self):
        if self.number < 0:
            raise OutOfRange("it is negative")


@pytest.mark.parametrize("fields", [{"number": -1}, {"names": [[1]]}, {"inner": [{"number": -1}]}])
def test_a_message_that_its_class_does_not_take_is_refused(fields):
    codec = Codec("msgpack", [Strict])
    data, _ = codec.encode(fields)
    with pytest.raises(ArgumentValueError, match="is not"):
        codec.decode(data, "Strict")


def test_wrong_lists_of_messages_are_refused():
    other = dataclasses.make_dataclass("Point", ["a"])
    with pytest.raises(ArgumentValueError, match="rename one"):
        Codec("msgpack", [Point, other])
    with pytest.raises(ArgumentTypeError, match="dataclass"):
        Codec("msgpack", [int])
    with pytest.raises(ArgumentValueError, match="codec"):
        Codec("pickle")


def test_each_refusal_says_what_is_wrong():
    with pytest.raises(ArgumentTypeError, match=r"^int is not a dataclass"):
        Codec("json", [int])
    with pytest.raises(
        ArgumentTypeError, match="JSON has text as keys, not int; make it text, or take the codec msgpack"
    ):
        Codec("json").encode({1: 2})
    with pytest.raises(
        ArgumentTypeError, match=r"^object cannot be written: there is no way to write object; use plain"
    ):
        Codec("msgpack").encode(object())
    # msgpack's error has no text
    with pytest.raises(ArgumentValueError, match=r"is not application/msgpack: [A-Z]"):
        Codec("msgpack").decode(b"\xc1", None)
