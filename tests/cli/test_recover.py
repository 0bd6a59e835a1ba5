"""`warrenmq recover`, as a user types it: what it refuses, what it says, and what a kill in the middle leaves."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import warrenmq
from tests.support import golden
from tests.support.directories import bodies, contents
from tests.support.golden import files, manifest
from tests.support.source_tree import ROOT
from warrenmq.cli import main
from warrenmq.message.properties import Properties
from warrenmq.seams.real_disk import RealDisk

CASE = "c03-v1-sigkill-a"


def names(case: str) -> list[str]:
    return [queue["name"] for queue in manifest(case)["queues"]]


def recovered(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    status = main(["recover", *map(str, arguments), "--json"])
    return status, json.loads(capsys.readouterr().out)


def ours(where: Path, count: int = 30) -> Path:
    """A directory of ours, stopped."""
    with warrenmq.open(where) as broker:
        broker.declare_exchange("logs", "fanout")
        for name in ("jobs", "audit"):
            broker.declare_queue(name)
            broker.bind(name, "logs")
        for number in range(count):
            properties = Properties(priority=number % 10, headers={"n": number})
            body = b"%d" % number + b"." * (number % 4 * 3000)
            confirm = broker.publish("logs", "key", body, properties=properties)
        confirm.result()
    return where


@pytest.fixture
def bad_sectors(monkeypatch: pytest.MonkeyPatch) -> dict[Path, int]:
    """Files and the number of the sector of each that cannot be read; an empty dict, to be filled."""
    bad: dict[Path, int] = {}
    pread = os.pread

    def limited(descriptor: int, size: int, offset: int) -> bytes:
        sector = bad.get(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        if sector is None or offset >= 512 * (sector + 1):
            return pread(descriptor, size, offset)
        if offset < 512 * sector:  # as far as it can be read, as Linux does
            return pread(descriptor, min(size, 512 * sector - offset), offset)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", limited)
    return bad


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("case", "kind"), [("c02-v1-store-a", ".rdq"), ("c05-v2-clean-a", ".qs")])
def test_a_bad_sector_costs_the_messages_in_it_and_is_told(
    case: str,
    kind: str,
    seed: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    bad_sectors: dict[Path, int],
) -> None:
    node, queues = golden.lay_out(case, tmp_path / "node"), names(case)
    assert recovered(capsys, node, "--to", tmp_path / "whole")[0] == 0
    draw = random.Random(seed)
    path = draw.choice([path for path in sorted(node.rglob(f"*{kind}")) if path.stat().st_size > 2_000])
    bad_sectors[path] = draw.randrange(path.stat().st_size // 512)
    status, said = recovered(capsys, node, "--to", tmp_path / "data")
    whole, found = (
        [body for queue in queues for body in bodies(tmp_path / to, queue)] for to in ("whole", "data")
    )
    lost = len(whole) - len(found)
    assert found == [body for body in whole if body in set(found)]
    assert lost <= 40 < len(whole)
    assert status >= (lost > 0)  # the sector may be an acked message's
    assert bool(said["damaged"]) is bool(status)


def test_users_that_cannot_be_read_stay_behind_and_the_messages_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bad_sectors: dict[Path, int]
) -> None:
    source = ours(tmp_path / "ours")
    (source / "users.json").write_text("{}")
    bad_sectors[source / "users.json"] = 0
    status, said = recovered(capsys, source, "--to", tmp_path / "data")
    assert (status, [each["moved"] for each in said["queues"]]) == (0, [30, 30])
    assert ["the users cannot be read" in note for note in said["notes"]] == [True]


def test_it_says_what_it_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = golden.lay_out(CASE, tmp_path / "node")
    status, said = recovered(capsys, node, "--to", tmp_path / "data")
    assert status == 0
    assert {each["name"]: each["moved"] for each in said["queues"]} == {
        queue["name"]: len(queue["messages"]) for queue in manifest(CASE)["queues"]
    }
    assert main(["recover", str(node), "--to", str(tmp_path / "other")]) == 0
    out = capsys.readouterr().out
    assert f"{names(CASE)[0]}: 339 messages moved" in out
    assert out.endswith(f"540 messages of 2 queues moved to {tmp_path / 'other'}\n")
    assert not (tmp_path / "data.recovering").exists()


def test_again_it_moves_nothing_even_when_the_messages_were_consumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = golden.lay_out(CASE, tmp_path / "node")
    recovered(capsys, node, "--to", tmp_path / "data")
    assert len(bodies(tmp_path / "data", names(CASE)[0])) == 339
    status, said = recovered(capsys, node, "--to", tmp_path / "data")
    assert (status, said["moved"]) == (0, 0)
    assert sorted(each["already"] for each in said["queues"]) == [201, 339]
    assert bodies(tmp_path / "data", names(CASE)[0]) == []
    assert len(bodies(tmp_path / "data", names(CASE)[1])) == 201


def test_into_a_directory_of_ours_it_goes_behind_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = ours(tmp_path / "first"), ours(tmp_path / "second")
    status, said = recovered(capsys, first, "--to", second)
    assert (status, said["moved"], said["notes"]) == (0, 60, [])
    assert [int(body.rstrip(b".")) for body in bodies(second, "jobs")] == [*range(30), *range(30)]


def test_from_ours_to_ours_everything_comes_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = ours(tmp_path / "source")
    before = contents(source)
    assert recovered(capsys, source, "--to", tmp_path / "data")[0] == 0
    assert contents(source) == before
    with warrenmq.open(tmp_path / "data") as broker:
        for number in range(30):
            delivery = broker.queue("audit").get()
            assert delivery.properties == Properties(priority=number % 10, headers={"n": number})
            assert (delivery.exchange, delivery.routing_key) == ("logs", "key")
            delivery.ack()
        broker.publish("logs", "", b"new").result()  # exchange and bindings are there
        last = broker.queue("audit").get()
        assert last.body == b"new"


def test_it_says_what_has_a_time_to_live_and_what_is_delayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with warrenmq.open(tmp_path / "source") as broker:
        jobs = broker.declare_queue("jobs")
        jobs.publish(b"soon over", expiration="600000")
        jobs.publish(b"later", delay=600).result()
    assert main(["recover", str(tmp_path / "source"), "--to", str(tmp_path / "data")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("jobs: 1 message moved") + 1].startswith("  1 have a time to live;")
    assert lines[lines.index("amq.delayed: 1 message moved") + 1].startswith("  1 are to be delivered later;")


def test_virtual_hosts_keep_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = "c11-full-mnesia-a"
    node = golden.lay_out(case, tmp_path / "node")
    recovered(capsys, node, "--to", tmp_path / "data")
    for queue in manifest(case)["queues"]:
        if queue["durable"]:
            assert len(bodies(tmp_path / "data", queue["name"], queue["vhost"])) == len(queue["messages"])


def test_a_vhosts_or_a_queues_folder_will_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = golden.lay_out(CASE, tmp_path / "node")
    (vhost,) = (node / "msg_stores" / "vhosts").iterdir()
    assert recovered(capsys, vhost, "--to", tmp_path / "a")[1]["moved"] == 540
    queue = manifest(CASE)["queues"][1]
    assert recovered(capsys, node / queue["dirs"][0]["dir"], "--to", tmp_path / "b")[1]["moved"] == 201


def with_a_torn_segment(case: str) -> dict[str, bytes | None]:
    path = next(path for path in files(case) if path.endswith("/0.idx"))
    return {path: files(case)[path][:-300]}


def test_messages_that_rabbitmq_would_lose_are_reported_and_lost_ones_make_it_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = "c09-torn-v1-a"
    node = golden.lay_out(case, tmp_path / "node", with_a_torn_segment(case))
    status, said = recovered(capsys, node, "--to", tmp_path / "data")
    assert status == 1
    (queue,) = said["queues"]
    assert sum(queue["salvaged"].values()) > 0
    assert said["damaged"]
    assert len(bodies(tmp_path / "data", queue["name"])) == queue["moved"]


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("{node}", "the same directory"),
        ("{node}/data", "one lies in the other"),
        ("{strange}", "neither new nor a data directory of warrenmq"),
    ],
)
def test_what_it_refuses(to: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = golden.lay_out(CASE, tmp_path / "node")
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "letter.txt").write_text("dear")
    before = contents(tmp_path)
    assert main(["recover", str(node), "--to", to.format(node=node, strange=strange)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert contents(tmp_path) == before


def test_a_directory_that_is_open_is_refused_on_either_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node, open_one = golden.lay_out(CASE, tmp_path / "node"), tmp_path / "open"
    with warrenmq.open(open_one):
        assert main(["recover", str(open_one), "--to", str(tmp_path / "data")]) == 2
        assert main(["recover", str(node), "--to", str(open_one)]) == 2
    assert capsys.readouterr().err.count(f"{open_one} is in use by process {os.getpid()}") == 2
    assert not (tmp_path / "data").exists()


def test_a_living_rabbitmq_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from warrenmq.mend import living

    node = golden.lay_out(CASE, tmp_path / "node")
    (tmp_path / "node.pid").write_text(f"{os.getpid()}\n")
    monkeypatch.setattr(living, "_is_erlang", lambda _pid: True)
    assert main(["recover", str(node), "--to", str(tmp_path / "data")]) == 2
    assert "is in use by RabbitMQ, process" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["recover", str(node), "--to", str(tmp_path / "data")]) == 0  # this process is no broker's


@pytest.mark.parametrize(("seed", "existing"), [(1, False), (2, True)])
def test_killed_in_the_middle_and_run_again_it_gives_each_message_once_and_in_order(
    seed: int, existing: bool, tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "data"
    rng = random.Random(seed)
    with warrenmq.open(source) as broker:
        jobs = broker.declare_queue("jobs")
        for number in range(1500):
            confirm = jobs.publish(
                b"%d " % number + b"." * rng.choice((10, 100, 5000)),
                properties=Properties(priority=number % 7),
            )
        confirm.result()
    if existing:
        with warrenmq.open(target) as broker:
            broker.declare_queue("jobs").publish(b"-1 ").result()
    command = [sys.executable, "-m", "warrenmq", "recover", str(source), "--to", str(target)]
    ledgers = (target if existing else Path(f"{target}.recovering") / "data") / "recovered"
    for _ in range(2):
        kill_when_it_has_written(command, ledgers, rng.randint(1, 60_000))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [int(body.split()[0]) for body in bodies(target, "jobs")] == [*range(-1 if existing else 0, 1500)]


def test_a_target_is_what_a_link_leads_to_and_no_mount_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rename replaces neither, and fails when all messages have been moved."""
    source = ours(tmp_path / "source", 1)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert main(["recover", str(source), "--to", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "data" / "rabbit_serial").exists()
    volume = tmp_path / "volume"
    volume.mkdir()
    monkeypatch.setattr(os.path, "ismount", str(volume).__eq__)
    capsys.readouterr()
    assert main(["recover", str(source), "--to", str(volume)]) == 2
    assert "is a mount point" in capsys.readouterr().err
    assert list(volume.iterdir()) == []


def test_a_target_is_safe_under_its_name_before_the_folder_is_cleared_in_which_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run was killed between the rename and its sync: a power cut may bring the target back in that folder."""
    source, data = ours(tmp_path / "source", 1), tmp_path / "data"
    assert main(["recover", str(source), "--to", str(data)]) == 0
    workplace = tmp_path / "data.recovering"
    workplace.mkdir()
    (workplace / "warrenmq.recovering").touch()
    did: list[str] = []
    sync_dir, rmtree = RealDisk.sync_dir, RealDisk.rmtree
    monkeypatch.setattr(RealDisk, "sync_dir", lambda disk, path: (did.append(path), sync_dir(disk, path)))
    monkeypatch.setattr(RealDisk, "rmtree", lambda disk, path: (did.append(path), rmtree(disk, path)))
    assert main(["recover", str(source), "--to", str(data)]) == 0
    assert did.index(str(tmp_path)) < did.index(str(workplace))
    assert not workplace.exists()


def kill_when_it_has_written(command: list[str], ledgers: Path, size: int) -> None:
    """Run it until its ledgers have grown by so many bytes, or it ends."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    start = sum(path.stat().st_size for path in ledgers.rglob("*.log"))
    a_moment = threading.Event()
    while process.poll() is None:
        a_moment.wait(0.001)
        try:
            if sum(path.stat().st_size for path in ledgers.rglob("*.log")) > start + size:
                break
        except FileNotFoundError:  # it was renamed: done
            continue
    process.kill()
    process.wait()


def test_a_broker_that_is_not_there_gets_nothing_and_the_source_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = golden.lay_out(CASE, tmp_path / "node")
    before = contents(node)
    assert main(["recover", str(node), "--to", "amqp://127.0.0.1:1"]) == 2
    assert "127.0.0.1:1 cannot be used: no broker listens there" in capsys.readouterr().err
    assert contents(node) == before
    assert not (tmp_path / "node.recovered").exists()


def test_a_ledger_of_ones_own_is_for_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = golden.lay_out(CASE, tmp_path / "node")
    assert (
        main(["recover", str(node), "--to", str(tmp_path / "data"), "--ledger", str(tmp_path / "ledger")])
        == 2
    )
    assert "--ledger is for --to amqp://" in capsys.readouterr().err


def test_a_url_that_is_none_is_refused(tmp_path, capsys):
    with warrenmq.open(tmp_path / "data"):
        pass
    assert main(["recover", str(tmp_path / "data"), "--to", "amqp://me:secret@host:99999"]) == 2
    said = capsys.readouterr().err
    assert "amqp://...@host:99999 is no URL of a broker" in said
