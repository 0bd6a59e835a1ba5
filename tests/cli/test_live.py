"""ls, stats, peek and top of a directory whose owner answers on its socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import warrenmq
from tests.support.limits import LIMIT
from warrenmq.cli import main
from warrenmq.cli.top import Sample, lines


@pytest.fixture(name="directory")
def _directory(tmp_path: Path) -> Iterator[str]:
    with warrenmq.open(tmp_path, shared=True) as broker:
        queue = broker.declare_queue("jobs")
        queue.publish_many([b"1", b"2"]).result(LIMIT)
        queue.publish(b"transient", persistent=False, priority=4).result(LIMIT)
        assert queue.get() is not None
        yield str(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_ls_shows_what_is_there_now_and_with_files_what_the_next_start_gives(directory, capsys) -> None:
    found = json.loads(said(capsys, "ls", directory, "--json"))
    assert [(each["vhost"], each["name"], each["ready"], each["unacked"]) for each in found["queues"]] == [
        ("/", "jobs", 2, 1)
    ]
    assert found["live"] is True
    found = json.loads(said(capsys, "ls", directory, "--json", "--files"))
    assert [(each["name"], each["ready"]) for each in found["queues"]] == [("jobs", 2)]
    assert "UNACKED" in said(capsys, "ls", directory)


def test_peek_shows_transient_messages_and_takes_none(directory, capsys) -> None:
    for _ in range(2):
        found = json.loads(said(capsys, "peek", directory, "jobs", "--json"))
        assert [(each["size"], each["properties"].get("priority")) for each in found["messages"]] == [
            (1, None),
            (9, 4),
        ]
    assert "transient" in said(capsys, "peek", directory)
    assert main(["peek", directory, "none"]) == 2


def test_stats_has_the_actors(directory, capsys) -> None:
    found = json.loads(said(capsys, "stats", directory, "--json"))["vhosts"][0]
    assert any(each["name"] == "vhost_process" or "vhost" in each["name"] for each in found["actors"])
    assert "RESTARTS" in said(capsys, "stats", directory)


def test_top_shows_it_once_and_refuses_a_directory_that_nobody_serves(directory, tmp_path, capsys) -> None:
    pytest.importorskip("rich")
    picture = said(capsys, "top", directory, "--count", "2", "--interval", "0.1")
    assert "jobs" in picture
    assert "restarts" in picture
    assert main(["top", str(tmp_path / "nowhere")]) == 2


def test_rates_are_what_came_in_and_what_is_gone(directory) -> None:
    with warrenmq.open(directory, shared=True) as broker:
        stats = broker.stats()
    queue = stats.queues[0]

    def at(second: float, published: int, ready: int, unacked: int) -> Sample:
        changed = replace(queue, ready=ready, unacked=unacked)
        return Sample(second, "/", replace(stats, queues=(changed,)), {"jobs": published})

    cases = (
        # published, ready, unacked -> in/s, out/s
        ((0, 0, 0), (10, 10, 0), (5.0, 0.0)),
        ((10, 10, 0), (30, 5, 5), (10.0, 10.0)),
        ((30, 5, 5), (30, 0, 0), (0.0, 5.0)),
    )
    for before, now, rates in cases:
        line = lines(at(1.0, *before), at(3.0, *now))[0]
        assert (line.rate_in, line.rate_out) == rates
    assert lines(None, at(1.0, 5, 5, 0))[0].rate_in is None
