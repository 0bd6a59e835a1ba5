"""Histories of a real server: recorded under kills and pauses, checked, and written as EDN."""

from __future__ import annotations

import io
import re
import time
from typing import TYPE_CHECKING

import pytest

from tools import histories
from tools.histories import History, Operation, Plan, check, record
from tools.skewed import set_ahead, skew
from warrenmq.simulate.messages import PromiseBroken

if TYPE_CHECKING:
    from pathlib import Path

LINE = re.compile(
    r"\{:index \d+, :time \d+, :type :(invoke|ok|fail|info), :process (\d+|:nemesis), :f :(enqueue|dequeue|drain|kill|restart|pause|clock), "
    r":value (nil|-?\d+|\[[\d ]*\])(, :error :\w+)?(, :redelivered true)?(, :acked false)?\}"
)
RESTART = Operation("info", "nemesis", "restart")


def enqueue(value: int, process: int = 0) -> list[Operation]:
    return [Operation("invoke", process, "enqueue", value), Operation("ok", process, "enqueue", value)]


def dequeue(value: int, *, acked: bool = True, redelivered: bool = False) -> list[Operation]:
    got = Operation("ok", 1, "dequeue", value, redelivered=redelivered, acked=acked)
    return [Operation("invoke", 1, "dequeue"), got]


def drain(*values: int, redelivered: bool = True) -> list[Operation]:
    drained = Operation("ok", 2, "drain", list(values), redelivered=redelivered)
    return [RESTART, Operation("invoke", 2, "drain"), drained]


def test_a_server_with_faults_keeps_its_promises(tmp_path: Path) -> None:
    history = record(Plan(1.0, tmp_path / "data", ("clock", "kill", "pause"), every=0.1, seed=1))
    counted = check(history.operations)
    assert counted["ok enqueue"] > 10
    assert counted["ok dequeue"] > 10
    assert counted["info kill"] > 1
    text = io.StringIO()
    history.write(text)
    lines = text.getvalue().splitlines()
    assert len(lines) == len(history.operations)
    assert all(LINE.fullmatch(line) for line in lines)
    in_pairs(history.operations)


def test_a_programs_wall_clock_is_as_wrong_as_its_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", time.time)  # and put back
    monkeypatch.setattr(time, "time_ns", time.time_ns)
    right, file = time.time_ns, tmp_path / "clock"
    set_ahead(file, 0.0)
    skew(file)
    for seconds in (0, 86_400, -86_400):
        set_ahead(file, seconds)
        before, now, after = right(), time.time_ns() - seconds * 10**9, right()
        assert before <= now <= after
        assert abs(time.time() - seconds - after / 1e9) < 3_600


def test_a_client_that_is_not_there_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(histories, "ensure", lambda: None)
    monkeypatch.setattr(histories, "HOME", tmp_path)
    with pytest.raises(SystemExit):
        histories.main(["--amqplib", "1"])
    assert "amqplib is not there" in capsys.readouterr().err


def in_pairs(operations: list[Operation]) -> None:
    """Each process has one operation open at most, completes what it invoked, and ends with an info."""
    opened: dict[int | str, Operation] = {}
    ended: set[int | str] = set()
    for each in operations:
        if each.process == "nemesis":
            assert each.type == "info"
        elif each.type == "invoke":
            assert each.process not in {*opened, *ended}
            opened[each.process] = each
        else:
            asked = opened.pop(each.process)
            assert asked.f == each.f
            assert asked.value in (each.value, None)
            ended |= {each.process} if each.type == "info" else set()
    assert opened == {}
    values = [each.value for each in operations if each.type == "invoke" and each.f == "enqueue"]
    assert len(values) == len(set(values))


@pytest.mark.parametrize(
    "operations",
    [
        [*enqueue(1), *enqueue(2), *dequeue(1), *drain(2)],
        [*enqueue(1), *dequeue(1), *drain(1)],  # acks of the last moments may be lost
        [*enqueue(1), *dequeue(1, acked=False), *dequeue(1, redelivered=True), *drain()],
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
        ([*enqueue(1), *dequeue(1, acked=False), *dequeue(1), *drain()], "redelivered flag"),
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
