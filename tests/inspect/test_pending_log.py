"""Directories whose commit log has what their files lack: reading verbs see what a start would give, and write nothing."""

import shutil

import pytest

import warrenmq
from tests.support.directories import check, fingerprint, say
from tests.support.simulated import SMALL, SMALL_CLASSIC, SimulatedHost
from warrenmq.commit_log.contents import FILE_NAMES, read
from warrenmq.mend.compact import compact
from warrenmq.mend.repair import repair
from warrenmq.seams.disk import SECTOR
from warrenmq.seams.real_disk import RealDisk
from warrenmq.settings import Settings
from warrenmq.testing.machine import DATA

BODIES = [b"%d " % n + b"." * (n % 5 * 60) for n in range(40)]
EXPECTED = [body.decode() for body in BODIES[5:]]


@pytest.fixture(params=[SMALL_CLASSIC, SMALL], ids=["classic", "modern"])
def data(request, tmp_path):
    """A directory after a power cut that took everything but the log; the first five messages were acked, and synced so."""
    settings = {each: getattr(request.param, each) for each in request.param.__slots__} | {"commit_log": True}
    for seed in range(1, 100):
        with SimulatedHost(seed, Settings(**settings), traced=False) as host:
            broker = host.open()
            queue = broker.declare_queue("q")
            host.sleep(1.0)
            queue.publish_many(BODIES).result()
            for _ in range(5):
                queue.get(timeout=1.0).ack()
            host.sleep(1.0)
            host.crash(power_cut=True)
            lacks = any(
                host.disk.read(f"{DATA}/{name}")[at : at + len(data)] != data
                for name, extents in read(host.disk, DATA).writes.items()
                for at, data in extents
                if host.disk.exists(f"{DATA}/{name}")
            )
            if lacks:
                return written_to(host, tmp_path / "data")
    raise AssertionError("the files had everything each time")


def written_to(host, where):
    for path in host.disk._files:
        target = where / path.removeprefix(f"{DATA}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(host.disk.read(path))
    (where / "warrenmq.owner").write_text("1\nnowhere\nonce\n")
    return where


def bodies(found):
    return [row["body"] if "body" in row else row["sha256"] for row in found["queues"][0]["messages"]]


def test_reading_verbs_see_what_a_start_would_give_and_write_nothing(data):
    before = fingerprint(data)
    status, found = check(data)
    assert (status, found["damaged"]) == (0, [])
    assert len(found["queues"][0]["messages"]) == 35
    queue = next(data.glob("msg_stores/vhosts/*/queues/*"))
    assert check(queue)[1]["queues"][0]["messages"] == found["queues"][0]["messages"]
    (data / "msg_stores").rename(data / "volume")
    (data / "msg_stores").symlink_to(data / "volume")  # to which the log was not applied
    assert check(data) == (status, found)
    (data / "msg_stores").unlink()
    (data / "volume").rename(data / "msg_stores")
    status, said = say("ls", str(data))
    assert (status, "35" in said) == (0, True)
    assert say("peek", str(data), "q", "--limit", "1")[0] == 0
    assert repair(str(data), dry_run=True).changes == []
    assert fingerprint(data) == before
    with warrenmq.open(data) as broker:
        assert [each.body.decode() for each in iter(broker.queue("q").get, None)] == EXPECTED


def test_recover_moves_what_only_the_log_has(data, tmp_path):
    assert say("recover", str(data), "--to", str(tmp_path / "new"))[0] == 0
    with warrenmq.open(tmp_path / "new") as broker:
        assert [each.body.decode() for each in iter(broker.queue("q").get, None)] == EXPECTED


@pytest.mark.parametrize(
    ("mend", "folder"), [(lambda path: repair(path, dry_run=False), "."), (compact, "msg_stores")]
)
def test_who_mends_a_directory_replays_its_log_first(data, mend, folder):
    mend(str(data / folder))
    assert not [name for name in FILE_NAMES if (data / name).exists()]
    with warrenmq.open(data, settings={"commit_log": True}) as broker:
        assert [each.body.decode() for each in iter(broker.queue("q").get, None)] == EXPECTED


def test_a_damaged_log_is_told(data):
    log = next(data / name for name in FILE_NAMES if (data / name).stat().st_size)
    whole = bytearray(log.read_bytes())
    whole[SECTOR : SECTOR + 100] = bytes(100)
    log.write_bytes(whole)
    status, found = check(data)
    assert status == 1
    assert any(each["file"] == log.name and "cannot be read" in each["reason"] for each in found["damaged"])
    assert "of the commit log cannot be read" in say("check", str(data))[1]
    warrenmq.open(data, settings={"commit_log": True}).close()
    kept = list((data / "quarantine").glob(f"{log.name}-*"))
    assert [each.read_bytes() for each in kept] == [bytes(whole)]
    assert not read(RealDisk(), str(data)).damage


def test_the_log_of_a_running_broker_adds_nothing(tmp_path):
    settings = {"commit_log": True}
    with warrenmq.open(tmp_path / "data", settings=settings) as broker:
        queue = broker.declare_queue("q")
        for body in BODIES:
            queue.publish(body).result()
        for _ in range(5):
            queue.get().ack()
        queue.publish(b"last").result()
        found = check(tmp_path / "data")[1]
        assert len(found["queues"][0]["messages"]) == 36
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert len(check(tmp_path / "copy")[1]["queues"][0]["messages"]) == 36
    assert len(check(tmp_path / "data")[1]["queues"][0]["messages"]) == 36
