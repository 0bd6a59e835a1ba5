"""Files of a trace that cannot be read, in every way that a file can be wrong: never a conviction, never `ok` where rows are gone.

Files that are there twice, or under another name, are all read and change nothing.
"""

from __future__ import annotations

import io
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import write_trace
from warrenmq.cli import main
from warrenmq.replay.drive import engine
from warrenmq.replay.drive.watch import Watch, unread_lines, watch
from warrenmq.trace.reader import NotATrace, require_header

Harm = Callable[[Path, random.Random], None]


def is_empty(file: Path, _: random.Random) -> None:
    os.truncate(file, 0)


def ends_in_its_header(file: Path, rng: random.Random) -> None:
    os.truncate(file, rng.randrange(200))


def is_zeros_behind_its_magic(file: Path, _: random.Random) -> None:
    file.write_bytes(file.read_bytes()[:4] + bytes(5_000))


def is_of_another_program(file: Path, _: random.Random) -> None:
    file.write_text("remember the milk" * 500)


def is_a_folder(file: Path, _: random.Random) -> None:
    file.unlink()
    file.mkdir()


def is_a_link_to_nowhere(file: Path, _: random.Random) -> None:
    file.unlink()
    file.symlink_to("gone")


def is_refused(file: Path, _: random.Random) -> None:
    """As one without permission is, which root cannot see."""
    file.unlink()
    file.symlink_to(file.name)


def is_a_pipe(file: Path, _: random.Random) -> None:
    file.unlink()
    os.mkfifo(file)


def is_there_twice(file: Path, _: random.Random) -> None:
    (file.parent / f"copy-of-{file.name}").write_bytes(file.read_bytes())


def is_renamed(file: Path, rng: random.Random) -> None:
    file.rename(file.with_name(f"{rng.randrange(10**9)}{file.suffix}"))


UNREAD: list[Harm] = [
    is_empty, ends_in_its_header, is_zeros_behind_its_magic, is_of_another_program, is_a_folder, is_a_link_to_nowhere, is_refused, is_a_pipe,
]  # fmt: skip
HARM: list[Harm] = [*UNREAD, is_there_twice, is_renamed]


def written(folder: Path, seed: int, a_file: int = 12) -> list[Path]:
    """A consistent trace on the disk."""
    folder.mkdir(exist_ok=True)
    for name, content in write_trace(consistent_trace(seed, 20), piece=10, a_file=a_file).items():
        (folder / name).write_bytes(content)
    return sorted(folder.iterdir())


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 12),
    st.sampled_from([12, 1 << 30]),
    st.lists(st.sampled_from(HARM), min_size=1, max_size=4),
    st.integers(0, 10**6),
)
def test_what_cannot_be_read_is_never_fine_and_convicts_nobody(
    seed: int, a_file: int, harms: list[Harm], dice: int
) -> None:
    with scratch() as folder:
        rng = random.Random(dice)
        files = written(folder, seed, a_file)
        whole = engine.replay(folder)
        for file, harm in zip(rng.sample(files, len(files)), harms, strict=False):
            harm(file, rng)
        try:
            found = engine.replay(folder)
        except NotATrace:
            return
        assert found.violations == []
        assert found.figures["incidents"]["lost_messages"] == 0
        if found.figures["events"] < whole.figures["events"] or set(harms) & set(UNREAD[2:]):
            assert found.verdict == "indeterminate"
        if not set(harms) & set(UNREAD):
            assert found.verdict == "ok"


@pytest.mark.parametrize("harm", UNREAD)
@pytest.mark.parametrize("which", [0, -1])
def test_a_first_or_last_run_of_one_file_is_named(tmp_path, capsys, which, harm):
    """No number tells that it is missing: nothing but the file itself does."""
    runs: dict[str, list[Path]] = {}
    for file in written(tmp_path / "trace", 3, a_file=1 << 30):
        runs.setdefault(file.name.split("-")[0], []).append(file)
    broken, *others = runs[sorted(runs)[which]]
    for file in others:
        file.unlink()
    harm(broken, random.Random(1))
    status = main(["replay", str(tmp_path / "trace"), "--engine", "python"])
    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[-1].startswith("verdict indeterminate")
    assert [line for line in lines if line.startswith("missing ") and str(broken) in line]
    assert main(["replay", str(broken), "--engine", "python"]) == 2
    assert str(broken) in capsys.readouterr().err


@pytest.mark.parametrize("harm", UNREAD)
def test_a_watch_ends_with_a_line_for_it_and_convicts_nobody(tmp_path, harm):
    folder = tmp_path / "trace"
    harm(written(folder, 3)[-1], random.Random(1))
    out = io.StringIO()
    watched = Watch(str(tmp_path / "checkpoint"), as_json=True, to=out)

    def wait(_: float) -> None:
        if len(looks) == 3:
            raise KeyboardInterrupt
        looks.append(len(looks))

    looks: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        watch([str(folder)], watched, wait=wait)
    assert watched.violations == 0
    (line,) = unread_lines([str(folder)], as_json=True)
    assert json.loads(line)["event"] == "unread"
    assert json.loads(line)["text"].startswith("it ")
    watched.close()


def test_hidden_files_are_not_looked_at(tmp_path):
    """Other systems leave them beside each file, and Spark finds none."""
    folder = tmp_path / "trace"
    for file in written(folder, 3):
        (folder / f"._{file.name}").write_bytes(b"\0\5\26\7" * 1_000)
    found = engine.replay(folder)
    assert (found.verdict, found.missing) == ("ok", [])


def test_of_many_files_without_a_header_three_are_named(tmp_path):
    paths = [str(tmp_path / f"{number}.wtr") for number in range(5)]
    with pytest.raises(NotATrace, match=f"^{', '.join(paths[:3])} and 2 more: no file there begins"):
        require_header(paths)
    with pytest.raises(NotATrace, match="no path was given: "):
        require_header([])
