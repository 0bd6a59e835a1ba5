"""`warrenmq trace watch` in one process: lines, exit status, checkpoints, and what is no trace."""

import json
import subprocess
import sys

import pytest

import warrenmq
from tests.replay.live_trace import grow
from tests.replay.planted_violations import PLANTS, planted
from tests.support.limits import LIMIT
from tests.support.source_tree import ROOT
from warrenmq.cli import main


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr("warrenmq.replay.drive.watch.INTERVAL", 0)


@pytest.fixture
def broken(tmp_path):
    """A trace with one violation of R1, whose runs have all ended."""
    runs = planted(next(plant for rule, plant, _ in PLANTS if rule == "R1"))
    for run in runs:
        run.closed = True
    for _ in grow(tmp_path / "trace", runs, 1):
        pass
    return str(tmp_path / "trace")


def watched(capsys, *arguments):
    status = main(["trace", "watch", *arguments, "--engine", "python", "--until-closed"])
    return status, capsys.readouterr()


def test_of_a_broker_that_did_nothing_wrong_there_is_only_the_end(tmp_path, capsys):
    with warrenmq.open(tmp_path / "data", trace=tmp_path / "trace") as broker:
        jobs = broker.declare_queue("jobs")
        jobs.publish_many([b"one", b"two", b"three"]).result()
        with jobs.consume(prefetch=1) as consumer:
            consumer.get(timeout=LIMIT).ack()
    status, said = watched(capsys, str(tmp_path / "trace"), "--json")
    (end,) = map(json.loads, said.out.splitlines())
    assert status == 0
    assert (end["event"], end["violations"], end["waiting"]) == ("end", 0, 0)
    assert end["in_flight"] == 2
    assert end["events"] > 10


def test_a_violation_is_a_line_and_the_exit_status(broken, capsys):
    status, said = watched(capsys, broken)
    (line,) = said.out.splitlines()
    assert status == 1
    assert line.startswith("violated R1 supervisor ")
    assert "1 violations" in said.err


def test_a_pattern_names_several_traces(broken, tmp_path, capsys):
    with warrenmq.open(tmp_path / "data", trace=tmp_path / "trace of another"):
        pass
    for pattern in ("trace*", "trace*/*.wtr"):
        status, said = watched(capsys, str(tmp_path / pattern))
        assert (status, len(said.out.splitlines())) == (1, 1)
    (tmp_path / "mine").write_text("no trace")
    status, said = watched(capsys, str(tmp_path / "min?"))
    assert status == 2
    assert "no file there begins with" in said.err


def test_a_watch_that_goes_on_prints_nothing_again(broken, tmp_path, capsys):
    again = [broken, "--json", "--checkpoint", str(tmp_path / "checkpoint")]
    status, said = watched(capsys, *again)
    assert [json.loads(line)["event"] for line in said.out.splitlines()] == ["violation", "end"]
    status, said = watched(capsys, *again)
    assert [json.loads(line)["event"] for line in said.out.splitlines()] == ["end"]
    assert status == 1, "what was found is found"


def test_an_invalid_trace_is_one_sentence(tmp_path, capsys):
    status, said = watched(capsys, str(tmp_path))
    assert status == 2
    assert said.err.count("\n") == 1
    assert "is no trace" in said.err


def test_two_watches_cannot_share_a_checkpoint(broken, tmp_path, capsys):
    from warrenmq.replay.drive.watch import Watch

    taken_by = Watch(str(tmp_path / "checkpoint"))
    taken_by.take([], {})
    status, said = watched(capsys, broken, "--checkpoint", str(tmp_path / "checkpoint"))
    taken_by.close()
    assert status == 2
    assert "another watch" in said.err


def test_an_invalid_checkpoint_is_refused(broken, tmp_path, capsys):
    (tmp_path / "watch.sqlite").write_bytes(b"no database at all" * 100)
    status, said = watched(capsys, broken, "--checkpoint", str(tmp_path))
    assert status == 2
    assert "cannot be used" in said.err
    status, said = watched(capsys, broken, "--checkpoint", "s3a://bucket/watched")
    assert status == 2
    assert said.err.startswith("warrenmq trace: s3a://bucket/watched is an address")


def test_a_watch_ends_when_the_only_run_was_killed(tmp_path, capsys):
    paths = f"{str(tmp_path / 'data')!r}, trace={str(tmp_path / 'trace')!r}"
    code = f"import os, warrenmq; b = warrenmq.open({paths}); b.declare_queue('q').publish(b'x').result(5); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == -9
    status, said = watched(capsys, str(tmp_path / "trace"))
    assert status == 0
    assert "0 violations" in said.err


def test_a_watch_ends_when_a_killed_run_was_followed_by_one_that_was_closed(tmp_path, capsys):
    test_a_watch_ends_when_the_only_run_was_killed(tmp_path, capsys)
    with warrenmq.open(tmp_path / "data", trace=tmp_path / "trace") as broker:
        assert broker.queue("q").get(5).body == b"x"
    assert watched(capsys, str(tmp_path / "trace"))[0] == 0
