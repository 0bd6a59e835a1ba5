"""`warrenmq trace show`: rows as sentences."""

import re
import tracemalloc

import pytest

import warrenmq
from warrenmq.cli import main
from warrenmq.replay.export.selection import Selection, rows_in_order, select_rows
from warrenmq.trace.events import Ev
from warrenmq.trace.reader import open_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shown")
    with warrenmq.open(folder / "data", trace=str(folder / "trace")) as broker:
        jobs = broker.declare_queue("jobs")
        for _ in range(3):
            jobs.publish_many([b"x" * 9_000, b"y"] * 50).result(60)
        for _ in range(4):
            jobs.get(5).ack()
    return str(folder / "trace")


def shown(trace, capsys, *options):
    assert main(["trace", "show", trace, *options]) == 0
    return capsys.readouterr().out


def test_every_row_is_a_sentence_in_the_order_of_times_and_80_columns_wide(trace, capsys):
    text = shown(trace, capsys)
    assert max(map(len, text.splitlines())) <= 80
    numbers = [int(number) for number in re.findall(r"^ *(\d+) \d\d:\d\d\.\d{3} ", text, re.MULTILINE)]
    with open_trace(trace) as opened:
        rows = list(rows_in_order(opened))
        assert numbers == list(range(1, len(rows) + 1))
        assert [row.t for _, row in rows] == sorted(row.t for _, row in rows)
        assert sum(coverage.rows for coverage in opened.catalog.coverage.values()) == len(rows)
    sentences = " ".join(text.split())
    assert re.search(
        r"queue jobs confirmed messages? \d+( to \d+)? after the sync at 00:0\d\.\d{3}", sentences
    )
    assert "?" not in sentences
    assert "again" not in re.findall(r"is up (\w+)", sentences), "the directory was new"


def test_a_message_is_followed_through_all_actors(trace, capsys):
    with open_trace(trace) as opened:
        message = next(row.msg for _, row in select_rows(opened, Selection()) if row.event == Ev.APPEND)
    told = " ".join(shown(trace, capsys, "--message", str(message)).split())
    for words in (
        "client-1 sent Publish",
        "queue jobs took in",
        f"appended message id {message}",
        "queue jobs confirmed",
    ):
        assert words in told


def test_rows_can_be_chosen_by_number_and_actor(trace, capsys):
    lines = re.findall(r"^ *(\d+) \S+ (\S+ \S+)", shown(trace, capsys, "--actor", "queue:jobs", "--from", "30", "--limit", "7"), re.MULTILINE)  # fmt: skip
    assert len(lines) == 7
    assert all(int(number) >= 30 and who == "queue jobs" for number, who in lines)


@pytest.mark.parametrize("options", [["--actor", "nobody"], ["--message", "17"], ["--from", "99999999"]])
def test_a_missing_actor_or_message_is_reported_in_one_sentence(trace, capsys, options):
    assert main(["trace", "show", trace, *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_memory_does_not_grow_with_the_trace(trace):
    """A piece of each actor is decoded at a time."""
    with open_trace(trace) as opened:
        tracemalloc.start()
        for _ in rows_in_order(opened):
            pass
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        actors = len(opened.catalog.runs[0].actors)
    assert peak < actors * 200_000
