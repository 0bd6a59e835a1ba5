"""The state that a replay ends with is the one that the broker had, field by field."""

from __future__ import annotations

import random
import shutil
from dataclasses import asdict, replace

import pytest

import warrenmq
from tests.support.simulated import BOTH_PROFILES, SMALL, SimulatedHost
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import A, write_trace
from warrenmq.replay.drive.engine import replay, replay_memory
from warrenmq.replay.drive.result import Result
from warrenmq.trace.events import PRIORITY_SHIFT, Ev

FILE_FIELDS = ("file", "file_size", "valid_total_size", "locked")


def of_the_broker(broker) -> dict:
    """The broker's statistics under the replay's names, and the next messages of its queues."""
    stats = broker.stats()
    return {
        "queues": {
            f"queue:{each.name}": {"ready": each.ready, "unacked": each.unacked} for each in stats.queues
        },
        "stores": {
            each.name: {
                "messages": each.messages,
                "references": each.references,
                "current_file": each.current_file,
                "file_count": len(each.files),
                "files": [{name: asdict(file)[name] for name in FILE_FIELDS} for file in each.files],
            }
            for each in stats.stores
        },
    }


def of_the_replay(result: Result, run: int = -1) -> dict:
    state = list(result.figures["state"].values())[run]
    for queue in state["queues"].values():
        assert queue.pop("next_seq_id") >= 0
    return state


def work(broker, rng, *, steps: int) -> None:
    """Publish to three queues, take, ack, reject, purge, delete one; leave some unacked."""
    queues = [
        broker.declare_queue("a"), broker.declare_queue("b", arguments={"x-max-priority": 3}),
        broker.declare_queue("c", durable=False), broker.declare_queue("short", arguments={"x-max-length": 2}),
    ]  # fmt: skip
    gone = broker.declare_queue("gone")
    gone.publish(b"x" * 5_000).result()
    exchange = broker.declare_exchange("all", "fanout")
    for queue in queues:
        broker.bind(queue, exchange)
    held = []
    for _ in range(steps):
        queue = rng.choice(queues)
        match rng.randrange(6):
            case 0 | 1:
                queue.publish(b"m" * rng.choice((5, 3_000)), persistent=rng.random() < 0.8).result()
            case 2:
                exchange.publish("", b"f" * rng.choice((5, 2_000))).result()
            case 3:
                if (message := queue.get(0)) is not None:
                    held.append(message)
            case 4:
                if held:
                    message = held.pop(rng.randrange(len(held)))
                    message.ack() if rng.random() < 0.7 else message.reject(requeue=rng.random() < 0.5)
            case _:
                if rng.random() < 0.1:
                    queue.purge()
    broker.delete_queue("gone")


@pytest.mark.parametrize("profile", BOTH_PROFILES)
@pytest.mark.parametrize("seed", range(3))
def test_a_simulated_broker_ends_as_the_replay_says(profile, seed):
    host = SimulatedHost(seed, BOTH_PROFILES[profile])
    rng = random.Random(seed)
    for _ in range(2):
        broker = host.open()
        work(broker, rng, steps=80)
        host.sleep(1)
        # what the closing broker does to the messages of transient queues comes after this
        said, rows = of_the_broker(broker), host.sink.files()
        broker.close()
        assert of_the_replay(replay_memory(rows)) == said
    result = replay_memory(host.sink.files())
    assert result.verdict == "ok", [*result.violations, *result.indeterminate]
    host.close()


@pytest.mark.parametrize("profile", BOTH_PROFILES)
def test_a_broker_of_threads_ends_as_the_replay_says(profile, tmp_path):
    settings = replace(BOTH_PROFILES[profile], msg_store_file_size_limit=20_000)
    with warrenmq.open(tmp_path / "data", settings=settings, trace=tmp_path / "trace") as broker:
        work(broker, random.Random(7), steps=120)
        said = settled(broker)
        shutil.copytree(tmp_path / "trace", tmp_path / "just before")
    assert of_the_replay(replay(tmp_path / "just before")) == said
    result = replay(tmp_path / "trace")
    assert result.verdict == "ok", [*result.violations, *result.indeterminate]


def settled(broker) -> dict:
    """The broker's statistics once they are the same twice: threads may still be at work."""
    for _ in range(1000):
        once, again = of_the_broker(broker), of_the_broker(broker)
        if once == again and not any(
            each["locked"] for store in again["stores"].values() for each in store["files"]
        ):
            return again
    pytest.fail("it never came to rest")


def test_the_next_sequence_id_is_the_one_that_the_queue_says_when_it_stops():
    result = replay_memory(write_trace(runs := consistent_trace(4)))
    said = {
        actor.name: row[6] for actor in runs[-1].of("QueueProcess") for row in actor.find(Ev.QUEUE_CLOSED)
    }
    state = result.figures["state"][runs[-1].name]["queues"]
    assert {name: queue["next_seq_id"] for name, queue in state.items()} == said


def test_ids_of_higher_priorities_are_not_the_next_one(tmp_path):
    with warrenmq.open(tmp_path / "data", trace=tmp_path / "trace") as broker:
        queue = broker.declare_queue("p", arguments={"x-max-priority": 5})
        for priority in (5, 0, 5):
            queue.publish(b"m", properties=warrenmq.Properties(priority=priority)).result()
    result = replay(tmp_path / "trace")
    (state,) = result.figures["state"].values()
    assert state["queues"]["queue:p"] == {"ready": 3, "unacked": 0, "next_seq_id": 1}
    assert 1 << PRIORITY_SHIFT > 1
    assert result.verdict == "ok"


def test_a_queues_own_counts_are_not_used_when_rows_are_missing():
    runs = consistent_trace(4)
    queue = runs[-1].of("QueueProcess")[0]
    queue.find(Ev.QUEUE_CLOSED)[0][A] += 1
    del queue.rows[5:8]
    result = replay_memory(write_trace(runs))
    assert "E1" not in {finding.rule for finding in result.violations}
    assert "E1" in {finding.rule for finding in result.indeterminate}


def test_a_killed_run_has_a_state_too():
    host = SimulatedHost(1, SMALL)
    broker = host.open()
    work(broker, random.Random(1), steps=60)
    host.sleep(1)
    said = of_the_broker(broker)
    host.crash(power_cut=False)
    assert of_the_replay(replay_memory(host.sink.files())) == said
    host.close()
