"""Queues that a real RabbitMQ 3.10.8 wrote, of both versions: our index finds the messages that it gives back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue_index import index_kit as kit
from tests.support import golden
from tests.support.own_directories import listed_version_2
from warrenmq.message.stored import ERLANG_TERM
from warrenmq.queue_index.record import HEADER, embedded
from warrenmq.queue_index.v1 import walk as walk_version_1
from warrenmq.settings import Settings


def folders() -> list[Any]:
    """Each folder of each durable queue: case, queue, name of the folder."""
    return [
        pytest.param(
            case, queue, each["dir"].rpartition("/")[2], id=f"{case} {each['dir'].rpartition('/')[2]}"
        )
        for case in golden.CASES
        for queue in golden.manifest(case)["queues"]
        for each in queue["dirs"]
        if each["exists"] and queue["durable"]
    ]


FOLDERS = pytest.mark.parametrize(("case", "queue", "name"), folders())


def settings(case: str, queue: dict[str, Any], version: int) -> Settings:
    manifest = golden.manifest(case)
    vhost = next(each for each in manifest["vhosts"] if each["name"] == queue["vhost"])
    return Settings(queue_version=version, queue_index_segment_entry_count=vhost["segment_entry_count"])


def expected(queue: dict[str, Any], name: str) -> dict[int, dict[str, Any]]:
    """By sequence id, what the broker gives back, and what it has on disk but does not."""
    defaults = queue["message_defaults"]
    of_folder = next(each["priority"] for each in queue["dirs"] if each["dir"].endswith(name))
    rows = [{**defaults, **each} for each in queue["messages"]] + queue["not_recovered"]
    return {
        row["seq_id"]: row
        for row in rows
        if row.get("seq_id") is not None and row.get("priority_dir", of_folder) == of_folder
    }


def put(case: str, name: str) -> Any:
    disk = kit.disk()
    for file, data in golden.folder(case, name).items():
        kit.put_file(disk, file, data)
    return disk


@FOLDERS
def test_every_message_is_listed_with_its_size_expiry_and_place(
    case: str, queue: dict[str, Any], name: str
) -> None:
    use = settings(case, queue, queue["version"])
    disk = put(case, name)
    if queue["version"] == 1:
        listed = list(walk_version_1.messages(disk, kit.DIRECTORY, use.queue_index_segment_entry_count))
    else:
        listed = list(listed_version_2(disk, kit.DIRECTORY, use))
    rows = expected(queue, name)
    assert [seq_id for seq_id, _, _ in listed] == sorted(rows)
    for seq_id, record, persistent in listed:
        row = rows[seq_id]
        if "body_size" not in row:
            continue
        msg_id, expiry, size, stored = HEADER.unpack_from(record)
        assert size == row["body_size"]
        assert (expiry, persistent) == (row.get("expiry_us", expiry), row.get("persistent", persistent))
        if not embedded(record):
            assert row["where"] == "store"
            assert msg_id.hex() == row["msg_id"]
        else:
            assert (row["where"], record[32]) == ("qs" if queue["version"] == 2 else "index", ERLANG_TERM)
            assert queue["version"] == 2 or msg_id.hex() == row["msg_id"]
            assert stored == len(record) - 32


@FOLDERS
@pytest.mark.parametrize("version", [1, 2])
def test_it_is_opened_with_either_version_and_nothing_is_damaged(
    case: str, queue: dict[str, Any], name: str, version: int
) -> None:
    disk = put(case, name)
    rows = expected(queue, name)
    index, found = kit.recover(disk, settings(case, queue, version))
    assert found.damage == []
    live = [seq_id for first, count in index.live_runs() for seq_id in range(first, first + count)]
    given_back = {seq_id for seq_id, row in rows.items() if "position" in row}
    assert given_back <= {*live} <= rows.keys()
    assert (index.unacked, found.low) == (len(live), min(live, default=found.next_seq_id))
    sizes = {
        seq_id: int.from_bytes(record[24:28], "big") for seq_id, record, _ in index.read(0, found.next_seq_id)
    }
    assert {seq_id: sizes[seq_id] for seq_id in given_back} == {
        seq_id: rows[seq_id]["body_size"] for seq_id in given_back
    }
