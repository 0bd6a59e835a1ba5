"""Directories for the reading verbs to be fuzzed with: RabbitMQ's and ours, and what is in them."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from tests.support import golden, own_directories
from tests.support.damage import Files, Message, Queue, in_stores, in_version_1, in_version_2
from tests.support.own_directories import STOPS
from tests.support.simulated import EVERY_KIND

A_MINUTE = 60_000_000
GOLDEN = [*golden.CASES, "rdt"]
"""`rdt` is c07 as a kill in the middle of a combine would have left it."""
OURS = [f"{number}-{stop}" for number in range(len(EVERY_KIND)) for stop in STOPS]


class Readable(NamedTuple):
    files: Files
    """By their paths below the data directory."""
    queues: list[Queue]
    edges: dict[str, list[int]]
    now_us: int | None


@cache
def readable(name: str) -> Readable:
    """One directory by its name in GOLDEN or OURS."""
    if name in OURS:
        return _ours(*name.split("-"))
    case = "c07-gc-v1-a" if name == "rdt" else name
    files, manifest = dict(golden.files(case)), golden.manifest(case)
    counts = {each["dir"]: each["segment_entry_count"] for each in manifest["vhosts"]}
    if name == "rdt":
        _half_combined(files)
    queues = []
    for queue in manifest["queues"]:
        for each in queue["dirs"]:
            folder = each["dir"]
            rows = golden.messages(queue)
            messages = [
                _message(files, folder, row) for row in rows if row.get("priority_dir") == each["priority"]
            ]
            queues.append(Queue(folder, messages, counts[folder.partition("/queues/")[0]]))
    return Readable(files, queues, _edges(queues), manifest["ended_us"] + A_MINUTE)


def _half_combined(files: Files) -> None:
    """The last file of the store as x.rdt, with x.rdq cut short: a message may be in the .rdt alone."""
    path = max(
        (each for each in files if "persistent" in each and each.endswith(".rdq")),
        key=lambda each: len(files[each]),
    )
    files[path.removesuffix(".rdq") + ".rdt"] = files[path]
    files[path] = b""


def _message(files: Files, folder: str, row: dict[str, Any]) -> Message:
    msg_id = bytes.fromhex(row["msg_id"])
    places = [*in_version_1(files, folder, msg_id), *in_version_2(files, folder, row["seq_id"])]
    if row["where"] == "store":
        places += in_stores(files, folder.partition("/queues/")[0], msg_id)
    assert len(places) >= (1 if row["where"] == "index" else 2)
    return Message(
        row["seq_id"], row["body_sha256"], msg_id if row["where"] == "store" else b"", tuple(places)
    )


def _ours(number: str, stop: str) -> Readable:
    made = own_directories.directory(EVERY_KIND[int(number)], stop)
    files = {_below(path): data for path, data in made.files.items()}
    queues = [
        Queue(
            _below(queue.folder),
            [each._replace(places=tuple(place._replace(path=_below(place.path)) for place in each.places)) for each in queue.messages],
            queue.entry_count,
        )
        for queue in made.queues.values()
    ]  # fmt: skip
    return Readable(files, queues, _edges(queues), None)


def _below(path: str) -> str:
    return path.removeprefix("/data/")


def _edges(queues: list[Queue]) -> dict[str, list[int]]:
    edges: dict[str, list[int]] = {}
    for queue in queues:
        for message in queue.messages:
            for path, start, end in message.places:
                edges.setdefault(path, []).extend((start, end))
    return edges
