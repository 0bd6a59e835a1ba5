"""`warrenmq replay` on files that are no trace, or a broken one: a clear sentence, the rest is analysed, and the missing
parts are listed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.replay.planted_violations import a_restart_beyond_intensity
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import T, write_trace
from warrenmq.cli import main
from warrenmq.replay import replay, write_report
from warrenmq.trace.segment import decode_header, encode_header


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace that is fine, of three runs with several segment files each."""
    return written(tmp_path / "trace", consistent_trace(3))


def written(folder: Path, runs) -> Path:
    folder.mkdir()
    for name, content in write_trace(runs, piece=20, a_file=12).items():
        (folder / name).write_bytes(content)
    return folder


def told(trace: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    code = main(["replay", str(trace), "--engine", "python", "--json"])
    return code, json.loads(capsys.readouterr().out)


def kinds(answer: dict) -> set[str]:
    return {row["what"] for row in answer["missing"]}


def segments(trace: Path) -> list[Path]:
    return sorted(trace.glob("*.wtr"))


def with_header(path: Path, **changes) -> None:
    """Rewrite what the file's header says."""
    data = path.read_bytes()
    header, end = decode_header(memoryview(data))
    path.write_bytes(encode_header(header | changes) + data[end:])


def test_a_whole_trace_misses_nothing(trace, capsys):
    code, answer = told(trace, capsys)
    assert (code, answer["verdict"], answer["missing"]) == (0, "ok", [])


@pytest.mark.parametrize("make", ["nothing", "empty", "text", "empty file", "folder"])
def test_an_invalid_trace_is_refused_in_a_sentence(tmp_path, capsys, make):
    path = tmp_path / "trace"
    match make:
        case "empty":
            path.mkdir()
        case "text":
            path.write_text("hello")
        case "empty file":
            path.mkdir()
            (path / "a.wtr").touch()
        case "folder":
            (path / "a.wtr").mkdir(parents=True)
    assert main(["replay", str(path), "--engine", "python"]) == 2
    said = capsys.readouterr().err
    assert str(path) in said
    assert "Traceback" not in said
    assert "trace" in said


def test_the_same_file_under_two_names_is_read_once(trace, capsys):
    original = segments(trace)[2]
    (trace / f"copy-of-{original.name}").write_bytes(original.read_bytes())
    code, answer = told(trace, capsys)
    assert (code, answer["verdict"]) == (0, "ok")
    assert kinds(answer) == {"copy"}
    assert answer["missing"][0]["file"] == str(trace / f"copy-of-{original.name}")


def test_an_earlier_copy_of_a_file_is_left_out(trace, capsys):
    original = segments(trace)[2]
    (trace / "0-earlier.wtr").write_bytes(original.read_bytes()[:3_000])
    code, answer = told(trace, capsys)
    assert (code, answer["verdict"]) == (0, "ok")
    (row,) = answer["missing"]
    assert (row["what"], row["file"]) == ("copy", str(trace / "0-earlier.wtr"))
    assert str(original) in row["text"]


def test_a_copy_of_a_slab_file_is_left_out(trace, capsys):
    (slab,) = trace.glob("*.slab")
    (trace / "copy.slab").write_bytes(slab.read_bytes())
    code, answer = told(trace, capsys)
    assert (code, answer["verdict"], kinds(answer)) == (0, "ok", {"copy"})


def test_missing_segments_are_named_and_the_rest_is_analysed(trace, capsys):
    gone = segments(trace)[1]
    gone.unlink()
    code, answer = told(trace, capsys)
    assert (code, answer["verdict"]) == (0, "indeterminate")
    assert {"missing file", "missing rows"} <= kinds(answer)
    assert any("000002" in row["text"] for row in answer["missing"] if row["what"] == "missing file")
    assert answer["events"] > 1_000
    assert answer["missing_rows"] > 0


def test_a_truncated_file_is_read_up_to_there(trace, capsys):
    path = segments(trace)[-2]
    os.truncate(path, path.stat().st_size * 2 // 3)
    code, answer = told(trace, capsys)
    assert (code, answer["verdict"]) == (0, "indeterminate")
    assert "torn tail" in kinds(answer)


def test_an_empty_file_among_others_is_reported(trace, capsys):
    os.truncate(segments(trace)[1], 0)
    code, answer = told(trace, capsys)
    assert (code, answer["verdict"]) == (0, "indeterminate")
    assert "no header" in kinds(answer)


def test_a_file_of_another_program_among_others_is_reported(trace, capsys):
    (trace / "notes.wtr").write_text("remember the milk" * 100)
    (trace / "foreign.wtr").write_bytes(encode_header({"v": 7, "lib": "another"}))
    code, answer = told(trace, capsys)
    assert (code, answer["verdict"], kinds(answer)) == (0, "indeterminate", {"no header"}), (
        "they may have been runs"
    )
    assert answer["violations"] == []


def test_a_run_of_a_later_version_decides_nothing_and_stops_no_other_run(tmp_path, capsys):
    runs = consistent_trace(3)
    assert a_restart_beyond_intensity(runs)
    last = runs[-1].name
    trace = written(tmp_path / "trace", runs)
    for path in trace.glob(f"{last}-*.wtr"):
        with_header(path, v=2)
    code, answer = told(trace, capsys)
    assert (code, answer["verdict"]) == (1, "violated"), "what the other runs show stands"
    assert {finding["rule"] for finding in answer["violations"]} == {"R1"}
    assert kinds(answer) >= {"newer version"}
    assert any("version 2" in finding["text"] for finding in answer["indeterminate"])


def test_a_clock_that_was_set_back_between_two_runs_is_reported(trace, capsys):
    for path in segments(trace):
        run = path.name.split("-")[0]
        with_header(path, wall_ns=10**18 - int(run.removeprefix("run")) * 10**12)
    code, answer = told(trace, capsys)
    assert code == 0
    assert "clock jump" in kinds(answer)
    assert any("1000 s before" in row["text"] for row in answer["missing"])


def test_a_time_that_falls_within_an_actor_is_a_violation(tmp_path, capsys):
    runs = consistent_trace(3)
    queue = max(runs[0].of("QueueProcess"), key=lambda actor: len(actor.rows))
    for row in queue.rows[len(queue.rows) // 2 :]:
        row[T] -= 10**6
    code, answer = told(written(tmp_path / "trace", runs), capsys)
    assert code == 1
    assert any(
        finding["rule"] == "T1" and "t goes from" in finding["text"] for finding in answer["violations"]
    )


def test_terminal_and_page_tell_what_is_missing(trace, capsys, tmp_path):
    segments(trace)[1].unlink()
    assert main(["replay", str(trace), "--engine", "python"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("missing   missing file: ") and "000002" in line for line in lines)
    assert lines[-1].startswith("verdict indeterminate")
    pytest.importorskip("plotly")
    write_report(replay(str(trace), engine="python"), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "What is missing" in page
    assert "segment 000002 of the run is not there" in page


def test_the_chain_of_a_violation_is_on_the_terminal_in_json_and_on_the_page(tmp_path, capsys):
    runs = consistent_trace(3)
    assert a_restart_beyond_intensity(runs)
    trace = written(tmp_path / "trace", runs)
    code, answer = told(trace, capsys)
    assert code == 1
    (finding,) = answer["violations"]
    assert [link["row"] for link in finding["chain"]][-2:] == ["CHILD_EXIT KILLED", "RESTART"]
    assert main(["replay", str(trace), "--engine", "python"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("violated  R1"))
    assert finding["chain"][-2]["sentence"] in lines[at + len(finding["chain"]) - 1]
    pytest.importorskip("plotly")
    write_report(replay(str(trace), engine="python"), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "ended because it was killed" in page[page.index('"chains": [{') : page.index('"undecided": {')]
