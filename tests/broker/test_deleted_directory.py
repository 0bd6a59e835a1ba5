"""The data directory, or a part of it, is deleted while a broker runs: nothing is confirmed into files without a name, and that is told."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import warrenmq
from tests.support.simulated import SMALL, SimulatedHost
from warrenmq.broker.handles import QueueHandle

BOTH = pytest.mark.parametrize(
    ("profile", "commit_log"), [("modern", True), ("modern", False), ("classic", True), ("classic", False)]
)


def confirmed(queue: QueueHandle, bodies: list[bytes]) -> list[bytes]:
    """Publish one after the other; returns those that were confirmed."""
    safe = []
    for body in bodies:
        try:
            queue.publish(body).result(timeout=60)
        except warrenmq.Nacked:
            continue
        safe.append(body)
    return safe


def taken(queue: QueueHandle) -> list[bytes]:
    bodies = []
    while (delivery := queue.get()) is not None:
        bodies.append(delivery.body)
        delivery.ack()
    return bodies


@BOTH
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_deleted_directory_confirms_nothing_and_is_not_begun_anew(
    tmp_path: Path, profile: str, commit_log: bool, durability: str
) -> None:
    settings = {"profile": profile, "commit_log": commit_log, "durability": durability}
    broker = warrenmq.open(tmp_path / "data", settings=settings)
    queue = broker.declare_queue("q")
    assert confirmed(queue, [b"before"])
    (tmp_path / "data").rename(tmp_path / "trash")
    assert confirmed(queue, [b"moved"]), "nothing is lost yet: the files are there, under other names"
    shutil.rmtree(tmp_path / "trash")
    with pytest.raises(warrenmq.BrokerClosed, match=r"gave up after FileNotFoundError.*moved or deleted"):
        while True:
            assert not confirmed(queue, [b"after"])
    broker.close()
    assert not (tmp_path / "data").exists()


@BOTH
@pytest.mark.parametrize(
    ("part", "size"), [("queues/*", 10), ("queues/*/[0j]*", 10), ("msg_store_persistent", 9_000)]
)
def test_a_deleted_part_is_damage_and_what_is_confirmed_afterwards_is_there(
    tmp_path: Path, profile: str, commit_log: bool, part: str, size: int
) -> None:
    data = tmp_path / "data"
    bodies = [b"%d" % number + bytes(size) for number in range(20)]
    with warrenmq.open(data, settings={"profile": profile, "commit_log": commit_log}) as broker:
        queue = broker.declare_queue("q")
        assert confirmed(queue, [b"before" + bytes(size)])
        for path in data.glob(f"msg_stores/vhosts/*/{part}"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        safe = confirmed(queue, bodies)
        assert 0 < len(safe) < len(bodies)
        damage = broker.stats().damage
        assert any("deleted while the broker had it open" in each.reason for each in damage)
    with warrenmq.open(data) as broker:
        assert [body for body in taken(broker.queue("q")) if not body.startswith(b"before")] == safe


def test_a_deleted_commit_log_ends_the_broker_and_costs_nothing_that_was_confirmed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = warrenmq.open(data)
    queue = broker.declare_queue("q")
    assert confirmed(queue, [b"before"])
    for path in data.glob("warrenmq.log.*"):
        path.unlink()
    with pytest.raises(warrenmq.BrokerClosed, match=r"gave up after FileDeleted: .*warrenmq\.log\.\d"):
        while True:
            assert not confirmed(queue, [b"after"])
    broker.close()
    with warrenmq.open(data) as broker:
        assert "the commit log is gone" in broker.stats().damage[0].reason
        assert taken(broker.queue("q"))[0] == b"before"


def test_a_sleeping_queue_whose_folder_was_deleted_wakes_with_damage() -> None:
    with SimulatedHost(1, replace(SMALL, queue_sleep_after=1_000), traced=False) as host:
        broker = host.open()
        for name in ("full", "empty"):
            broker.declare_queue(name).publish(b"x").result()
        broker.queue("empty").get().ack()
        host.sleep(10)
        directory = broker.inside.vhost.directory.queues
        for folder in host.disk.listdir(directory):
            host.disk.rmtree(f"{directory}/{folder}")
        for name in ("full", "empty"):
            assert confirmed(broker.queue(name), [b"after"])
        assert [each.reason for each in broker.stats().damage] == [
            "queue 'full' is declared in it, and its folder is gone, with its messages"
        ]
        broker.close()
        assert taken(host.open().queue("full")) == [b"after"]


def test_a_deleted_log_of_definitions_is_written_anew(tmp_path: Path) -> None:
    with warrenmq.open(tmp_path / "data") as broker:
        broker.declare_queue("a")
        for path in (tmp_path / "data").glob("msg_stores/vhosts/*/definitions.log"):
            path.unlink()
        broker.declare_queue("b")
    with warrenmq.open(tmp_path / "data") as broker:
        assert {each.name for each in broker.queues()} == {"a", "b"}
