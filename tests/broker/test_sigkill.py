"""A real process is killed with SIGKILL, again and again on one directory: what it was promised is there."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import warrenmq
from tests.broker.ledger import Ledger
from tests.broker.sigkill_victim import QUEUES, SETTINGS, number_of
from tests.support.source_tree import ROOT
from warrenmq.replay.drive.engine import replay

DECLARING = """
import os, sys, warrenmq
broker = warrenmq.open(sys.argv[1])
broker.declare_queue(sys.argv[2])
broker.declare_exchange("all", "fanout")
broker.bind(sys.argv[2], "all")
os.write(1, b"declared and bound\\n")
sys.stdin.read()
"""


@contextmanager
def child(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process of ours that does not outlive the test."""
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


class Witness:
    """Listens to the victims, and compares what a new one finds with what the old ones were promised."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.next_number = 1
        self.declared: set[str] = set()
        self.found: set[str] = set()
        self.lines = 0

    def begin(self) -> None:
        self.found.clear()
        self.lines = 0

    def hear(self, line: str) -> None:
        if not line.endswith("\n"):
            return  # cut off
        self.lines += 1
        what, *words = line.split()
        match what:
            case "found":
                self.found.add(words[0])
                self.ledger.check(words[0], list(map(int, words[1:])))
            case "references":
                assert self.declared <= self.found
            case "declared":
                self.declared.add(words[0])
            case "publish":
                for number in map(int, words[1:]):
                    self.ledger.published(number, words[0].split(","))
                    self.next_number = number + 1
            case "confirmed":
                for number in map(int, words):
                    self.ledger.confirmed(number)
            case "ack":
                self.ledger.settled(words[0], int(words[1]))
            case "paused":
                for name in QUEUES:
                    self.ledger.synced(name)


def live_and_die(witness: Witness, data: Path, trace: Path, seed: int, lines: int) -> None:
    """One process, killed when it has said so many lines."""
    witness.begin()
    with child("-m", "tests.broker.sigkill_victim", data, trace, seed, witness.next_number) as process:
        assert process.stdout is not None
        for line in process.stdout:
            witness.hear(line)
            if witness.lines == lines:
                process.kill()
    assert process.returncode < 0, "it ended before it was killed"


def test_confirmed_messages_survive_sigkill(tmp_path: Path) -> None:
    seed, rounds = 1, 6
    data, trace = tmp_path / "data", tmp_path / "trace"
    chance = random.Random(seed)
    witness = Witness()
    for number in range(rounds):
        live_and_die(witness, data, trace, seed * 1000 + number, int(2 ** chance.uniform(2, 10)))
    with warrenmq.open(data, settings=SETTINGS, trace=trace) as broker:
        large: list[int] = []
        for name in sorted(witness.declared):
            bodies = [delivery.body for delivery in iter(broker.queue(name).get, None)]
            numbers = list(map(number_of, bodies))
            witness.ledger.check(name, numbers)
            large += [number for number, body in zip(numbers, bodies, strict=True) if len(body) >= 4096]
        store = next(each for each in broker.stats().stores if each.name == "msg_store_persistent")
        assert (store.references, store.messages) == (len(large), len(set(large)))
        assert not (data / "quarantine").exists() or not list((data / "quarantine").iterdir())
    result = replay(trace)
    assert result.verdict == "ok", "\n".join(map(str, [*result.violations, *result.indeterminate]))
    assert result.figures["runs"] == rounds + 1


def test_a_declare_and_a_bind_that_returned_survive_sigkill(tmp_path: Path) -> None:
    names = [f"queue {number}" for number in range(4)]
    for name in names:
        with child("-c", DECLARING, tmp_path, name) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "declared and bound\n"
            process.kill()
    with warrenmq.open(tmp_path) as broker:
        broker.publish("all", "", b"for all of them").result()
        assert [broker.queue(name).info().ready for name in names] == [1] * 4
