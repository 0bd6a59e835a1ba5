"""Mnesia's tables, read from its files: a dump and the changes since.

    TABLE.DCD      disk_log: all records at the last dump
    TABLE.DCL      disk_log: {{Table, Key}, Value, Operation}, changes dumped since
    PREVIOUS.LOG   disk_log: transactions whose dump has not ended
    LATEST.LOG     disk_log: transactions that are in no dump

    {commit, Node, presume_commit | {decision, Tid, presume_abort, ...}, RamCopies, [Change], ...}
    {decision, Tid, committed | aborted, ...}

A transaction of more than one step counts once its decision is there too: alone, a node presumes that it was aborted.
Source: lib/mnesia/src/mnesia_log.erl, mnesia_dumper.erl, mnesia_tm.erl.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from warrenmq.erlang import disk_log

LOGS = ("PREVIOUS.LOG", "LATEST.LOG")


def tables(names: Sequence[str], files: Mapping[str, bytes]) -> dict[str, list[tuple[Any, ...]]]:
    """The records of each table; `files` has what there is of TABLE.DCD, TABLE.DCL and LOGS, by name."""
    found: dict[str, dict[Any, tuple[Any, ...]]] = {name: {} for name in names}
    for name, records in found.items():
        for item in disk_log.items(files.get(f"{name}.DCD", b"")):
            if isinstance(item, tuple) and len(item) > 1 and item[0] != "log_header":
                _change(records, item[1], item, "write")
    dumped = (disk_log.items(files.get(f"{name}.DCL", b"")) for name in names)
    for changes in (*dumped, *(_committed(files.get(log, b"")) for log in LOGS)):
        for change in changes:
            match change:
                case ((str() as name, key), value, str() as operation) if name in found:
                    _change(found[name], key, value, operation)
    return {name: list(records.values()) for name, records in found.items()}


def _change(records: dict[Any, tuple[Any, ...]], key: Any, value: Any, operation: str) -> None:
    try:
        if operation == "write" and isinstance(value, tuple):
            records[_hashable(key)] = value
        elif operation in {"delete", "delete_object"}:
            records.pop(_hashable(key), None)
    except TypeError:  # a map or an improper list in a key: none of RabbitMQ's
        return


def _hashable(key: Any) -> Any:
    """Keys have lists in them: a binding its arguments."""
    if isinstance(key, list):
        return ("list", *map(_hashable, key))
    return tuple(map(_hashable, key)) if isinstance(key, tuple) else key


def _committed(log: bytes) -> Iterator[Any]:
    """The changes of the transactions that were committed, in their order."""
    items = list(disk_log.items(log))
    decided = {tid for tid, outcome in _decisions(items) if outcome == "committed"}
    for item in items:
        match item:
            case ("commit", _, decision, _, list() as changes, *_):
                if decision == "presume_commit" or _tid(decision) in decided:
                    yield from changes


def _decisions(items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    for item in items:
        match item:
            case ("decision", tid, outcome, *_):
                yield _hashed(tid), outcome


def _tid(decision: Any) -> Any:
    match decision:
        case ("decision", tid, *_):
            return _hashed(tid)
    return None


def _hashed(tid: Any) -> str:
    return repr(tid)  # {tid, Counter, Pid}
