"""ls, stats, peek and top of a directory whose owner answers on its socket."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.source_tree import ROOT
from warrenmq.amqp import serve
from warrenmq.cli import main
from warrenmq.cli._top_samples import Depth, Sample
from warrenmq.cli.top import lines, picture, shown
from warrenmq.management.server import manage
from warrenmq.terminal import columns


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


def test_top_shows_it_and_refuses_a_directory_that_nobody_serves(directory, tmp_path, capsys) -> None:
    pytest.importorskip("rich")
    picture = said(capsys, "top", directory, "--count", "2", "--interval", "0.1")
    assert "jobs" in picture
    assert "0 restarts" in picture
    assert "syncs/s" in picture
    assert main(["top", str(tmp_path / "nowhere")]) == 2
    assert main(["top", "http://127.0.0.1:1"]) == 2
    assert "no management API at 127.0.0.1:1" in capsys.readouterr().err


def test_top_asks_a_management_api(tmp_path, capsys) -> None:
    pytest.importorskip("rich")
    with (
        warrenmq.open(tmp_path) as broker,
        serve(broker, port=0) as server,
        manage(server, port=0) as management,
    ):
        broker.declare_queue("jobs").publish_many([b"1", b"2"]).result(LIMIT)
        url = management.url.replace("//", "//guest:guest@")
        picture = said(capsys, "top", url, "--count", "2", "--interval", "0.1")
        assert re.search(r"^jobs +2 +0 +0 +0 +0$", picture, re.MULTILINE)
        assert "0 connections" in picture
        assert "syncs/s" in picture
        assert main(["top", management.url.replace("//", "//guest:wrong@")]) == 2


def test_top_shows_no_password() -> None:
    assert shown("http://guest:se:cret@host:1") == "http://host:1"
    assert shown("/data/a@b") == "/data/a@b"


def test_q_ends_top_and_a_terminal_is_as_it_was(directory) -> None:
    """In a terminal of 12 lines the picture has 11, and who types q sees nothing of it."""
    pytest.importorskip("rich")
    with warrenmq.open(directory, shared=True) as broker:
        for number in range(20):
            broker.declare_queue(f"queue {number:02}")
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 40, 0, 0))
    before = termios.tcgetattr(inner)
    command = [sys.executable, "-m", "warrenmq", "top", directory]
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        command, stdin=inner, stdout=inner, stderr=inner, cwd=ROOT, env=environ | {"TERM": "xterm"}
    ) as top:
        seen = b""
        while b"more queues" not in seen:
            seen += os.read(outer, 65_536)
        os.write(outer, b"q")
        assert top.wait(LIMIT) == 0
    os.set_blocking(outer, False)
    seen += os.read(outer, 65_536)
    assert termios.tcgetattr(inner) == before
    assert b"... and 14 more queues" in seen
    assert b"q" not in seen.rpartition(b"more queues")[2]
    for each in (outer, inner):
        os.close(each)


def _sample(at: float, *queues: Depth, vhost: str = "/", syncs: int = 0) -> Sample:
    resources = ("memory 51.6 MB in use, limit 10.1 GB ALARM", "disk 80.2 GB free, limit 50.0 MB")
    return Sample(at, vhost, resources, ("44 actors", "3 restarts"), ("restarted jobs 3x",), syncs, queues)


def test_rates_are_what_came_in_and_what_is_gone() -> None:
    def at(second: float, published: int | None, ready: int, unacked: int) -> Sample:
        return _sample(second, Depth("jobs", ready, unacked, 0, published))

    cases = (
        # published, ready, unacked -> in/s, out/s
        ((0, 0, 0), (10, 10, 0), (5.0, 0.0)),
        ((10, 10, 0), (30, 5, 5), (10.0, 10.0)),
        ((30, 5, 5), (30, 0, 0), (0.0, 5.0)),
        ((None, 5, 5), (30, 0, 0), (None, None)),
    )
    for before, now, rates in cases:
        line = lines(at(1.0, *before), at(3.0, *now))[0]
        assert (line.rate_in, line.rate_out) == rates
    assert lines(None, at(1.0, 5, 5, 0))[0].rate_in is None


@pytest.mark.parametrize("size", [(40, 5), (80, 24), (120, 40), (20, 8)])
def test_a_picture_fits_its_screen_and_says_what_is_left_out(size) -> None:
    queues = [Depth(f"queue {number} " + "文" * 50, 10**9 - number, 0, 0, number) for number in range(30)]
    before = {vhost: _sample(1.0, *queues, vhost=vhost) for vhost in ("/", "other")}
    now = [_sample(2.0, *queues, vhost=vhost, syncs=500) for vhost in ("/", "other")]
    shown = picture(before, now, *size)
    assert len(shown) <= size[1]
    if size[0] >= 60:
        assert max(map(columns, shown)) <= size[0]
        assert shown[1] == "44 actors   3 restarts   500 syncs/s"
        heads = [number for number, line in enumerate(shown) if line.startswith("QUEUE")]
        assert len(heads) == 2
        rows = [line for line in shown if line.startswith("queue")]
        hidden = [int(line.split()[2]) for line in shown if line.startswith("...")]
        assert len(rows) + sum(hidden) == 60
