"""Samples for `warrenmq top`: what the owner of a directory, or a management API, says of each virtual host at one moment."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warrenmq.broker.stats import Stats
from warrenmq.cli._ctl_client import Api
from warrenmq.cli._live import owners_looks
from warrenmq.errors import BrokerClosed, NotFound
from warrenmq.terminal import counted, size

if TYPE_CHECKING:
    from warrenmq.shared.looking import OwnerConnection

_COUNTED = 200
"""Queues of a directory whose publishes are asked for, a call each: the deepest."""


@dataclass(frozen=True, slots=True)
class Depth:
    """One queue."""

    name: str
    ready: int
    unacked: int
    consumers: int
    published: int | None
    """Messages that ever came into it; None if that was not asked for."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a virtual host."""

    at: float
    """Seconds, by a clock that only goes on."""
    vhost: str
    resources: tuple[str, ...]
    """Memory and disk."""
    parts: tuple[str, ...]
    """Actors, stores."""
    troubles: tuple[str, ...]
    syncs: int | None
    """Syncs of the disk; None where they are not counted."""
    queues: tuple[Depth, ...]
    """All of them, the deepest first."""


def samples(where: str) -> list[Sample]:
    """OwnerConnection at a directory, or at http(s)://USER:PASSWORD@HOST:PORT; none if nobody serves the
    directory.  CallerError of an API.
    """
    if "://" in where:
        return _of_api(Api(where))
    try:
        with owners_looks(where) as looks:
            return [_of_owner(look) for look in looks]
    except BrokerClosed:  # it has just ended
        return []


def _of_owner(look: OwnerConnection) -> Sample:
    stats = Stats.from_dict(look.ask("stats"))
    queues = []
    for rank, each in enumerate(sorted(stats.queues, key=_depth)):
        published = None
        if rank < _COUNTED:
            try:
                info = look.ask("info", queue=each.name)
                published = sum(info["next_seq_ids"] or [info["next_seq_id"]])
            except NotFound:  # it was deleted meanwhile
                continue
        queues.append(Depth(each.name, each.ready, each.unacked, each.consumers, published))
    return of_stats(look.vhost, time.monotonic(), stats, tuple(queues))


def of_stats(vhost: str, at: float, stats: Stats, queues: tuple[Depth, ...]) -> Sample:
    """The sample of an owner's answer."""
    resources = tuple(
        _resource(each.source, each.measured, each.limit, alarm=each.is_set) for each in stats.alarms
    )
    mail = sum(each.mailbox for each in stats.actors)
    held = sum(file.file_size for store in stats.stores for file in store.files)
    restarted = sorted((-each.restarts, each.name) for each in stats.actors if each.restarts)
    parts = (
        f"{len(stats.actors)} actors",
        f"{counted(mail, 'mail')} waiting",
        f"stores {size(held)}",
        counted(-sum(count for count, _ in restarted), "restart"),
    )
    found = (
        (len(stats.blocked_publishers), "blocked publisher"),
        (len(stats.damage), "damaged place"),
        (len(stats.stuck), "stuck actor"),
        (sum(each.waiting for each in stats.delayed), "delayed message"),
    )
    troubles = [counted(count, noun) for count, noun in found if count]
    if restarted:
        troubles.insert(0, "restarted " + ", ".join(f"{name} {-count}x" for count, name in restarted[:3]))
    return Sample(at, vhost, resources, parts, tuple(troubles), stats.syncs, queues)


def _of_api(api: Api) -> list[Sample]:
    node = api.call("GET", "nodes")[0]
    resources = (
        _resource("memory", node.get("mem_used"), node.get("mem_limit"), alarm=bool(node.get("mem_alarm"))),
        _resource(
            "disk",
            node.get("disk_free"),
            node.get("disk_free_limit"),
            alarm=bool(node.get("disk_free_alarm")),
        ),
    )
    overview = api.call("GET", "overview")["object_totals"]
    parts = (
        f"{node.get('proc_used', 0):,} actors",
        *(counted(overview.get(f"{noun}s", 0), noun) for noun in ("connection", "channel")),
    )
    rows = api.call(
        "GET",
        "queues?columns=vhost,name,messages_ready,messages_unacknowledged,consumers,message_stats.publish",
    )
    queues: dict[str, list[Depth]] = {each["name"]: [] for each in api.call("GET", "vhosts")}
    for each in rows:
        queues.setdefault(each["vhost"], []).append(_of_row(each))
    now = time.monotonic()
    syncs = node.get("io_sync_count")
    return [
        Sample(now, vhost, resources, parts, (), syncs, tuple(sorted(found, key=_depth)))
        for vhost, found in sorted(queues.items())
    ]


def _of_row(row: Mapping[str, Any]) -> Depth:
    ready, unacked, consumers = (
        row.get(key, 0) for key in ("messages_ready", "messages_unacknowledged", "consumers")
    )
    return Depth(row["name"], ready, unacked, consumers, (row.get("message_stats") or {}).get("publish", 0))


def _depth(queue: Any) -> tuple[int, str]:
    return -queue.ready - queue.unacked, queue.name


def _resource(source: str, measured: int | None, limit: int | None, *, alarm: bool) -> str:
    known = "?" if measured is None else size(measured)
    words = f"memory {known} in use" if source == "memory" else f"disk {known} free"
    return f"{words}, limit {'?' if limit is None else size(limit)}{' ALARM' if alarm else ''}"
