"""No file may grow beyond a limit (`ulimit -f`): all files begin new ones in time, and what no file has room for is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import warrenmq
from tests.support.simulated import EVERY_KIND, SimulatedHost, take_all
from tests.support.source_tree import ROOT
from warrenmq.actors.sending.confirms import Confirm


@pytest.mark.parametrize("seed", range(32))
def test_under_any_limit_each_publish_is_confirmed_or_refused_at_once_and_nothing_confirmed_is_lost(
    seed: int,
) -> None:
    draw = Random(seed)
    settings = replace(
        EVERY_KIND[seed % len(EVERY_KIND)], commit_log=draw.random() < 0.7, disk_free_limit=0,
        queue_index_embed_msgs_below=draw.choice([100, 1000]), msg_store_file_size_limit=1 << 20,
    )  # fmt: skip
    published: list[tuple[bytes, Confirm]] = []
    taken: set[bytes] = set()
    with SimulatedHost(seed, settings) as host:
        limit = host.disk.longest_file = draw.choice([1500, 3000, 4096, 10_000, 70_000])
        for _life in range(3):
            queue = host.open().declare_queue("q")
            for _ in range(draw.randrange(1, 12)):
                sizes = [
                    draw.choice([1, 40, 300, 900, limit, limit + 500]) for _ in range(draw.randrange(1, 30))
                ]
                bodies = [b"%d " % (len(published) + place) + bytes(size) for place, size in enumerate(sizes)]
                confirms = [(body, queue.publish(body)) for body in bodies]
                host.sleep(1)
                for body, confirm in confirms:
                    assert confirm.done()
                    assert not isinstance(confirm.exception(), warrenmq.Blocked) or len(body) >= limit
                published += confirms
                for delivery in iter(queue.get, None) if draw.random() < 0.2 else ():
                    taken.add(delivery.body)
                    delivery.ack()
            assert max(map(len, host.disk.contents().values())) <= limit
            host.crash(power_cut=draw.random() < 0.7)
        host.check_trace()
        host.disk.longest_file = 1 << 30
        queue = host.open().queue("q")
        found = take_all(queue)
        confirmed = [body for body, confirm in published if confirm.exception() is None]
        assert [body for body in confirmed if body not in taken and body not in found] == []


@pytest.mark.parametrize("seed", range(16))
def test_a_limit_that_is_lowered_below_what_the_files_have_takes_effect_with_their_next_ones(
    seed: int,
) -> None:
    draw = Random(seed)
    settings = replace(EVERY_KIND[seed % len(EVERY_KIND)], commit_log=seed % 3 > 0, disk_free_limit=0)
    bodies: list[bytes] = []
    with SimulatedHost(seed, settings) as host:
        queue = host.open().declare_queue("q")
        for limit in (1 << 20, 60_000, 8_000, 4_000):
            host.disk.longest_file = limit
            for _ in range(20):
                body = b"%d " % len(bodies) + bytes(draw.choice([300, 900, 1400]))
                queue.publish(body).result(5)
                bodies.append(body)
        host.crash(power_cut=True)
        assert take_all(host.open().queue("q")) == bodies


@pytest.mark.parametrize("seed", range(32))
def test_what_waits_to_be_written_when_the_limit_is_lowered_is_confirmed_or_nacked(seed: int) -> None:
    draw = Random(f"lowered {seed}")
    settings = replace(EVERY_KIND[seed % len(EVERY_KIND)], commit_log=draw.random() < 0.6, disk_free_limit=0)
    bodies = [b"%d " % number + bytes(draw.choice([5, 80, 300, 900])) for number in range(50)]
    already = draw.randrange(40)
    with SimulatedHost(seed, settings) as host:
        queue = host.open().declare_queue("q")
        for body in bodies[:already]:
            queue.publish(body).result()
        confirms = [queue.publish(body) for body in bodies[already:]]
        host.sleep(draw.choice([0, 0, 0.0001, 0.001]))
        host.disk.longest_file = draw.choice([0, 100, 600, 2000, 5000])
        host.sleep(5)
        answers = [confirm.exception() for confirm in confirms if confirm.done()]
        assert len(answers) == len(confirms)
        assert all("the system lets no file grow" in str(each) for each in answers if each is not None)
        host.disk.longest_file = 1 << 30
        host.sleep(5)
        queue.publish(b"after").result()
        host.crash(power_cut=True)
        found = take_all(host.open().queue("q"))
        confirmed = [body for body, answer in zip(bodies[already:], answers, strict=True) if answer is None]
        assert {*bodies[:already], *confirmed, b"after"} <= {*found}
        host.check_trace()


def test_the_refusal_names_the_limit_and_spares_the_messages_beside_it() -> None:
    with SimulatedHost(3, replace(EVERY_KIND[0], commit_log=False)) as host:
        queue = host.open().declare_queue("q")
        host.disk.longest_file = 2000
        confirms = [queue.publish(bytes(size)) for size in (10, 3000, 10)]
        confirms[0].result()
        confirms[2].result()
        with pytest.raises(warrenmq.Blocked) as refused:
            confirms[1].result()
        assert str(refused.value) == (
            "the system lets no file grow beyond 2,000 bytes, too few for this message: "
            "queue 'q' takes it when that limit (ulimit -f) is raised"
        )
        host.disk.longest_file = 20
        with pytest.raises(warrenmq.Blocked, match="too few for its own files"):
            queue.publish(b"small").result()


REAL = """
import resource, sys, warrenmq

resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
with warrenmq.open(sys.argv[1], settings={"profile": sys.argv[2]}) as broker:
    queue = broker.declare_queue("q")
    for size in (100, 3_000, 50_000):
        for _ in range(40):
            queue.publish(bytes(size)).result(30)
    try:
        queue.publish(bytes(400_000)).result(30)
    except warrenmq.Blocked as refused:
        print(refused)
with warrenmq.open(sys.argv[1]) as broker:
    print(len(broker.queue("q")))
"""


@pytest.mark.parametrize("profile", ["modern", "classic"])
def test_a_limit_of_the_system_is_met_by_no_write(tmp_path: Path, profile: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REAL, str(tmp_path), profile],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    refusal, count = done.stdout.splitlines()
    assert (done.returncode, count) == (0, "120"), done.stderr
    assert refusal.startswith("the system lets no file grow beyond 400,000 bytes, too few for this message")
