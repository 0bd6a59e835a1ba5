"""Declares events: a class for each, whose annotated attributes are the columns that its rows use.

    class FileSync(Event[T], event=Ev.FILE_SYNC, says="{actor} synced file {file} up to byte {synced_to} ({size})"):
        trigger: T = in_flag(Trigger, "why")
        file: T = in_a(FILE, "the current file")
        ...

From such a class come

    FileSync.of(row).synced_to             a row, or rows as columns (anything that nine columns are indexed from), by name
    FileSync.getter("file", "synced_to")   the same for loops that read many rows
    FileSync.column("synced_to")           where it stands, what it is: for SQL, DataFrames, labels, the page of events
    FileSync.says                          the row as a sentence (sentences.py)
    writer(FileSync)                       the function that writes such a row (writers.py)

Code that treats several events alike reads the columns that they have in common:

    class Moved(Shared[T], of=(Ev.PUBLISH, Ev.DELIVER, Ev.ACK)):
        first_seq_id: T
        count: T

A row is nine 64-bit integers on disk.  Only this package reads them by their letters or places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from operator import itemgetter
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, dataclass_transform

from warrenmq.errors import CallerError

COLUMNS = ("t", "seq", "msg", "peer", "pseq", "a", "b", "c", "who")
"""The nine integers of a row, in the order in which they are stored."""
STORED = COLUMNS[2:-1]
"""The stored columns whose meaning depends on the event."""
FLAG = "flag"
"""The lowest eight bits of `who`; the event is above them, the actor above that."""

_WHO = COLUMNS.index("who")
_EVENT_SHIFT, _ACTOR_SHIFT, _BYTE, _WORD = 8, 16, 0xFF, 0xFFFF

T = TypeVar("T", covariant=True)  # noqa: PLC0105 - it stands in each line of events/
V = TypeVar("V")


class Row(NamedTuple):
    """One row as it is stored; `event_of(row)` gives its columns their names."""

    t: int
    """Hybrid logical clock, ns."""
    seq: int
    """The actor's own number of this row, from 1."""
    msg: int
    """A message, or the first of several; 0 = none."""
    peer: int
    """Another actor's trace id, or a consumer's number; 0 = none."""
    pseq: int
    a: int
    b: int
    c: int
    who: int

    @property
    def actor(self) -> int:
        """The trace id of the actor that wrote it."""
        return self.who >> _ACTOR_SHIFT

    @property
    def event(self) -> int:
        """The number of its event (Ev)."""
        return self.who >> _EVENT_SHIFT & _BYTE

    @property
    def flag(self) -> int:
        return self.who & _BYTE


class Nine(Protocol[T]):
    """A row, or rows as columns: anything with the nine columns at the indexes 0 to 8."""

    def __getitem__(self, index: int, /) -> T: ...


class Kind(NamedTuple):
    """The kind of a number, which decides how it is shown."""

    name: str
    text: str
    absent: int | None = 0
    """The value that means "not said"; None = every value means something."""


MESSAGE = Kind("message", "the low 64 bits of a message id, read as signed")
ACTOR = Kind("actor", "an actor's trace id")
CONSUMER = Kind("consumer", "a consumer's number, unique in a run")
ROW = Kind("row", "`seq` of another actor's row")
MESSAGE_KIND = Kind("message kind", "the class of a message between actors, numbered in the header")
SEQ_ID = Kind("sequence id", "a message's place in its queue; from bit 48 on its priority", absent=None)
LOWEST = Kind("sequence id", "the lowest of several; 0 = it is 0, or not said")
COUNT = Kind("count", "how many", absent=None)
SOME = Kind("count", "how many; 0 = none, or not said")
SIZE = Kind("bytes", "a number of bytes", absent=None)
SOME_BYTES = Kind("bytes", "a number of bytes; 0 = not said")
OFFSET = Kind("offset", "a place in a file, in bytes", absent=None)
FILE = Kind("file", "the number of a file of the message store", absent=None)
SEGMENT = Kind("segment", "the number of a segment file of a queue index", absent=None)
TAG = Kind("delivery tag", "a delivery tag of AMQP")
MILLISECONDS = Kind("ms", "milliseconds", absent=None)
WALL_CLOCK = Kind("wall clock", "microseconds since 1970")
TEXT = Kind("text", "a name or a text, numbered in the header")
YES_NO = Kind("yes or no", "1 = yes", absent=None)
CHECKSUM = Kind("checksum", "a checksum of messages: 0 where one of them has none")
LIMIT = Kind("limit", "the most there may be; -1 = no limit", absent=-1)

Type = Kind | type[IntEnum] | type[IntFlag]


@dataclass(frozen=True, slots=True)
class When:
    """A condition: the column means something only if another column of the row has one of these values."""

    column: str
    values: tuple[int, ...]


