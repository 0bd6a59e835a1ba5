"""The page and the table that a replay ends with."""

from __future__ import annotations

import html.parser
import json
import re
from threading import Event

import pytest

from tests.replay.hand_made import hand_made
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_union import side_by_side, write_directory
from warrenmq.cli import _reports, main
from warrenmq.errors import CallerError
from warrenmq.replay import replay, write_report
from warrenmq.replay.report import report
from warrenmq.replay.report.figures import plots
from warrenmq.replay.report.picture import Picture
from warrenmq.replay.report.plots import course, short_time
from warrenmq.replay.report.summary import summary_lines
from warrenmq.testing import SimulatedMachine
from warrenmq.trace.reader import open_trace


class Page(html.parser.HTMLParser):
    """A page: the addresses that it would load, its sections, and the data that its script draws."""

    def __init__(self, text):
        super().__init__()
        self.addresses, self.sections, self.scripts, self._open = [], [], [], ""
        self.feed(text)
        self.data = json.loads(self.scripts[1])

    def handle_starttag(self, tag, attrs):
        self._open, attributes = tag, dict(attrs)
        self.addresses += [value for name, value in attrs if name in {"src", "href"}]
        if tag == "script":
            self.scripts.append("")
        elif tag in {"section", "p"} and "id" in attributes:
            self.sections.append(attributes["id"])

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1] += data

    def handle_endtag(self, tag):
        self._open = ""


@pytest.fixture(scope="module")
def page(tmp_path_factory, broken_trace):
    pytest.importorskip("plotly")
    target = tmp_path_factory.mktemp("page") / "report.html"
    write_report(replay(broken_trace, engine="python"), target)
    return Page(target.read_text(encoding="utf-8"))


def test_the_page_needs_no_network(page):
    assert page.addresses == []


def test_violations_stand_before_everything_else(page):
    order = ["verdict", "violations", "undecided", "missing", "rules", "queues", "plots"]
    assert [each for each in page.sections if each in order] == order
    assert set(order) - {"verdict", "plots"} <= {name for name, value in page.data.items() if value}
    assert "violations of" in page.data["verdict"]["text"]


def test_every_plot_has_something_to_show(page):
    assert len(page.data["plots"]) >= 11
    assert all(trace["x"] and trace["y"] for plot in page.data["plots"] for trace in plot["data"])


def test_reclaimed_bytes_are_marked_on_the_plot_of_files(clean_trace):
    replayed = replay(clean_trace, engine="python")
    picture = replayed.picture
    events = replayed.result.figures["events_of"]
    assert (len(picture.combines), len(picture.cuts)) == (events["GC_DONE"], events["TRUNCATE"])
    disk = next(plot for plot in plots(picture) if plot.title == "Disk use of the stores")
    marks = {trace["name"]: trace for trace in disk.data if trace.get("mode") == "markers"}
    assert [len(marks[name]["x"]) for name in ("combine", "compaction")] == [
        len(picture.combines),
        len(picture.cuts),
    ]
    assert f"{len(picture.combines)} combines gave back" in disk.note
    assert f"{len(picture.cuts)} compactions gave back" in disk.note


def test_waits_are_on_the_page_and_on_the_terminal(tmp_path):
    pytest.importorskip("plotly")
    replayed = replay(write_directory(tmp_path / "trace", hand_made()), engine="python")
    write_report(replayed, tmp_path / "report.html")
    cards = Page((tmp_path / "report.html").read_text(encoding="utf-8")).data["plots"]
    assert {"Mailboxes", "Senders that wait", "Who waited, and for what"} <= {each["title"] for each in cards}
    assert any("2 senders waited 3 times, 55 ms in all." in each["note"] for each in cards)
    assert [line for line in summary_lines(replayed) if line.startswith("waiting")] == [
        "waiting   client-1: 25 ms for queue:q, once",
        "waiting   client-1: 20 ms for an alarm, once",
        "waiting   queue:q: 10 ms for msg_store_persistent, once",
    ]


