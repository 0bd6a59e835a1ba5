"""The checkpoint of a live replay of one process, which can be stopped, or killed, at any time.

One SQLite file, where Spark has its state store (spark/state_store.py); the changes of a batch of rows are
one transaction: the states of its keys, its actors, how far the trace was read, and the findings that stand
now.  A finding is printed after that, and then marked, so none is lost; only a kill between the two has it
printed again.

States are kept in memory while they are in use; the others are read when a row speaks of them.
"""

from __future__ import annotations

import os
import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import msgpack  # type: ignore[import-untyped]

from warrenmq.errors import CallerError
from warrenmq.replay.drive import state_codec
from warrenmq.replay.drive.machines import Key, State

_VERSION = 3
_IN_MEMORY = 4096
"""States: those of 16 million messages."""

_TABLES = """
create table if not exists state (machine text, key blob, state blob, primary key (machine, key)) without rowid;
create table if not exists about (name text primary key, value blob) without rowid;
create table if not exists found (what blob primary key, said text, is_violation integer, printed integer);
"""


class LiveStore(Protocol):
    """A store of what a watch knows; the changes of one batch are kept together, or none."""

    def load(self, machine: str, key: Key) -> State | None:
        """The state of a key; None if it has no state."""

    def save(self, machine: str, key: Key, state: State) -> None: ...

    def forget(self, machine: str, key: Key) -> None: ...

    def keys(self, machine: str) -> list[Key]:
        """All keys of a machine that have a state, saved or not."""

    def keep(self, machine: str, key: Key, state: State) -> State:
        """Keep a state in memory until it is saved."""

    def get(self, name: str, default: Any) -> Any: ...

    def all_about(self, prefix: str) -> Iterator[Any]:
        """The values whose names begin like this, in the order of the names."""

    def put(self, name: str, value: Any) -> None: ...

    def report(self, what: tuple[Any, ...], said: str, *, is_violation: bool = False) -> None:
        """Note something to be printed, unless it is known."""

    def count_violations(self) -> int:
        """Violations that were ever noted."""


class SqliteStore:
    """A checkpoint in a file of SQLite.  Used by one thread at a time, which need not be the same."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with ExitStack() as refused:
            try:
                self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=1)
                refused.callback(self._db.close)
                self._db.execute("pragma journal_mode = wal")
                self._db.execute("pragma synchronous = normal")
                self._db.execute("pragma locking_mode = exclusive")
                self._db.executescript(_TABLES)
            except sqlite3.DatabaseError as error:
                raise CallerError(
                    f"{path} cannot be used: {error}. Is another watch using this checkpoint?"
                ) from error
            if self.get("version", _VERSION) != _VERSION:
                raise CallerError(
                    f"{path} was written by another version; begin with a new checkpoint directory."
                )
            refused.pop_all()
        self._states: OrderedDict[tuple[str, Key], State] = OrderedDict()

    # one transaction a batch

    def begin(self) -> None:
        self._db.execute("begin")
        self.put("version", _VERSION)

    def commit(self) -> None:
        self._db.execute("commit")
        while len(self._states) > _IN_MEMORY:
            self._states.popitem(last=False)

    def close(self) -> None:
        self._db.close()

    # states

    def load(self, machine: str, key: Key) -> State | None:
        known = self._states.get((machine, key))
        if known is not None:
            self._states.move_to_end((machine, key))
            return known
        row = self._db.execute(
            "select state from state where machine = ? and key = ?", (machine, msgpack.packb(key))
        ).fetchone()
        return None if row is None else self.keep(machine, key, state_codec.unpack(row[0]))

    def save(self, machine: str, key: Key, state: State) -> None:
        self.keep(machine, key, state)
        self._db.execute(
            "replace into state values (?, ?, ?)", (machine, msgpack.packb(key), state_codec.pack(state))
        )

    def forget(self, machine: str, key: Key) -> None:
        self._states.pop((machine, key), None)
        self._db.execute("delete from state where machine = ? and key = ?", (machine, msgpack.packb(key)))

    def keys(self, machine: str) -> list[Key]:
        rows = self._db.execute("select key from state where machine = ?", (machine,)).fetchall()
        saved = [tuple(msgpack.unpackb(key)) for (key,) in rows]
        return list(dict.fromkeys([*saved, *(key for name, key in self._states if name == machine)]))

    def keep(self, machine: str, key: Key, state: State) -> State:
        self._states[machine, key] = state
        self._states.move_to_end((machine, key))
        return state

    # anything else

    def get(self, name: str, default: Any) -> Any:
        row = self._db.execute("select value from about where name = ?", (name,)).fetchone()
        return default if row is None else state_codec.unpack(row[0])

    def all_about(self, prefix: str) -> Iterator[Any]:
        rows = self._db.execute(
            "select value from about where name >= ? and name < ? order by name", (prefix, prefix + "\x7f")
        ).fetchall()
        return (state_codec.unpack(value) for (value,) in rows)

    def put(self, name: str, value: Any) -> None:
        self._db.execute("replace into about values (?, ?)", (name, state_codec.pack(value)))

    # findings

    def report(self, what: tuple[Any, ...], said: str, *, is_violation: bool = False) -> None:
        self._db.execute(
            "insert or ignore into found values (?, ?, ?, 0)", (msgpack.packb(what), said, is_violation)
        )

    def count_violations(self) -> int:
        return int(self._db.execute("select count(*) from found where is_violation").fetchone()[0])

    def unprinted(self) -> list[tuple[int, str]]:
        """(number, what is to be printed)."""
        return self._db.execute("select rowid, said from found where printed = 0 order by rowid").fetchall()

    def printed(self, number: int) -> None:
        self._db.execute("update found set printed = 1 where rowid = ?", (number,))
