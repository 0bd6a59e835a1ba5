"""A history of replays: what is added, what is shown of it, and what is refused."""

import json
import os
import sys
from datetime import UTC, datetime

import pytest

from tests.replay.planted_violations import a_plant_of_each_rule
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_union import write_directory
from warrenmq.cli import main
from warrenmq.errors import CallerError
from warrenmq.replay import add_to_history, history, replay

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """A trace that is fine, another one, and one with a violation."""
    folder = tmp_path_factory.mktemp("traces")
    fine, other = (write_directory(folder / f"fine{seed}", consistent_trace(seed, 20)) for seed in range(2))
    return fine, other, write_directory(folder / "broken", a_plant_of_each_rule()[0])


@pytest.fixture(scope="module")
def three(traces, tmp_path_factory):
    folder = tmp_path_factory.mktemp("history") / "history"
    statuses = [main(["replay", each, "--engine", "python", "--history", str(folder)]) for each in traces]
    assert statuses == [0, 0, 1]
    return str(folder)


def test_a_replay_adds_a_row_for_each_rule_and_each_figure(traces, three):
    replayed = replay(traces[0], engine="python", picture=False)
    rows = [row for row in history(three) if row.trace == os.path.abspath(traces[0])]
    rules = [
        (row.name, row.text, row.cases, row.violated, row.undecided) for row in rows if row.kind == "rule"
    ]
    assert rules == [
        (rule.id, rule.name, rule.checked, rule.violated, rule.indeterminate) for rule in replayed.rules
    ]
    figures = {row.name: row.value for row in rows if row.kind == "figure"}
    said = replayed.as_dict()
    assert figures["events"] == said["events"]
    assert figures["incidents.crashes"] == said["incidents"]["crashes"]
    assert figures["delays_ms.confirm.p99"] == said["delays_ms"]["confirm"]["p99"]
    runs = replayed.result.catalog.runs
    assert rows[0].runs == [run.name for run in runs]
    assert rows[0].began == datetime.fromtimestamp(min(run.wall_ns for run in runs) // 1000 / 1e6, UTC)
    assert {row.verdict for row in rows} == {"ok"}
    assert json.loads(rows[0].settings)["msg_store_file_size_limit"] > 0


def test_it_is_a_table_for_others(three):
    table = pq.read_table(three)
    assert table.num_rows == len(history(three))
    assert table.schema.field("began").type == pa.timestamp("us", tz="UTC")


def test_the_same_trace_replaces_its_results(traces, three, tmp_path, capsys):
    folder = tmp_path / "history"
    replayed = replay(traces[0], engine="python", picture=False)
    assert add_to_history(replayed, folder) is False
    before = history(folder)
    capsys.readouterr()
    assert main(["replay", traces[0], "--engine", "python", "--history", str(folder)]) == 0
    assert f"replaced in history {folder}" in capsys.readouterr().err
    again = history(folder)
    assert len(again) == len(before)
    assert again[0].added > before[0].added
    name = os.listdir(folder)[0]
    (folder / name).rename(folder / "part-0.parquet")  # as a job that merges files would call it
    with pytest.raises(CallerError, match=r"part-0\.parquet has this replay already"):
        add_to_history(replayed, folder)


def test_a_file_that_other_programs_merged_is_read(three, tmp_path):
    """pandas makes doubles of integers that may be null, others large strings and dictionaries."""
    table, merged = pq.read_table(three), tmp_path / "merged"
    merged.mkdir()
    place = table.schema.get_field_index
    for name, kind in (
        ("cases", pa.float64()),
        ("trace", pa.large_string()),
        ("began", pa.timestamp("ns", "UTC")),
    ):
        table = table.set_column(place(name), name, table[name].cast(kind))
    table = table.set_column(place("name"), "name", table["name"].dictionary_encode())
    pq.write_table(table, merged / "years.parquet")
    assert sorted(map(repr, history(merged))) == sorted(map(repr, history(three)))


def test_a_write_that_fails_leaves_the_table_as_it_was(traces, tmp_path, monkeypatch):
    replayed = replay(traces[0], engine="python", picture=False)
    add_to_history(replayed, tmp_path)
    before = history(tmp_path)

    def fail(_from, _to):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "replace", fail)
        add_to_history(replayed, tmp_path)
    assert history(tmp_path) == before
    assert len(os.listdir(tmp_path)) == 1


