"""A fold's state in words: the lines that `warrenmq trace show TRACE --at ROW` prints.

    for line in lines(fold.at(1_200)):
        print(line)

They say what the page draws, part by part; names from outside are shown without signs that would change the
line.  Of what there are many, the first ones are told, and how many more there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from warrenmq.terminal import plain
from warrenmq.trace.events import State

Tables = Mapping[str, Mapping[Any, Any]]
MOST = 12
"""Lines of a part."""
_INDEX = ("in memory only", "written, not synced", "synced")
_BODY = ("small, beside the index", "in the persistent store", "in the transient store")
_STORES = {"p": "msg_store_persistent", "t": "msg_store_transient"}


def lines(tables: Tables) -> Iterator[str]:
    """The state, with a line without indentation before each part that has something to say."""
    for title, told in (
        ("broker", _broker(tables)),
        ("processes", _processes(tables)),
        ("mailboxes", _mail(tables)),
        ("publishers", _publishers(tables)),
        ("exchanges", _exchanges(tables)),
        ("queues", _queues(tables)),
        ("message stores", _stores(tables)),
        ("flying counters", _flying(tables)),
        ("current-file cache", _cache(tables)),
        ("cost so far", (f"{what}: {number:,}" for what, number in tables["cost"].items())),
    ):
        found = list(told)
        if found:
            yield title
            yield from (f"  {line}" for line in found)


def _few(found: Iterable[str], most: int = MOST) -> Iterator[str]:
    listed = list(found)
    yield from listed[:most]
    if len(listed) > most:
        yield f"and {len(listed) - most:,} more"


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _name(tables: Tables, actor: int) -> str:
    found = tables["actor"].get(actor)
    return plain(found[0]) if found else "somebody"


def _broker(tables: Tables) -> Iterator[str]:
    if (run := tables["run"].get("run")) is not None:
        profile = {1: ", profile classic", 2: ", profile modern"}.get(run[3], "")
        settings = tables["run"].get("settings")
        os = (
            ""
            if settings is None or settings[0]
            else ", durability os: what counts as synced is with the system"
        )
        yield f"run {plain(run[0])}, boot {run[1]}, {run[2]}{profile}{os}"
    for what, (measured, limit) in tables["alarm"].items():
        yield f"{what} alarm: {measured:,} of {limit:,} bytes"


def _processes(tables: Tables) -> Iterator[str]:
    under: dict[int, list[int]] = {}
    actors = tables["actor"]
    for actor, (_, _, parent, _, _) in actors.items():
        under.setdefault(parent if parent in actors else 0, []).append(actor)
    waiting = dict(tables["wait"].values())

    def branch(actor: int, depth: int) -> Iterator[str]:
        name, kind, _, state, life = actors[actor]
        notes = [state] + ([f"incarnation {life}"] if life > 1 else [])
        if actor in waiting:
            notes.append(
                f"waits for {_name(tables, waiting[actor])}" if waiting[actor] else "waits for the alarms"
            )
        yield f"{'  ' * depth}{plain(name)} ({kind}): {', '.join(notes)}"
        children = under.get(actor, ())
        for child in children[: 4 * MOST]:
            yield from branch(child, depth + 1)
        if len(children) > 4 * MOST:
            yield f"{'  ' * (depth + 1)}and {len(children) - 4 * MOST:,} more"

    for root in under.get(0, ()):
        yield from branch(root, 0)


def _mail(tables: Tables) -> Iterator[str]:
    boxes: dict[int, list[str]] = {}
    for receiver, kind, message, count, sender in tables["mail"].values():
        about = f" m{message}" + (f" and {count - 1} more" if count > 1 else "") if message else ""
        boxes.setdefault(receiver, []).append(f"{plain(kind)}{about} of {_name(tables, sender)}")
    for receiver, envelopes in boxes.items():
        yield f"{_name(tables, receiver)}: {'; '.join(_few(envelopes, 6))}"


def _publishers(tables: Tables) -> Iterator[str]:
    owed: dict[int, list[str]] = {}
    for message, (client, left) in tables["owed"].items():
        owed.setdefault(client, []).append(f"m{message}" + (f" (of {left} queues)" if left > 1 else ""))
    yield from _few(
        f"{_name(tables, client)}: {confirmed:,} of {sent - unasked:,} confirmed"
        + (f", {nacked:,} nacked" if nacked else "")
        + (f", {unasked:,} sent without a confirm" if unasked else "")
        + (f"; waits for {', '.join(_few(owed[client], 8))}" if client in owed else "")
        + _way(tables, client)
        for client, (sent, confirmed, nacked, unasked) in tables["pub"].items()
    )


def _way(tables: Tables, client: int) -> str:
    exchange, key, message = tables["route"].get(client, ("", "", 0))
    if not message:
        return ""
    chosen = [
        _name(tables, int(str(place).partition("/")[2]))
        for place, last in tables["chosen"].items()
        if last == message and str(place).startswith(f"{client}/")
    ]
    through = f"exchange {plain(exchange)}" if exchange else "the default exchange"
    with_key = f" with key {plain(key)}" if key else ""
    return f"; m{message} went through {through}{with_key} to {', '.join(_few(chosen, 8))}"


def _exchanges(tables: Tables) -> Iterator[str]:
    bound: dict[str, list[str]] = {}
    for exchange, destination, key, what in tables["binding"].values():
        bound.setdefault(exchange, []).append(
            f"{what} {plain(destination)}" + (f" for {plain(key)}" if key else "")
        )
    yield from _few(
        f"{plain(name)} ({kind}): leads to {'; '.join(_few(bound[name], 8)) if name in bound else 'nothing'}"
        for name, kind in tables["exchange"].items()
        if name in bound or not name.startswith("amq.")
    )


def _queues(tables: Tables) -> Iterator[str]:
    entries: dict[str, list[tuple[str, tuple[Any, ...]]]] = {}
    for key, value in tables["entry"].items():
        name, _, seq = str(key).rpartition("/")
        entries.setdefault(name, []).append((seq, value))
    names = dict.fromkeys([*tables["queue"], *entries])
    for name in list(names)[: 4 * MOST]:
        found = entries.get(name, [])
        states = Counter(value[1] for _, value in found)
        told = ", ".join(f"{number:,} {state}" for state, number in states.items()) or "empty"
        head = f"{plain(name)}: {told}"
        if (queue := tables["queue"].get(name)) is not None:
            head += f"; next number {queue[1]:,}, {queue[2]:,} confirmed; index {queue[3]:,} bytes, {queue[4]:,} of them synced"
        else:
            head += "; no process has opened it yet"
        if (ram := tables["ram"].get(name)) is not None and ram[0] >= 0:
            head += f"; {ram[0]:,} may stay in memory"
        if (journal := tables["journal"].get(name)) is not None:
            head += f"; {_many(journal[0], 'record')} in the journal"
        yield head
        for line in _few(_entry(seq, *value) for seq, value in found):
            yield f"  {line}"
        for number, (of, prefetch, no_acks) in tables["consumer"].items():
            if of == name:
                limit = (
                    "without acks" if no_acks else f"at most {prefetch:,} unacked" if prefetch else "no limit"
                )
                yield f"  consumer {number}: {limit}"
    if len(names) > 4 * MOST:
        yield f"and {_many(len(names) - 4 * MOST, 'queue')} more"


def _entry(seq: str, message: int, state: str, place: int, index: int, body: int, size: int) -> str:
    known = State._value2member_map_.get(place)
    at = f", {State(place).name.lower()}" if known is not None and state == "ready" and place else ""
    return f"{seq}: {f'm{message}' if message else 'a message'} {state}{at}; index {_INDEX[index]}; body {_BODY[body]}{f', {size:,} bytes' if size else ''}"


def _stores(tables: Tables) -> Iterator[str]:
    records: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
    for key, value in tables["rec"].items():
        file, _, offset = str(key).rpartition("/")
        records.setdefault(file, []).append((int(offset), value))
    for store, title in _STORES.items():
        files = sorted(
            (int(str(key)[2:]), value) for key, value in tables["file"].items() if str(key)[0] == store
        )
        if not files:
            continue
        opened = tables["store"].get(store)
        yield f"{title}: {_many(len(files), 'file')}" + ("" if opened else "; nobody has opened it")
        if (gc := tables["gc"].get(store)) is not None:
            into = "in place" if gc[0] == gc[1] else f"into {gc[1]}.rdq"
            yield f"  the collector: {gc[0]}.rdq {into}, {gc[3]:,} of {gc[2]:,} bytes copied"
        for number, (size, written, synced, garbage, state) in files[-MOST:]:
            yield (
                f"  {number}.rdq{f' ({state})' if state else ''}: {size:,} bytes, {size - written:,} in the write buffer, "
                f"{synced:,} synced, {garbage:,} garbage"
            )
            for line in _few(
                _record(at, *value) for at, value in sorted(records.get(f"{store}/{number}", []))
            ):
                yield f"    {line}"
        if len(files) > MOST:
            yield f"  and {_many(len(files) - MOST, 'older file')}"


def _record(offset: int, message: int, size: int, references: int, note: str) -> str:
    held = _many(references, "reference") if references else "garbage"
    return f"at {offset:,}: {f'm{message}' if message else 'a message'}, {size:,} bytes, {held}{f', {note}' if note else ''}"


def _flying(tables: Tables) -> Iterator[str]:
    told = []
    for key, value in tables["flying"].items():
        store, message, queue = str(key).split("/", 2)
        told.append(f"m{message} of {plain(queue)} at {_STORES.get(store, store)}: {value:+d}")
    yield from _few(told)


def _cache(tables: Tables) -> Iterator[str]:
    if tables["cache"]:
        yield ", ".join(_few((f"m{str(key).partition('/')[2]}" for key in tables["cache"]), 24))
