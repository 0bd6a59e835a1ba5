"""What the store does with a write or a remove that the flying counter let pass.

Three tables of RabbitMQ's as pure functions.

Source: docs/reference/message-store.md#the-end-of-a-client, #write-action and #remove-action.

Where a message stands is told by `refs` (its references, None = no index entry) and `file`, the state of the file
that its entry names.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from warrenmq.message_store.message_index import Entry


class Place(NamedTuple):
    """A position in the store's files; later ones were written later."""

    file: int
    offset: int


class FileState(Enum):
    """The file of a message."""

    UNLOCKED = auto()
    LOCKED = auto()
    """It is at the garbage collector."""
    GONE = auto()


class Mask(Enum):
    """How far the operations of a client still count."""

    NONE = auto()
    """They do (RabbitMQ: false)."""
    ALL = auto()
    """They do not (true)."""
    IF_INCREMENT = auto()
    """Only where the message has references (false_if_increment)."""


class WriteAction(Enum):
    """What to do with a write."""

    IGNORE = auto()
    WRITE = auto()
    """Append a record."""
    REWRITE = auto()
    """Forget the entry, then append a record: the old one is going away."""
    REVIVE = auto()
    """The record exists and nobody refers to it: its first reference."""
    COUNT = auto()
    """The record exists: one reference more."""


class RemoveAction(Enum):
    """What to do with a remove."""

    IGNORE = auto()
    COUNT = auto()
    """One reference less; others are left."""
    LAST = auto()
    """The last reference goes; the record becomes garbage."""
    DEFER = auto()
    """As LAST, but the file is at the garbage collector: later."""


def mask(died_at: Place | None, entry: Entry | None) -> Mask:
    """How far an operation counts of a client that is being deleted (rabbit_msg_store:should_mask_action).

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


def write_action(masked: Mask, refs: int | None, file: FileState) -> WriteAction:
    """The write action table.

    | mask         | references | file     | action  |
    | ------------ | ---------- | -------- | ------- |
    | ALL          | any        | any      | IGNORE  |
    | NONE         | no entry   |          | WRITE   |
    | NONE         | 0          | LOCKED   | REWRITE |
    | IF_INCREMENT | 0          | LOCKED   | IGNORE  |
    | other        | 0          | UNLOCKED | REVIVE  |
    | NONE         | 0          | GONE     | REWRITE |
    | IF_INCREMENT | 0          | GONE     | IGNORE  |
    | other        | 1 or more  | any      | COUNT   |
    """
    if masked is Mask.ALL:
        return WriteAction.IGNORE
    if refs is None:
        return WriteAction.WRITE if masked is Mask.NONE else WriteAction.IGNORE
    if refs:
        return WriteAction.COUNT
    if file is FileState.UNLOCKED:
        return WriteAction.REVIVE
    return WriteAction.REWRITE if masked is Mask.NONE else WriteAction.IGNORE


def remove_action(masked: Mask, refs: int | None, file: FileState) -> RemoveAction:
    """The remove action table.

    | mask         | references | file     | action      |
    | ------------ | ---------- | -------- | ----------- |
    | ALL          | any        | any      | IGNORE      |
    | IF_INCREMENT | 0          | any      | IGNORE      |
    | other        | 2 or more  | any      | COUNT       |
    | other        | 1          | LOCKED   | DEFER       |
    | other        | 1          | UNLOCKED | LAST        |
    | NONE         | 0, none    | any      | ValueError  |
    """
    if masked is Mask.ALL or (masked is Mask.IF_INCREMENT and not refs):
        return RemoveAction.IGNORE
    if not refs:
        msg = "a client removes a message that it does not hold"
        raise ValueError(msg)
    if refs > 1:
        return RemoveAction.COUNT
    return RemoveAction.DEFER if file is FileState.LOCKED else RemoveAction.LAST