def test_an_outage_is_a_gap_in_the_plots():
    picture = Picture(0.5, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5], runs=[(0.0, 1.0), (2.0, 3.0)])
    assert picture.outages() == [(1.0, 2.0)]
    rate = course(picture, [4, 4, 0, 0, 4, 4], "rate", "blue")
    assert rate["y"] == [4, 4, None, None, 4, 4]
    delay = course(picture, [4, None, None, None, None, 4], "delay", "blue", joined=True)
    assert (delay["x"], delay["y"]) == ([0.0, 1.0, 1.5, 2.5], [4, None, None, 4])
    picture.runs.append((0.5, 2.5))  # a second broker, that lived meanwhile
    assert picture.outages() == []


def test_messages_on_their_way_at_a_kill_are_named_so_and_long_traces_say_the_command(tmp_path, monkeypatch):
    trace, page = tmp_path / "trace", tmp_path / "page.html"
    with SimulatedMachine(3, traced=True) as machine:
        queue = machine.sim.run(lambda: machine.open().declare_queue("jobs"))
        machine.sim.run(lambda: queue.publish(b"one").result())
        with machine.crash_at(1, power_cut=False, counts="datasync".__eq__) as outage:
            machine.sim.run(lambda: queue.publish_many([b"two", b"three"]).result())
        assert outage.came
        machine.sim.run(lambda: machine.open().close())
        machine.save_trace(trace)
    monkeypatch.setattr(_reports, "MOST_ROWS", 10)
    assert _reports.write_report_and_lens(replay(trace, engine="python"), str(page), str(trace)) is None
    data = Page(page.read_text(encoding="utf-8")).data
    assert dict(zip(data["queues"]["counts"], data["queues"]["rows"][0]["counts"], strict=True)) == {
        "published": 3, "confirmed": 1, "delivered": 0, "acked": 0, "dropped": 0, "on its way at a kill": 2,
    }  # fmt: skip
    (kill,) = data["moments"]
    assert kill["text"] == "The process went without a goodbye."
    with open_trace(trace) as opened:
        first = sum(chunk.rows for chunk in opened.catalog.chunks if chunk.run == 0)
    assert kill["command"] == f"warrenmq lens {trace} --at {first}"


def test_how_long_each_queues_messages_took_is_on_the_page_and_on_the_terminal(tmp_path, clean_trace):
    pytest.importorskip("plotly")
    replayed = replay(clean_trace, engine="python")
    write_report(replayed, tmp_path / "report.html")
    table = Page((tmp_path / "report.html").read_text(encoding="utf-8")).data["queues"]["rows"]
    times = {row["name"]: row["times"] for row in table}
    lines = summary_lines(replayed)
    head = next(at for at, line in enumerate(lines) if line.startswith("queue "))
    figures = replayed.result.figures["queues"]
    busiest = sorted(figures, key=lambda name: -figures[name]["published"])
    for name in busiest:
        for kind in ("confirm_ms", "deliver_ms", "ack_ms"):
            assert short_time(figures[name][kind]["p99.9"] / 1e3) in times[name]
    assert [line.split()[0] for line in lines[head + 1 : head + 1 + len(busiest)]] == busiest
    assert lines[head + 1].split()[1] == f"{figures[busiest[0]]['published']:,}"
    assert lines[head + 1].endswith(short_time(figures[busiest[0]]["ack_ms"]["p99"] / 1e3))


def test_the_terminal_shows_the_busiest_queues_and_counts_the_others(tmp_path):
    runs = side_by_side([consistent_trace(seed) for seed in range(5)])
    for run in runs:
        for actor in run.of("QueueProcess"):
            actor.name = actor.name.replace("queue:a", "a" * 200 + "z")
    lines = summary_lines(replay(write_directory(tmp_path / "trace", runs), engine="python", picture=False))
    assert "queues    and 2 more (--json lists all)" in lines
    shortened = [line.split()[0] for line in lines if "aaa" in line and line[0].isdigit()]
    assert shortened
    assert all(len(name) < 40 and "…" in name and name.endswith("az") for name in shortened)
    assert all(len(line) <= 80 for line in lines if "aaa" in line)


