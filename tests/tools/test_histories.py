"""Histories of a real server: recorded under kills and pauses, checked, and written as EDN."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest

from tools.histories import History, Operation, Plan, check, record
from warrenmq.simulate.messages import PromiseBroken

if TYPE_CHECKING:
    from pathlib import Path

LINE = re.compile(
    r"\{:index \d+, :time \d+, :type :(invoke|ok|fail|info), :process (\d+|:nemesis), :f :(enqueue|dequeue|drain|kill|restart|pause), "
    r":value (nil|-?\d+|\[[\d ]*\])(, :error :\w+)?(, :redelivered true)?\}"
)
RESTART = Operation("info", "nemesis", "restart")


def enqueue(value: int, process: int = 0) -> list[Operation]:
    return [Operation("invoke", process, "enqueue", value), Operation("ok", process, "enqueue", value)]


def dequeue(value: int, kind: str = "ok", *, redelivered: bool = False) -> list[Operation]:
    return [Operation("invoke", 1, "dequeue"), Operation(kind, 1, "dequeue", value, redelivered=redelivered)]


def drain(*values: int, redelivered: bool = True) -> list[Operation]:
    drained = Operation("ok", 2, "drain", list(values), redelivered=redelivered)
    return [RESTART, Operation("invoke", 2, "drain"), drained]


def test_a_server_that_is_killed_and_paused_keeps_its_promises(tmp_path: Path) -> None:
    history = record(Plan(1.0, tmp_path / "data", every=0.5, seed=1))
    counted = check(history.operations)
    assert counted["ok enqueue"] > 10
    assert counted["ok dequeue"] > 10
    assert counted["info kill"] > 1
    text = io.StringIO()
    history.write(text)
    lines = text.getvalue().splitlines()
    assert len(lines) == len(history.operations)
    assert all(LINE.fullmatch(line) for line in lines)


@pytest.mark.parametrize(
    "operations",
    [
        [*enqueue(1), *enqueue(2), *dequeue(1), *drain(2)],
        [*enqueue(1), *dequeue(1), *drain(1)],  # acks of the last moments may be lost
        [*enqueue(1), *dequeue(1, "info"), *dequeue(1, redelivered=True), *drain()],
        [*enqueue(1), *dequeue(1), RESTART, *dequeue(1, redelivered=True), *drain()],
        [*enqueue(1), Operation("info", "nemesis", "kill"), *dequeue(1), RESTART, *dequeue(1, redelivered=True), *drain()],
        [enqueue(1)[0], *dequeue(1), RESTART, enqueue(1)[1], *drain()],  # its confirm was seen last
        [*enqueue(1), *enqueue(2)[:1], Operation("info", 0, "enqueue", 2), *drain(1)],
    ],
)  # fmt: skip
def test_what_may_happen_is_passed(operations: list[Operation]) -> None:
    check(operations)


@pytest.mark.parametrize(
    ("operations", "promise"),
    [
        ([*enqueue(1), *drain()], "lost"),
        ([*enqueue(1), RESTART, *enqueue(2), *drain(2)], "lost"),
        ([*enqueue(1), *drain(1, 7)], "came from nowhere"),
        ([*enqueue(1), *dequeue(-1), *drain(1)], "came from nowhere"),
        ([*enqueue(1), *dequeue(1), *dequeue(1, redelivered=True), *drain()], "delivered twice"),
        ([*enqueue(1), *dequeue(1), RESTART, *dequeue(1), *drain()], "redelivered flag"),
        ([*enqueue(1), *dequeue(1, "info"), *dequeue(1), *drain()], "redelivered flag"),
        ([*enqueue(1), *drain(1, 1)], "recovered twice"),
        ([*enqueue(1), *enqueue(2), *drain(2, 1)], "order"),
        ([*enqueue(1), *drain(1, redelivered=False)], "redelivered flag"),
        (enqueue(1), "nothing tried"),
        (drain(), "nothing tried"),
    ],
)
def test_a_planted_violation_is_found(operations: list[Operation], promise: str) -> None:
    with pytest.raises(PromiseBroken) as broken:
        check(operations)
    assert broken.value.promise == promise


def test_operations_are_numbered_in_the_order_in_which_they_were_seen() -> None:
    history = History()
    for operation in [*enqueue(1), *drain(1)]:
        history.add(operation)
    text = io.StringIO()
    history.write(text)
    assert [int(line.split()[1].rstrip(",")) for line in text.getvalue().splitlines()] == [0, 1, 2, 3, 4]
