"""`warrenmq publish` and `warrenmq consume` on a directory, as a user types them."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import warrenmq
from tests.support.limits import LIMIT
from warrenmq.cli import main


class Stdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch):
    def run(data: bytes, *arguments: object) -> int:
        monkeypatch.setattr(sys, "stdin", Stdin(data))
        return main(["publish", *map(str, arguments)])

    return run


def consumed(capfdbinary: pytest.CaptureFixture[bytes], *arguments: object) -> bytes:
    capfdbinary.readouterr()
    assert main(["consume", *map(str, arguments)]) == 0
    return capfdbinary.readouterr().out


@pytest.mark.parametrize(
    ("lines", "bodies"),
    [
        (b"one\ntwo\n", [b"one", b"two"]),
        (b"no line end behind the last", [b"no line end behind the last"]),
        (b"dos\r\nunix\n\r\n", [b"dos", b"unix", b""]),
        (b"\n\n", [b"", b""]),
        (b"\xff\x00 not text\n", [b"\xff\x00 not text"]),
        (b"", []),
    ],
)
def test_each_line_is_a_message(publish, tmp_path: Path, lines: bytes, bodies: list[bytes]):
    assert publish(lines, "jobs", "--data", tmp_path) == 0
    with warrenmq.open(tmp_path) as broker:
        jobs = broker.queue("jobs")
        assert [jobs.get(timeout=LIMIT).body for _ in bodies] == bodies
        assert jobs.info().ready == 0


def test_every_published_line_is_consumed_once(publish, tmp_path: Path, capfdbinary):
    lines = b"".join(b"%d\n" % number for number in range(2500))
    assert publish(lines, "jobs", "--data", tmp_path) == 0
    assert capfdbinary.readouterr().err.endswith(b"2500 messages published to jobs\n")
    assert consumed(capfdbinary, "jobs", "--data", tmp_path) == lines
    assert consumed(capfdbinary, "jobs", "--data", tmp_path) == b""


def test_a_count_takes_no_more_than_that(publish, tmp_path: Path, capfdbinary):
    publish(b"a\nb\nc\n", "jobs", "--data", tmp_path)
    assert consumed(capfdbinary, "jobs", "--data", tmp_path, "--count", 2) == b"a\nb\n"
    assert consumed(capfdbinary, "jobs", "--data", tmp_path, "--count", 0) == b""
    assert consumed(capfdbinary, "jobs", "--data", tmp_path) == b"c\n"


def test_lines_go_into_a_queue_as_it_was_declared(publish, tmp_path: Path):
    with warrenmq.open(tmp_path) as broker:
        broker.declare_queue("short", arguments={"x-max-length": 2})
    assert publish(b"a\nb\nc\n", "short", "--data", tmp_path) == 0
    with warrenmq.open(tmp_path) as broker:
        assert broker.queue("short").get(timeout=1).body == b"b"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none", "--data", "{}"], "no queue 'none'"),
        (["none", "--data", "{}", "--follow"], "--follow is for --url"),
        (["none", "--url", "http://localhost"], "http://localhost is no URL of a broker"),
    ],
)
def test_a_usage_error_is_a_sentence(tmp_path: Path, capsys, arguments: list[str], said: str):
    assert main(["consume", *(each.format(tmp_path) for each in arguments)]) == 2
    assert said in capsys.readouterr().err


def test_a_broker_that_is_not_there_is_named(capsys, publish):
    for verb in ("consume", "publish"):
        status = (
            publish(b"", "q", "--url", "amqp://127.0.0.1:1")
            if verb == "publish"
            else main(["consume", "q", "--url", "amqp://127.0.0.1:1"])
        )
        assert status == 2
        assert "127.0.0.1:1 cannot be used: no broker listens there" in capsys.readouterr().err