class Column:
    """One named value of an event: where it is stored, and its type."""

    __slots__ = ("default", "index", "mask", "name", "place", "shift", "text", "type", "when")

    def __init__(
        self,
        place: str,
        type_: Type,
        text: str,
        *,
        default: int | None = None,
        shift: int = 0,
        bits: int = 0,
        when: When | None = None,
    ) -> None:
        self.name = ""
        """The attribute; set by the class that it is declared in."""
        self.place = place
        """The stored column, by its letter, or FLAG."""
        self.type = type_
        self.text = text
        self.default = default
        """The value if the writer is not given one; None = it must be given."""
        self.when = when
        self.index = _WHO if place == FLAG else COLUMNS.index(place)
        self.shift = shift
        """The lowest of its bits; the bits below hold another value."""
        self.mask = (1 << bits) - 1 if bits else _BYTE if place == FLAG else -1
        """The bits it takes, above `shift`; -1 = all of the column."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, view: Any, owner: type | None = None) -> Any:
        if view is None:
            return self
        value = view.row[self.index]
        return value if self.mask == -1 else value >> self.shift & self.mask

    @property
    def is_whole(self) -> bool:
        """True if no other value shares the stored column."""
        return self.mask == -1 or (self.place == FLAG and self.mask == _BYTE)

    def expression(self, stored: str) -> str:
        """An expression of Python, SQL or numpy that gives the value from its stored column."""
        if self.mask == -1:
            return stored
        shifted = f"({stored} >> {self.shift})" if self.shift else stored
        return f"{shifted} & {self.mask}"


# Functions with which the classes of events/ declare their columns; `more` is for Column.


def in_flag(type_: Type, text: str, **more: Any) -> Any:
    """A value in the flag of a row, or in some bits of it."""
    return Column(FLAG, type_, text, **more)


def in_msg(text: str, **more: Any) -> Any:
    """A message id."""
    return Column("msg", MESSAGE, text, **more)


def in_peer(type_: Type, text: str, **more: Any) -> Any:
    """Another actor, or a consumer."""
    return Column("peer", type_, text, **more)


def in_pseq(type_: Type, text: str, **more: Any) -> Any:
    """The `seq` of the SEND row that this row is the receive of; events that receive nothing may use it for anything else."""
    return Column("pseq", type_, text, **more)


def in_a(type_: Type, text: str, **more: Any) -> Any:
    """A value in column a."""
    return Column("a", type_, text, **more)


def in_b(type_: Type, text: str, **more: Any) -> Any:
    """A value in column b."""
    return Column("b", type_, text, **more)


def in_c(type_: Type, text: str, **more: Any) -> Any:
    """A value in column c, or in some bits of it."""
    return Column("c", type_, text, **more)


class Getter(Protocol):
    """Reads some columns of a row, or of rows."""

    def __call__(self, row: Nine[V], /) -> tuple[V, ...]: ...


_EVERY_ROW = {
    name: Column(name, COUNT, text)
    for name, text in (
        ("t", "time"),
        ("seq", "number of the row"),
        ("msg", "a message, or 0"),
        ("who", "actor, event and flag"),
    )
}
"""The columns that a getter can read of every event beside the event's own."""


def _cut_first(flag: int, mask: int, others: list[int]) -> Getter:
    """A getter of the lowest bits of one column and all of others, which most handlers of events need."""
    match others:
        case [one]:
            return lambda row: (row[flag] & mask, row[one])
        case [one, two]:
            return lambda row: (row[flag] & mask, row[one], row[two])
        case [one, two, three]:
            return lambda row: (row[flag] & mask, row[one], row[two], row[three])
    rest = itemgetter(*others)
    return lambda row: (row[flag] & mask, *rest(row))


class View(Generic[T]):
    """A row by the names of its columns, or rows as columns by these names."""

    row: Nine[T]

    __slots__ = ("row",)

    @classmethod
    def of(cls, row: Nine[T]) -> Self:
        """A view of a row, or of rows as columns, which must be of the view's events."""
        view = object.__new__(cls)
        view.row = row
        return view

    @classmethod
    def has(cls, name: str) -> bool:
        """True if there is a column of this name."""
        return isinstance(vars(cls).get(name), Column)

    @classmethod
    def column(cls, name: str) -> Column:
        """The column that has a name."""
        found = vars(cls).get(name)
        if not isinstance(found, Column):
            raise KeyError(f"{cls.__name__} has no column {name}")
        return found

    @classmethod
    def getter(cls, *names: str) -> Getter:
        """Make a getter of some columns as a tuple, among them t, seq, msg and who: for loops over many rows,
        which a view for each would slow down.

        Columns that fill a stored one take a few tens of nanoseconds together, a hundred with a flag before
        them, with others it is 250; a view takes a hundred for itself and as much for each name.
        """
        columns = [_EVERY_ROW.get(name) or cls.column(name) for name in names]
        if len(columns) == 1:
            index, shift, mask = columns[0].index, columns[0].shift, columns[0].mask
            if mask == -1:
                return lambda row: (row[index],)
            return lambda row: (row[index] >> shift & mask,)
        stored = itemgetter(*(column.index for column in columns))
        parts = [(at, column.shift, column.mask) for at, column in enumerate(columns) if column.mask != -1]
        if not parts:
            get: Getter = stored
            return get
        if parts == [(0, 0, columns[0].mask)]:
            return _cut_first(columns[0].index, columns[0].mask, [column.index for column in columns[1:]])

        def cut(row: Nine[Any]) -> tuple[Any, ...]:
            values = list(stored(row))
            for at, shift, mask in parts:
                values[at] = values[at] >> shift & mask
            return tuple(values)

        return cut

    @property
    def t(self) -> T:
        return self.row[0]

    @property
    def seq(self) -> T:
        return self.row[1]

    @property
    def actor(self) -> Any:
        who: Any = self.row[_WHO]
        return who >> _ACTOR_SHIFT


