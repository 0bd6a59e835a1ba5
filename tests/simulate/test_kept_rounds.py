"""A fleet that was interrupted goes on in its folder, and gives what one without an interruption gives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from warrenmq.cli import main
from warrenmq.errors import CallerError, Error
from warrenmq.simulate.fleet import Cores, Plan, fleet, here

pq = pytest.importorskip("pyarrow.parquet")
from warrenmq.simulate.kept_rounds import KeptRounds  # noqa: E402 - needs pyarrow

SHORT = Plan(range(50, 62), size="short")


@pytest.fixture(autouse=True)
def small_rounds(monkeypatch):
    monkeypatch.setattr("warrenmq.simulate.fleet.ROUND", 4)


def killed_after(rounds):
    """Workers whose process ends when so many rounds are done."""
    left = iter(range(rounds))

    def workers(tasks):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return here(tasks)

    return workers


def nobody(_tasks):
    raise AssertionError("a round was done twice")


def outcomes(plan, workers):
    return [outcome for progress in fleet(plan, workers) for outcome in progress.outcomes]


def test_a_fleet_goes_on_where_it_was_interrupted(tmp_path):
    whole = outcomes(SHORT, here)
    with pytest.raises(KeyboardInterrupt):
        outcomes(SHORT, KeptRounds(str(tmp_path), killed_after(2)))
    (tmp_path / ".0000000000058").write_bytes(b"PAR1")  # a process was killed while it wrote a round
    kept = KeptRounds(str(tmp_path), here)
    assert outcomes(SHORT, kept) == whole
    assert kept.found == 8
    assert outcomes(SHORT, KeptRounds(str(tmp_path), nobody)) == whole
    assert pq.read_table(tmp_path)["seed"].to_pylist() == [each.seed for each in whole]


def test_more_runs_can_be_asked_for_later_and_fewer_are_refused(tmp_path):
    six, eight = Plan(range(50, 56), size="short"), Plan(range(50, 58), size="short")
    outcomes(six, KeptRounds(str(tmp_path), here))
    more = KeptRounds(str(tmp_path), killed_after(1))
    assert outcomes(eight, more) == outcomes(eight, here)
    assert more.found == 4
    with pytest.raises(CallerError, match="has 2 runs more from seed 56 on"):
        outcomes(six, KeptRounds(str(tmp_path), nobody))


@pytest.mark.parametrize(
    "other",
    [["--size", "wide"], ["--profile", "classic"], ["--faults", "none"], ["--script", "a-script.txt"]],
    ids=lambda option: option[0],
)
def test_runs_of_another_fleet_are_refused(tmp_path, monkeypatch, capsys, other):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warrenmq.simulate.fleet.Cores.__call__", lambda _self, tasks: list(here(tasks)))
    (tmp_path / "a-script.txt").write_text("publish\n")
    simulate = ["simulate", "--runs", "2", "--first", "3", "--out", "runs", "--cores", "1"]
    assert main(simulate) == 0
    first = capsys.readouterr()
    assert main(simulate) == 0
    assert capsys.readouterr().out == first.out
    assert main([*simulate, *other]) == 2
    assert "runs has another run of seed 3" in capsys.readouterr().err


def test_two_fleets_in_one_folder_are_refused(tmp_path, capsys):
    simulate = ["simulate", "--runs", "2", "--out", str(tmp_path), "--cores", "1"]
    with KeptRounds(str(tmp_path), nobody):
        assert main(simulate) == 2
    assert "is being read or changed by another command" in capsys.readouterr().err
    with KeptRounds(str(tmp_path), nobody):
        assert os.listdir(tmp_path) == []


class EndsTheProcess:
    def __reduce__(self):
        return os._exit, (1,)


def test_ctrl_c_is_not_for_workers_and_one_that_ends_is_told():
    with Cores(1) as cores:
        assert cores._pool.submit(signal.getsignal, signal.SIGINT).result() is signal.SIG_IGN
        with pytest.raises(Error, match="a process of the pool has ended"):
            list(cores([EndsTheProcess()]))


KILLED = """
import os, signal
from warrenmq.simulate.fleet import Cores
Cores(1)._pool.submit(os.getpid).result()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_their_parent():
    # it returns when nobody has the pipe any more, and each process inherits that
    subprocess.run([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, timeout=120, check=False)


def test_a_damaged_file_is_one_sentence(tmp_path, capsys):
    (tmp_path / "0000000000000.parquet").write_bytes(b"PAR1 and no more")
    assert main(["simulate", "--runs", "2", "--out", str(tmp_path), "--cores", "1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "0000000000000.parquet is no table of simulated runs" in line