def test_the_table_of_the_terminal(three, capsys):
    assert main(["trace", "history", three]) == 0
    head, *lines, trend = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["began", "(UTC)", "trace", "verdict"]
    assert sorted(line.split()[2:4] for line in lines) == [
        ["broken", "violated"],
        ["fine0", "ok"],
        ["fine1", "ok"],
    ]
    assert all(len(line) <= 80 for line in lines)
    assert trend.startswith("trend     the newest has ")
    assert trend.endswith("of the median of the 2 before it")


def test_the_page(three, tmp_path, capsys):
    pytest.importorskip("plotly")
    page = tmp_path / "page.html"
    assert main(["trace", "history", three, "--json", "--report", str(page)]) == 0
    told = json.loads(capsys.readouterr().out)
    text = page.read_text(encoding="utf-8")
    assert "<title>History of replays</title>" in text
    assert not {"$title", "$footer", "$plots", "$data"} & set(
        text.replace("<", " ").replace(">", " ").split()
    )
    data = json.loads(
        text.rpartition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    )
    assert [row["trace"] for row in data["replays"]["rows"]] == [each["trace"] for each in reversed(told)]
    assert sum(rule["violated"] for rule in data["rules"]) == sum(each["violated"] for each in told) > 0
    plots = {plot["title"]: plot["data"] for plot in data["plots"]}
    assert {"Findings", "Size", "Publish to confirm"} <= plots.keys()
    assert plots["Findings"][0]["y"] == [each["violated"] for each in told]
    median, slow = plots["Publish to confirm"]
    assert slow["y"] == [each["figures"].get("delays_ms.confirm.p99") for each in told]
    assert median["x"] == slow["x"] == [1, 2, 3]


def other_columns(folder):
    pq.write_table(pa.table({"seed": [1]}), folder / "x.parquet")


def other_types(folder):
    pq.write_table(pa.table({"replay": [1]}), folder / "x.parquet")


@pytest.mark.parametrize(
    ("fill", "said"),
    [
        (lambda _folder: None, "holds no history yet"),
        (lambda folder: (folder / "notes.txt").touch(), "is no history of replays: it holds notes.txt"),
        (lambda folder: (folder / "_delta_log").mkdir(), "is a table of Delta"),
        (other_columns, "x.parquet is no part of a history of replays: it has no column replay"),
        (other_types, "its column replay is int64, not string"),
        (lambda folder: (folder / "x.parquet").write_bytes(b"PAR1"), "it is not Parquet, or damaged"),
        (lambda folder: folder.rmdir(), "there is no directory"),
        (lambda folder: (folder.rmdir(), folder.touch()), "is a file; name the directory of a history"),
    ],
)
def test_what_is_no_history_is_refused_in_a_sentence(fill, said, tmp_path, capsys):
    folder = tmp_path / "history"
    folder.mkdir()
    fill(folder)
    assert main(["trace", "history", str(folder)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("target", ["notes", "file", "no/such", "s3a://bucket/history"])
def test_a_replay_refuses_before_it_begins(target, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").touch()
    (tmp_path / "file").touch()
    assert main(["replay", "no-trace", "--engine", "python", "--history", target]) == 2
    assert target.partition("/")[0] in capsys.readouterr().err
    assert sorted(os.listdir()) == ["file", "notes"]


def test_without_pyarrow_it_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "warrenmq.replay.export.history", raising=False)
    monkeypatch.setattr("warrenmq.replay.export.history", None, raising=False)
    monkeypatch.delattr("warrenmq.replay.export.history")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["trace", "history", str(tmp_path)]) == 2
    assert "pip install 'warrenmq[spark]'" in capsys.readouterr().err
