"""Output of `ls`, `stats`, `peek` and `top` for a directory whose owner is running: its current state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from warrenmq.errors import NotFound
from warrenmq.terminal import plain, preview, size, table

if TYPE_CHECKING:
    from warrenmq.broker.stats import Stats
    from warrenmq.shared.looking import OwnerConnection


@contextmanager
def owners_looks(directory: str, *, files: bool = False) -> Iterator[list[OwnerConnection]]:
    """Connect to a directory's owner as shared.looking.looks does; empty with `files`, and without the extra
    that it needs.
    """
    try:
        from warrenmq.shared.looking import looks
    except ModuleNotFoundError:
        yield []
        return
    if files:
        yield []
        return
    with looks(directory) as found:
        yield found


def states(looks: list[OwnerConnection]) -> list[tuple[str, Stats]]:
    """(virtual host, its state)."""
    from warrenmq.broker.stats import Stats

    return [(look.vhost, Stats.from_dict(look.ask("stats"))) for look in looks]


def show_queues(looks: list[OwnerConnection], *, as_json: bool) -> int:
    """`ls`: the queues with their counts."""
    found = states(looks)
    if as_json:
        queues = [{"vhost": vhost, **each} for vhost, stats in found for each in stats.as_dict()["queues"]]
        damaged = [asdict(each) for _, stats in found for each in stats.damage]
        print(json.dumps({"live": True, "queues": queues, "damaged": damaged, "in_use": True}))
        return 1 if damaged else 0
    rows: list[list[str | int]] = [
        [vhost, each.name, each.ready, each.unacked, each.consumers, each.in_memory]
        for vhost, stats in found
        for each in stats.queues
    ]
    headers = ("VHOST", "QUEUE", "READY", "UNACKED", "CONSUMERS", "IN MEMORY")
    print(table(headers, rows) if rows else "There are no queues here.")
    return 1 if any(stats.damage for _, stats in found) else 0


def show_stats(looks: list[OwnerConnection], *, as_json: bool) -> int:
    """`stats`: stores, queues and actors."""
    found = states(looks)
    if as_json:
        vhosts = [{"vhost": vhost, **stats.as_dict()} for vhost, stats in found]
        print(json.dumps({"live": True, "vhosts": vhosts}))
        return 1 if any(stats.damage for _, stats in found) else 0
    stores: list[list[str | int]] = []
    actors: list[list[str | int]] = []
    for vhost, stats in found:
        for store in stats.stores:
            held = sum(file.file_size for file in store.files)
            live = sum(file.valid_total_size for file in store.files)
            stores.append(
                [vhost, store.name, store.messages, len(store.files), size(held), size(held - live)]
            )
        restarts = sum(each.restarts for each in stats.actors)
        waiting = sum(each.mailbox for each in stats.actors)
        actors.append([vhost, len(stats.actors), waiting, restarts, len(stats.damage)])
    print(table(("VHOST", "STORE", "MESSAGES", "FILES", "BYTES", "GARBAGE"), stores), end="\n\n")
    print(table(("VHOST", "ACTORS", "MAIL", "RESTARTS", "DAMAGE"), actors), end="\n\n")
    return show_queues(looks, as_json=False)


def show_messages(
    looks: list[OwnerConnection], queue: str | None, vhost: str | None, limit: int, *, as_json: bool
) -> int:
    """`peek`: the first messages of a queue, as they would be delivered."""
    named = [
        (look, name)
        for look in looks
        for name in look.ask("queues")
        if queue in {None, name} and vhost in {None, look.vhost}
    ]
    if len(named) != 1:
        every = sorted({name for look in looks for name in look.ask("queues")})
        which = "is no queue" if not named else "are several queues: say which, or its --vhost"
        raise NotFound(f"{queue or 'that'} {which}; there are: {', '.join(every) or 'none'}.")
    look, name = named[0]
    from warrenmq.amqp.wire.codec import decode_properties

    messages = []
    for position, (exchange, key, raw, body, redelivered) in enumerate(
        look.ask("peek", queue=name, most=limit)
    ):
        properties = {
            each: value for each, value in asdict(decode_properties(raw)).items() if value is not None
        }
        messages.append({
            "position": position, "size": len(body), "sha256": hashlib.sha256(body).hexdigest(), "exchange": exchange,
            "routing_key": key, "properties": properties, "redelivered": redelivered,
        })  # fmt: skip
        if not as_json:
            mark = "  redelivered" if redelivered else ""
            print(
                f"#{position}  {plain(exchange) or '(default exchange)'} -> {plain(key)}  {size(len(body))}{mark}"
            )
            if properties:
                print(f"    {preview(json.dumps(properties, default=str).encode())}")
            print(f"    {preview(body)}")
    if as_json:
        print(
            json.dumps({"live": True, "vhost": look.vhost, "name": name, "messages": messages}, default=str)
        )
    elif not messages:
        print("There are no messages in it.")
    return 0