def test_a_queue_may_be_called_anything(tmp_path):
    pytest.importorskip("plotly")
    runs = consistent_trace(0)
    for actor in runs[0].of("QueueProcess"):
        actor.name = "</script><b>"
    target = tmp_path / "report.html"
    write_report(replay(write_directory(tmp_path / "trace", runs), engine="python"), target)
    page = Page(target.read_text(encoding="utf-8"))
    assert len(page.scripts) == 3
    assert any("</script><b>" in trace["name"] for plot in page.data["plots"] for trace in plot["data"])


def test_without_plotly_the_extra_is_named(monkeypatch, clean_trace, capsys):
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda _name: None)
    assert main(["replay", clean_trace, "--engine", "python", "--report", "x.html"]) == 2
    assert "warrenmq[report]" in capsys.readouterr().err


def test_a_report_needs_a_picture(clean_trace, tmp_path):
    pytest.importorskip("plotly")
    with pytest.raises(CallerError, match="picture=True"):
        write_report(replay(clean_trace, engine="python", picture=False), tmp_path / "x.html")


def test_the_last_line_is_the_verdict(clean_trace, broken_trace, tmp_path):
    gap = consistent_trace(2)
    del max(gap[0].of("QueueProcess"), key=lambda actor: len(actor.rows)).rows[20:30]
    indeterminate = write_directory(tmp_path / "trace", side_by_side([gap]))
    for path, word in ((clean_trace, "ok"), (broken_trace, "violated"), (indeterminate, "indeterminate")):
        lines = summary_lines(replay(path, engine="python", picture=False))
        assert re.match(rf"verdict {word}(, with [^:]+)?: ", lines[-1])
        assert len(lines) < 400


def test_exit_codes_say_violated_or_not(clean_trace, broken_trace, tmp_path, capsys):
    assert main(["replay", clean_trace, "--engine", "python"]) == 0
    assert main(["replay", broken_trace, "--engine", "python"]) == 1
    assert main(["replay", str(tmp_path), "--engine", "python"]) == 2
    assert "is no trace" in capsys.readouterr().err


def test_json_is_one_object(broken_trace, capsys):
    assert main(["replay", broken_trace, "--engine", "python", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "violated"
    assert {"violations", "indeterminate", "events", "messages", "rules", "engine"} <= set(found)
    assert {"rule", "subject", "text", "rows", "chain"} == set(found["violations"][0])


def test_without_pyspark_the_other_engine_is_named(monkeypatch, clean_trace, capsys):
    from warrenmq.replay.spark import session as spark_session

    monkeypatch.setattr(spark_session.importlib.util, "find_spec", lambda _name: None)
    assert main(["replay", clean_trace]) == 2
    said = capsys.readouterr().err
    assert "warrenmq[spark,java]" in said
    assert "--engine python" in said
    assert "Traceback" not in said


@pytest.mark.spark
def test_tables_are_made_while_the_rules_are_judged(spark, clean_trace, monkeypatch):
    from warrenmq.replay.spark import engine, measures

    begun, judge, fill = Event(), engine.replay_indexed, measures.measure

    def judged_meanwhile(*args):
        assert begun.wait(60)
        return judge(*args)

    def filled(*args):
        begun.set()
        return fill(*args)

    monkeypatch.setattr(engine, "replay_indexed", judged_meanwhile)
    monkeypatch.setattr(measures, "measure", filled)
    assert replay(clean_trace).picture == replay(clean_trace, engine="python").picture


@pytest.mark.spark
def test_spark_prints_the_same_but_for_the_engine(spark, clean_trace, tmp_path, capsys):
    assert main(["replay", clean_trace, "--json", "--history", str(tmp_path)]) == 0
    ours = json.loads(capsys.readouterr().out)
    assert main(["replay", clean_trace, "--json", "--engine", "python", "--history", str(tmp_path)]) == 0
    theirs, said = capsys.readouterr()
    theirs = json.loads(theirs)
    assert f"replaced in history {tmp_path}" in said, "it is the same trace for both"
    differ = {name for name in ours if ours[name] != theirs[name]}
    assert differ <= {"engine", "seconds"}
