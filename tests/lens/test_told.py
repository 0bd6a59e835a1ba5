"""The state in words says what the fold has, at any row, and cannot be bent by a name."""

import re

import pytest

from tests.broker.lives import long_life, trace_of
from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from warrenmq.cli import main
from warrenmq.lens.fold import Fold
from warrenmq.lens.tables import empty, named
from warrenmq.lens.told import lines
from warrenmq.trace.reader import open_memory


@pytest.mark.parametrize("profile", BOTH_PROFILES)
def test_each_part_of_the_picture_is_told_at_any_row(profile):
    trace = open_memory(trace_of(6, long_life, BOTH_PROFILES[profile]))
    fold = Fold(trace)
    for row in (*range(1, fold.rows, 173), fold.rows):
        tables = fold.at(row)
        text = "\n".join(lines(tables))
        assert len(
            re.findall(r"^ +\S+ \(\w+\): (?:up|starting|killed|crashed|ended)", text, re.MULTILINE)
        ) == len(tables["actor"])
        for name, (_, next_seq, *_) in tables["queue"].items():
            assert re.search(rf"^  {name}: .*; next number {next_seq:,},", text, re.MULTILINE)
        for key, (size, *_) in list(tables["file"].items())[-5:]:
            assert re.search(rf"^    {str(key)[2:]}\.rdq\b.*: {size:,} bytes", text, re.MULTILINE)
        for key, value in list(tables["flying"].items())[:5]:
            _, message, queue = str(key).split("/")
            assert f"m{message} of {queue} at " in text
            assert f": {value:+d}" in text
        for what, number in tables["cost"].items():
            assert f"  {what}: {number:,}" in text


def test_nothing_is_told_before_the_first_row():
    assert list(lines(named(empty()))) == []


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    host = SimulatedHost(2)
    with host.open() as broker:
        broker.declare_exchange("orders", "topic")
        queue = broker.declare_queue("in\u202ebox")
        broker.bind(queue, "orders", "*.paid")
        broker.publish("orders", "order.paid", b"x" * 9_000).result()
        queue.get()
    path = tmp_path_factory.mktemp("told") / "trace"
    host.save_trace(path)
    host.close()
    return str(path)


def _said(trace, capsys, at):
    assert main(["trace", "show", trace, "--at", str(at)]) == 0
    return capsys.readouterr().out


def test_the_command_prints_the_state_after_a_row(trace, capsys):
    assert main(["trace", "show", trace]) == 0
    numbers = [int(each) for each in re.findall(r"^ *(\d+) \d\d:", capsys.readouterr().out, re.MULTILINE)]
    texts = [_said(trace, capsys, number) for number in numbers]
    assert texts[0].startswith(f"row 1 of {len(numbers)}: ")
    assert not any("\u202e" in text for text in texts)
    published = next(text for text in texts if "went through" in text)
    assert (
        "client-1: 0 of 1 confirmed; waits for m1; m1 went through exchange orders with key order.paid to in\\u202ebox"
        in published
    )
    assert "orders (topic): leads to queue in\\u202ebox for *.paid" in published
    assert any("at 0: m1, 9," in text and "1 reference" in text for text in texts)
    assert any("m1 unacked" in text and "in the persistent store" in text for text in texts)
    assert _said(trace, capsys, 0) == f"row 0 of {len(numbers)}: before the first row\n"


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (("--at", "1000000"), "there is no row"),
        (("--at", "2", "--limit", "3"), "leave"),
        (("--at", "2", "--from", "2"), "leave"),
    ],
)
def test_a_wrong_question_is_answered_in_a_sentence(trace, capsys, options, answer):
    assert main(["trace", "show", trace, *options]) == 2
    assert answer in capsys.readouterr().err