def also_called(*names: str) -> Any:
    """A column of several events that some of them name otherwise."""
    return names


class Shared(View[T]):
    """A view of rows of several events, by the columns that all of them have in the same place."""

    __slots__ = ()

    def __init_subclass__(cls, *, of: Iterable[int]) -> None:
        events = [EVENTS[number] for number in of]
        for name in cls.__annotations__:
            names = {name, *vars(cls).get(name, ())}
            column, *others = (each for event in events for each in event.columns if each.name in names)
            if len(others) != len(events) - 1:
                raise TypeError(f"{cls.__name__}: not every event has one column {name}")
            where = column.index, column.mask, column.shift
            if any((each.index, each.mask, each.shift) != where for each in others):
                raise TypeError(f"{cls.__name__}: {name} is not in one place")
            setattr(cls, name, column)


@dataclass_transform(field_specifiers=(in_flag, in_msg, in_peer, in_pseq, in_a, in_b, in_c))
class Event(View[T]):
    """The view of one event; its subclasses are the events."""

    number: ClassVar[int]
    """The event's number (Ev), as a plain int."""
    name: ClassVar[str]
    says: ClassVar[str]
    """The template of its sentence."""
    columns: ClassVar[tuple[Column, ...]]
    places: ClassVar[tuple[str, ...]]
    """The stored columns that it uses, in the order in which a row has them: the flag comes last."""

    __slots__ = ()

    def __init_subclass__(cls, *, event: IntEnum, says: str) -> None:
        cls.number, cls.name, cls.says = int(event), event.name, says
        cls.columns = tuple(each for each in vars(cls).values() if isinstance(each, Column))
        used = {column.place for column in cls.columns}
        cls.places = tuple(place for place in (*STORED, FLAG) if place in used)
        if cls.number in EVENTS:
            raise TypeError(f"{event.name} is declared twice")
        EVENTS[cls.number] = cls

    def items(self) -> Iterator[tuple[Column, int]]:
        """The columns whose condition (`when`) this row meets, with their values."""
        for column in self.columns:
            when = column.when
            if when is None or getattr(self, when.column) in when.values:
                yield column, getattr(self, column.name)

    def __repr__(self) -> str:
        values = ", ".join(f"{column.name}={value!r}" for column, value in self.items())
        return f"{type(self).__name__}({values})"


EVENTS: dict[int, type[Event[Any]]] = {}
"""Number -> class, of every event of this version."""


def event_named(name: str) -> type[Event[Any]]:
    """The event of this name, in letters of either case; CallerError names the nearest one."""
    known = {event.name: event for event in EVENTS.values()}
    found = known.get(name.upper())
    if found is None:
        from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

        near = get_close_matches(name.upper(), known, 1)
        remedy = f"did you mean {near[0]}?" if near else "warrenmq.trace.events has all."
        raise CallerError(f"there is no event {name!r}; {remedy}")
    return found


def row_of(event: type[Event[Any]], *, actor: int = 0, t: int = 0, seq: int = 0, **values: int) -> Row:
    """A row of an event, by the names of its columns."""
    stored = dict.fromkeys((FLAG, *STORED), 0)
    for column in event.columns:
        default = column.default
        value = values.pop(column.name) if default is None else values.pop(column.name, default)
        stored[column.place] |= value if column.mask == -1 else (value & column.mask) << column.shift
    if values:
        raise TypeError(f"{event.name} has no column {', '.join(values)}")
    who = actor << _ACTOR_SHIFT | event.number << _EVENT_SHIFT | stored.pop(FLAG)
    return Row(t=t, seq=seq, who=who, **stored)


def events_of(rows: Iterable[Nine[int]]) -> bytes:
    """The event of each row."""
    return bytes([row[_WHO] >> _EVENT_SHIFT & _BYTE for row in rows])


def count_words(rows: Iterable[Nine[int]], counts: dict[int, int]) -> None:
    """Add to `counts` the number of rows of each word, which is event << 8 | flag."""
    for row in rows:
        word = row[_WHO] & _WORD
        counts[word] = counts.get(word, 0) + 1
