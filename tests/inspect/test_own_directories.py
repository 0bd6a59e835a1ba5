"""The reading verbs on directories of ours: closed, copied while open (what a crash leaves), and in use."""

import hashlib
import shutil
import threading
from zlib import crc32

import msgpack
import pytest

import warrenmq
from tests.support.directories import check, fingerprint, say
from tests.support.limits import LIMIT
from warrenmq.settings import Settings

BODIES = [b"%d " % n * (n % 7 * 700 + 1) for n in range(60)]
"""Some embedded, some in the store."""


def sha256(body):
    return hashlib.sha256(body).hexdigest()


@pytest.fixture(params=[1, 2])
def settings(request):
    return Settings(queue_version=request.param)


def fill(broker):
    jobs = broker.declare_queue("jobs")
    broker.declare_queue("empty")
    broker.declare_exchange("all", "fanout")
    broker.declare_queue("copies")
    broker.bind("copies", "all")
    broker.bind("jobs", "all")
    for body in BODIES[:-2]:
        jobs.publish(body).result()
    properties = warrenmq.Properties(headers={"n": 7, "t": "x"}, message_id="m", priority=3)
    for body in BODIES[-2:]:
        broker.publish("all", "key", body, properties=properties).result()
    jobs.publish(b"not kept", persistent=False).result()
    for _ in range(5):
        jobs.get(timeout=LIMIT).ack()
    return jobs


def test_a_closed_directory_is_listed_message_by_message(settings, tmp_path):
    with warrenmq.open(tmp_path, settings=settings) as broker:
        fill(broker)
    before = fingerprint(tmp_path)
    status, found = check(tmp_path)
    assert fingerprint(tmp_path) == before
    assert (status, found["damaged"], found["in_use"]) == (0, [], False)
    queues = {each["name"]: each for each in found["queues"]}
    assert queues.keys() == {"jobs", "empty", "copies"}
    assert queues["jobs"]["version"] == settings.queue_version
    assert queues["jobs"]["durable"] is True
    assert [row["sha256"] for row in queues["jobs"]["messages"]] == [sha256(body) for body in BODIES[5:]]
    assert {row["redelivered"] for row in queues["jobs"]["messages"]} == {False}
    last = queues["copies"]["messages"][-1]
    assert (last["exchange"], last["routing_key"], last["routing_keys"]) == ("all", "key", ["key"])
    assert last["properties"]["message_id"] == "m"
    assert [[row[0], row[2]] for row in last["properties"]["headers"]] == [["n", 7], ["t", "x"]]


def test_a_copy_of_an_open_directory_has_what_was_confirmed(settings, tmp_path):
    with warrenmq.open(tmp_path / "data", settings=settings) as broker:
        fill(broker)
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
    status, found = check(tmp_path / "copy")
    queues = {each["name"]: each for each in found["queues"]}
    shas = [row["sha256"] for row in queues["jobs"]["messages"]]
    assert [each for each in shas if each in {sha256(body) for body in BODIES[5:]}] == [
        sha256(body) for body in BODIES[5:]
    ]
    assert {row["redelivered"] for row in queues["jobs"]["messages"]} == {True}
    assert (status, found["damaged"]) == (0, [])


def test_a_directory_in_use_is_read_without_harm(settings, tmp_path):
    stop = threading.Event()
    with warrenmq.open(tmp_path, settings=settings) as broker:
        jobs = fill(broker)

        def work():
            while not stop.is_set():
                for body in BODIES:
                    jobs.publish(body).result()
                for _ in range(50):
                    if (delivery := jobs.get()) is not None:
                        delivery.ack()

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for verb in ("check", "ls", "stats", "check", "peek"):
                status, found = check(tmp_path, verb=verb, more=("jobs",) if verb == "peek" else ())
                assert status == 0
                assert found.get("damaged", []) == []
        finally:
            stop.set()
            worker.join()


def test_a_clean_stop_is_ours_whatever_its_checksum_begins_with(tmp_path):
    """A checksum that begins as RabbitMQ's clean.dot does had the summary read as RabbitMQ's, and called damaged."""
    with warrenmq.open(tmp_path) as broker:
        fill(broker)
    store = next(tmp_path.glob("msg_stores/vhosts/*/msg_store_persistent"))
    version, _, index_checksum = msgpack.unpackb((store / "clean.dot").read_bytes()[4:])
    rows = msgpack.unpackb((store / "file_summary.ets").read_bytes()[4:])
    for valid in range(10_000):  # which is not compared
        summary = msgpack.packb(rows[:8] + valid.to_bytes(8, "big") + rows[16:])
        clean = msgpack.packb([version, crc32(summary), index_checksum])
        if crc32(clean) >> 24 == ord("{"):
            break
    for name, packed in (("file_summary.ets", summary), ("clean.dot", clean)):
        (store / name).write_bytes(crc32(packed).to_bytes(4, "big") + packed)
    status, found = check(tmp_path)
    assert (status, found["damaged"]) == (0, [])


def test_the_printed_report_says_the_same(tmp_path):
    with warrenmq.open(tmp_path) as broker:
        fill(broker)
    status, out = say("check", str(tmp_path))
    assert status == 0
    assert out.splitlines()[-1] == "Nothing is wrong."
    assert all(len(line) <= 80 for line in out.splitlines())
    status, out = say("peek", str(tmp_path), "copies", "--limit", "1")
    assert status == 0
    assert "all -> key" in out
    assert "... 1 message shown" in out


@pytest.mark.parametrize("body", [b"small " * 10, b"large " * 1_000], ids=["small", "large"])
def test_the_printed_report_finds_a_bit_that_turned_in_a_body(body, settings, tmp_path):
    """Beside the index and in a store; the report used to look at the headers alone, and found nothing wrong."""
    with warrenmq.open(tmp_path, settings=settings) as broker:
        broker.declare_queue("jobs").publish(body).result()
    [damaged] = [
        each for each in tmp_path.glob("msg_stores/**/*.*") if each.is_file() and body in each.read_bytes()
    ]
    damaged.write_bytes(damaged.read_bytes().replace(body[:5], body[:4] + b"_"))
    status, out = say("check", str(tmp_path))
    assert status == 1
    assert f"{damaged.name}, byte " in out
    assert say("compact", str(tmp_path))[0] == 2
