"""The store's decisions on writes and removes that the flying counter let pass (write_action and remove_message).

The tables of decisions are data: WRITE_TABLE and REMOVE_TABLE stand here once, the functions below them look them up, and
their test walks them.  `MsgStoreState._write` follows WRITE_TABLE too, with its commonest row inlined.

The keys of the tables are IntEnums, whose hash is C's: a look-up takes 0.1 us instead of 0.5.  A row is for
some masks (how far the client's operations still count), some numbers of references that the message has, and
some states of the file in which its record lies.

Source: docs/reference/message-store.md#the-end-of-a-client, #write-action and #remove-action.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum, auto
from itertools import product
from typing import NamedTuple, TypeVar

from warrenmq.message_store.message_index import Entry

Action = TypeVar("Action")


class Place(NamedTuple):
    """A position in the store's files; later ones were written later."""

    file: int
    offset: int


class Mask(IntEnum):
    """The extent to which a dying client's operations still count."""

    NONE = auto()
    """Its operations count (RabbitMQ: false)."""
    ALL = auto()
    """Its operations do not count (true)."""
    IF_INCREMENT = auto()
    """Its operations count only where the message has references (false_if_increment)."""


class Refs(IntEnum):
    """Reference counts, as far as decisions depend on them."""

    NO_ENTRY = auto()
    """The message is not in the store's index."""
    ZERO = auto()
    ONE = auto()
    MORE = auto()


class FileState(IntEnum):
    """The file of a message."""

    UNLOCKED = auto()
    LOCKED = auto()
    """The file is at the garbage collector."""
    GONE = auto()


class WriteAction(Enum):
    """The actions of a write."""

    IGNORE = auto()
    WRITE = auto()
    """Append a record."""
    REWRITE = auto()
    """Forget the entry, then append a record: the old one is going away."""
    REVIVE = auto()
    """The record exists without references: its first one."""
    COUNT = auto()
    """The record exists: one reference more."""


class RemoveAction(Enum):
    """The actions of a remove."""

    IGNORE = auto()
    COUNT = auto()
    """One reference less; others are left."""
    LAST = auto()
    """The last reference goes; the record becomes garbage."""
    DEFER = auto()
    """The last reference goes, but the file is at the garbage collector: remove it later."""
    REFUSE = auto()
    """The client does not hold the message: ValueError."""


_ALL, _NONE, _IF_INCREMENT = {Mask.ALL}, {Mask.NONE}, {Mask.IF_INCREMENT}
_COUNTED = {Mask.NONE, Mask.IF_INCREMENT}
_NO_ENTRY, _ZERO, _ONE, _MORE = {Refs.NO_ENTRY}, {Refs.ZERO}, {Refs.ONE}, {Refs.MORE}
_ANY_REFS, _SOME = set(Refs), {Refs.ONE, Refs.MORE}
_UNLOCKED, _LOCKED, _ANY_FILE = {FileState.UNLOCKED}, {FileState.LOCKED}, set(FileState)
_NOT_LOCKED, _NOT_UNLOCKED = {FileState.UNLOCKED, FileState.GONE}, {FileState.LOCKED, FileState.GONE}

# fmt: off
WRITE_TABLE = (
    # mask          references   file           action
    (_ALL,          _ANY_REFS,   _ANY_FILE,     WriteAction.IGNORE),
    (_NONE,         _NO_ENTRY,   _ANY_FILE,     WriteAction.WRITE),
    (_IF_INCREMENT, _NO_ENTRY,   _ANY_FILE,     WriteAction.IGNORE),
    (_COUNTED,      _ZERO,       _UNLOCKED,     WriteAction.REVIVE),
    (_NONE,         _ZERO,       _NOT_UNLOCKED, WriteAction.REWRITE),
    (_IF_INCREMENT, _ZERO,       _NOT_UNLOCKED, WriteAction.IGNORE),
    (_COUNTED,      _SOME,       _ANY_FILE,     WriteAction.COUNT),
)

REMOVE_TABLE = (
    # mask          references         file         action
    (_ALL,          _ANY_REFS,         _ANY_FILE,   RemoveAction.IGNORE),
    (_IF_INCREMENT, _NO_ENTRY | _ZERO, _ANY_FILE,   RemoveAction.IGNORE),
    (_NONE,         _NO_ENTRY | _ZERO, _ANY_FILE,   RemoveAction.REFUSE),
    (_COUNTED,      _ONE,              _LOCKED,     RemoveAction.DEFER),
    (_COUNTED,      _ONE,              _NOT_LOCKED, RemoveAction.LAST),
    (_COUNTED,      _MORE,             _ANY_FILE,   RemoveAction.COUNT),
)
# fmt: on


def _by_case(
    table: Iterable[tuple[set[Mask], set[Refs], set[FileState], Action]],
) -> Mapping[tuple[Mask, Refs, FileState], Action]:
    return {case: action for masks, refs, files, action in table for case in product(masks, refs, files)}


_WRITE, _REMOVE = _by_case(WRITE_TABLE), _by_case(REMOVE_TABLE)


def refs_of(entry: Entry | None) -> Refs:
    """The references of a message with this index entry."""
    if entry is None:
        return Refs.NO_ENTRY
    if entry[0] > 1:
        return Refs.MORE
    return Refs.ONE if entry[0] else Refs.ZERO


def mask(died_at: Place | None, entry: Entry | None) -> Mask:
    """Decide to which extent an operation of a client that is being deleted counts (rabbit_msg_store:should_mask_action).

    | client  | entry                                   | mask         |
    | ------- | --------------------------------------- | ------------ |
    | living  | any                                     | NONE         |
    | dying   | none                                    | ALL          |
    | dying   | written after it began to die           | ALL          |
    | dying   | older, no references                    | IF_INCREMENT |
    | dying   | older, with references                  | NONE         |

    Writes that a deleted queue left in the mailbox, of messages that the store does not know yet, and their removes
    cancel out; operations on messages that it knows only move a counter.
    """
    if died_at is None:
        return Mask.NONE
    if entry is None or (entry[1], entry[2]) > died_at:
        return Mask.ALL
    return Mask.NONE if entry[0] else Mask.IF_INCREMENT


def write_action(masked: Mask, refs: Refs, file: FileState) -> WriteAction:
    """The row of WRITE_TABLE."""
    return _WRITE[masked, refs, file]


def remove_action(masked: Mask, refs: Refs, file: FileState) -> RemoveAction:
    """The row of REMOVE_TABLE; ValueError where the client removes what it does not hold."""
    action = _REMOVE[masked, refs, file]
    if action is RemoveAction.REFUSE:
        msg = "a client removes a message that it does not hold"
        raise ValueError(msg)
    return action
