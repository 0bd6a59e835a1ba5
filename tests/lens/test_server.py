"""The local server: who may ask, what it sends, a live trace in a real browser, and the bytes of records."""

import asyncio
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Route

import warrenmq
from tests.broker.lives import long_life, short_life, trace_of
from tests.support.limits import LIMIT
from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from tests.support.source_tree import ROOT
from warrenmq import lens
from warrenmq.cli import main
from warrenmq.errors import CallerError
from warrenmq.lens import feed as feeds
from warrenmq.lens import server, sources
from warrenmq.lens.feed import Feed
from warrenmq.lens.fold import Fold
from warrenmq.lens.record_bytes import RecordReader
from warrenmq.lens.server import Guard, Site, site
from warrenmq.lens.sources import Follower, recorded, row_of, rows_from
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.trace import tail
from warrenmq.trace.reader import open_memory, open_trace
from warrenmq.trace.segment import decode_header, encode_header


@pytest.fixture(scope="module")
def trace():
    host = SimulatedHost(5)
    with host.open() as broker:
        queue = broker.declare_queue("jobs")
        for number in range(60):
            queue.publish(b"x" * (number * 40)).result()
        for _ in range(50):
            queue.get().ack()
    files = host.sink.files()
    host.close()
    return open_memory(files)


def client(app, host="127.0.0.1:5000"):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{host}")


def asked(app, method="GET", path="/", host="127.0.0.1:5000", **headers):
    async def ask():
        async with client(app, host) as each:
            return await each.request(method, path, headers=headers)

    with ThreadPoolExecutor(1) as thread:  # Playwright's loop may be running in this one
        return thread.submit(asyncio.run, ask()).result()


@pytest.mark.parametrize(
    ("method", "host", "headers", "status"),
    [
        ("GET", "127.0.0.1:5000", {}, 200),
        ("GET", "localhost:5000", {}, 200),
        ("GET", "[::1]:5000", {}, 200),
        ("GET", "evil.example", {}, 403),
        ("GET", "127.0.0.1.evil.example:5000", {}, 403),
        ("GET", "127.0.0.1:5000", {"Origin": "http://127.0.0.1:5000"}, 200),
        ("GET", "127.0.0.1:5000", {"Origin": "http://evil.example"}, 403),
        ("GET", "127.0.0.1:5000", {"Origin": "http://127.0.0.1:6000"}, 403),
        ("GET", "127.0.0.1:5000", {"Origin": "null"}, 403),
        ("POST", "127.0.0.1:5000", {}, 403),
        ("POST", "127.0.0.1:5000", {"X-Lens-Token": "wrong"}, 403),
        ("POST", "127.0.0.1:5000", {"X-Lens-Token": "right"}, 405),  # past the guard: / takes no commands
        ("POST", "evil.example", {"X-Lens-Token": "right"}, 403),
    ],
)
def test_only_pages_of_this_machine_are_answered(method, host, headers, status):
    app = Starlette(routes=[Route("/", lambda _: Response())], middleware=[Middleware(Guard, token="right")])
    answer = asked(app, method, host=host, **headers)
    assert answer.status_code == status
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_without_a_token_nothing_can_be_commanded(trace):
    assert asked(site(recorded(trace, "t")), "POST", **{"X-Lens-Token": ""}).status_code == 403


@pytest.mark.parametrize(
    "path",
    ["/static/../server.py", "/static/server.py", "/static/none.js", "/nothing", "/bytes?store=p", "/index"],
)
def test_nothing_else_is_served(trace, path):
    assert asked(site(recorded(trace, "t")), path=path).status_code == 404


def test_bad_questions_are_answered_in_a_sentence(trace, tmp_path):
    (tmp_path / "msg_store_persistent").mkdir()
    app = site(recorded(trace, "t"), reader=RecordReader(str(tmp_path)))
    for path in (
        "/bytes?store=x&file=0&offset=0&size=1",
        "/bytes?store=p&file=..&offset=0&size=1",
        "/index?queue=q&priority=0&seq=-1",
        "/index?priority=0&seq=1",
        "/events?after=-1",
        "/events",
    ):
        assert asked(app, path=path).status_code == 400
    assert "cannot be read" in asked(app, path="/bytes?store=p&file=9&offset=0&size=1").json()["error"]


def test_bodies_are_shown_only_where_that_was_asked_for(tmp_path):
    with warrenmq.open(tmp_path / "data") as broker:
        broker.declare_queue("q").publish(b"secret" * 2_000).result()
    with next((tmp_path / "data").rglob("msg_store_persistent/0.rdq")).open("rb") as file:
        size = int.from_bytes(file.read(8)) + 9
    for bodies, hidden in ((False, True), (True, False)):
        found = RecordReader(str(tmp_path / "data"), bodies=bodies).read("p", 0, 0, size)
        assert "error" not in found
        assert (b"secret" not in bytes(found["data"])) is hidden
    assert RecordReader(str(tmp_path / "data")).read("p", 0, 1 << 40, 40)["error"]
    assert "moved or overwritten" in RecordReader(str(tmp_path / "data")).read("p", 0, 0, size - 1)["error"]
    with pytest.raises(CallerError, match="is not a directory"):
        RecordReader(str(tmp_path / "nowhere"))


def test_of_several_virtual_hosts_the_one_is_read_that_is_named(tmp_path):
    data = tmp_path / "data"
    with warrenmq.open(data) as broker:
        broker.declare_queue("q").publish(b"small").result()
    (folder,) = (data / "msg_stores" / "vhosts").iterdir()
    shutil.copytree(folder, folder.with_name("ANOTHER"))
    for index in (folder.with_name("ANOTHER") / "queues").glob("*/*.q?"):
        index.unlink()
    with pytest.raises(CallerError, match=r"2 virtual hosts; say which with --vhost: .*, ANOTHER"):
        RecordReader(str(data))
    assert RecordReader(str(data), vhost="/").index("q", 0, 0)["records"]
    assert RecordReader(str(data), vhost="ANOTHER").index("q", 0, 0)["records"] == []
    with pytest.raises(CallerError, match="say which"):
        RecordReader(str(data), vhost="third")


def test_a_stream_of_events_ends_by_itself_so_that_a_server_can_stop(trace, monkeypatch):
    monkeypatch.setattr(server, "_LONGEST", 0.2)
    answer = asked(site(recorded(trace, "t")), path="/events?after=0")
    assert f"id: {trace.catalog.rows}" in answer.text


def lines(text):
    head, *segments = text.split("\n")
    return json.loads(head), [json.loads(each) for each in segments]


def test_a_feed_that_grows_sends_each_row_once(trace, monkeypatch):
    monkeypatch.setattr(feeds, "GENERATION_ROWS", 100)
    feed = Feed(trace.catalog.runs, "t", live=True)
    at, rows, sent = 0, list(rows_in_order(trace)), 0
    while at < len(rows):
        feed.add(rows[at : at + 33])
        at += 33
        for more, last in feed.since(sent):
            assert last == sent + more["n"]
            sent = last
    assert sent == feed.last == trace.catalog.rows
    head, segments = lines(feed.tape())
    assert head["first"] + sum(head["segments"]) == sent
    assert head["first"] > 0
    assert sum(each["n"] for each in segments) == sum(head["segments"])
    assert feed.since(3) == [({"anew": True}, 3)]


def test_a_row_is_found_by_the_name_that_a_finding_has_for_it(trace):
    rows = list(rows_in_order(trace))
    for wanted in (1, len(rows) // 2, len(rows)):
        run, row = rows[wanted - 1]
        assert row_of(trace, trace.catalog.runs[run].actor_name(row.actor), row.seq) == wanted
    with pytest.raises(CallerError, match="has written a row 99999"):
        row_of(trace, "queue:jobs", 99_999)


def test_a_row_that_several_runs_have_is_found_by_its_run():
    both = open_memory(trace_of(3, short_lives))
    first, second = both.catalog.runs
    with pytest.raises(
        CallerError, match=f"2 runs .* say '{first.name} queue_sup 1' or '{second.name} queue_sup 1'"
    ):
        row_of(both, "queue_sup", 1)
    assert row_of(both, f"{first.name} queue_sup", 1) < row_of(both, f"{second.name} queue_sup", 1)


def short_lives(host):
    for _ in range(2):
        short_life(host)


def test_a_window_begins_where_the_whole_trace_has_that_row(trace, monkeypatch):
    rows = list(rows_in_order(trace))
    for wanted in (0, 1, *range(2, len(rows), 37), len(rows) - 5):
        assert list(rows_from(trace, wanted)) == rows[wanted:]
    monkeypatch.setattr(sources, "WHOLE_ROWS", 100)
    monkeypatch.setattr(sources, "WINDOW_ROWS", 100)
    warm, _ = lines(recorded(trace, "t", at=300).tape())
    assert (warm["first"], sum(warm["segments"])) == (250, 100)
    fold = Fold(trace).at(250)
    assert {name: len(table) for name, table in zip(warm["tables"], warm["base"], strict=True)} == {
        name: len(table) for name, table in fold.items()
    }
    monkeypatch.setattr(sources, "WARM_ROWS", 10)
    cold, _ = lines(recorded(trace, "t", at=300).tape())
    assert (cold["first"], sum(cold["segments"])) == (250, 100)
    assert "not shown" in cold["note"]
    # times count from the begin of the run, which is in no cold window
    assert warm["runs"][0]["t"] == cold["runs"][0]["t"] == rows[0][1].t
    with pytest.raises(CallerError, match="no row"):
        recorded(trace, "t", at=len(rows) + 1)


def test_without_descriptors_the_page_waits_and_the_log_gets_a_line_a_second(trace, monkeypatch, caplog):
    failed, accept = threading.Event(), socket.socket.accept
    refused = []

    def no_descriptor(listener):
        refused.append(listener.fileno())
        failed.set()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", no_descriptor)
    served = Site(site(recorded(trace, "t")))
    thread = threading.Thread(target=served.run)
    thread.start()
    try:
        with ThreadPoolExecutor(1) as other:
            page = other.submit(httpx.get, served.url, timeout=LIMIT)
            assert failed.wait(LIMIT)
            monkeypatch.setattr(socket.socket, "accept", accept)
            assert page.result(LIMIT).status_code == 200
    finally:
        served.close()
        thread.join()
    assert len(refused) < 20  # asyncio tries again every second
    said = [each for each in caplog.records if "out of system resource" in each.getMessage()]
    assert len(said) == len(refused)
    assert "Traceback" not in caplog.text


def test_a_follower_that_had_no_descriptor_goes_on(tmp_path, monkeypatch):
    failed = threading.Event()

    def refuse(path):
        failed.set()
        raise OSError(errno.EMFILE, "Too many open files", path)

    with warrenmq.open(tmp_path / "data", trace=tmp_path / "trace") as broker:
        jobs = broker.declare_queue("jobs")
        follower = Follower(str(tmp_path / "trace"), "t")
        follower.start()
        with monkeypatch.context() as without:
            without.setattr(tail, "files_at", refuse)
            assert failed.wait(LIMIT)
        jobs.publish(b"x").result(LIMIT)
    with open_trace(tmp_path / "trace") as whole:
        rows = whole.catalog.rows
    end = time.monotonic() + LIMIT
    while follower.feed.last < rows and time.monotonic() < end:
        time.sleep(0.01)
    follower.close()
    assert follower.feed.last == rows


def test_a_running_broker_is_followed(tmp_path, watched):
    with warrenmq.open(tmp_path / "data", trace=tmp_path / "trace") as broker:
        jobs = broker.declare_queue("jobs")
        served = Site(lens.app(broker))
        thread = threading.Thread(target=served.run)
        thread.start()
        try:
            watched.page.context.set_offline(False)
            watched.may_ask = served.url
            watched.page.goto(served.url)
            watched.page.wait_for_selector("body[data-ready]")
            jobs.publish(b"x" * 6_000).result(LIMIT)
            watched.until(
                "[...lens.T.queue.keys()].includes('jobs') && lens.tape.marks.some(([, mark]) => lens.tape.head.marks[mark] === 'confirm')"
            )
            assert watched.page.locator(".title .live").count() == 1
            assert watched.page.evaluate("lens.state.at") == watched.page.evaluate("lens.tape.last")
        finally:
            watched.page.goto("about:blank")
            served.close()
            thread.join()
    follower = Follower(str(tmp_path / "trace"), "t")
    for _ in range(3):
        follower.look()
    with open_trace(tmp_path / "trace") as whole:
        assert follower.feed.last == whole.catalog.rows


def test_a_followed_trace_ends_with_a_sentence_where_a_run_of_a_later_version_begins(tmp_path, trace):
    for name, content in trace_of(3, long_life, BOTH_PROFILES["modern"]).items():
        (tmp_path / os.path.basename(name)).write_bytes(content)
    follower = Follower(str(tmp_path), "t")
    follower.start()
    first = next(each for each in sorted(tmp_path.iterdir()) if each.suffix == ".wtr")
    header, end = decode_header(memoryview(first.read_bytes()))
    later = encode_header(header | {"v": 99, "run": "later"}) + first.read_bytes()[end:]
    (tmp_path / "later-n-1-000001.wtr").write_bytes(later)
    follower._thread.join(LIMIT)
    assert "later version" in follower.feed.ended
    answer = asked(site(follower.feed), path=f"/events?after={follower.feed.last}")
    assert "event: ended" in answer.text
    head, _ = lines(follower.feed.tape())
    assert not head["live"]
    assert "later version" in head["note"]


def test_a_broker_without_a_trace_is_refused(tmp_path):
    with warrenmq.open(tmp_path / "data") as broker, pytest.raises(CallerError, match="trace=FOLDER"):
        lens.app(broker)


def test_a_notebook_shows_the_page_in_a_frame(tmp_path):
    host = SimulatedHost(1)
    with host.open() as broker:
        broker.declare_queue('"><script>').publish(b"m").result()
    host.save_trace(tmp_path)
    host.close()
    shown = lens.show(tmp_path)
    html = shown._repr_html_()
    assert html.startswith('<iframe sandbox="allow-scripts" srcdoc="&lt;!doctype html&gt;')
    assert html.count("<") == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{tmp}/nowhere"], "no trace at"),
        (["{tmp}/empty"], "is no trace"),
        (["{trace}", "--at", "1000000"], "no row"),
        (["{trace}", "--at", "queue:jobs x"], "give the number of a row"),
        (["{trace}", "--at", "nobody 7"], "no actor 'nobody'"),
        (["{trace}", "--data", "{tmp}/none", "--at", "1"], "is not a directory"),
        (["{trace}", "--bodies"], "--bodies needs --data"),
        ([], "name a trace, or the data directory"),
        (["{trace}", "--live", "--at", "3"], "leave --at out"),
        (["{trace}", "--port", "{port}"], "cannot be used"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_sentence(arguments, said, tmp_path, capsys):
    host = SimulatedHost(1)
    host.open().close()
    host.save_trace(tmp_path / "trace")
    host.close()
    (tmp_path / "empty").mkdir()
    with Taken() as port:
        given = [each.format(tmp=tmp_path, trace=tmp_path / "trace", port=port) for each in arguments]
        assert main(["lens", *given]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


class Taken:
    """A port that is in use."""

    def __enter__(self):
        import socket

        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen()
        return self.socket.getsockname()[1]

    def __exit__(self, *_):
        self.socket.close()


def test_the_command_serves_until_ctrl_c(tmp_path):
    host = SimulatedHost(1)
    host.open().close()
    host.save_trace(tmp_path / "trace")
    host.close()
    # the trace is in a folder of it
    command = [sys.executable, "-m", "warrenmq", "lens", str(tmp_path), "--live"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("ready ").strip()
        assert httpx.get(url).status_code == 200
        assert httpx.get(f"{url}tape").text.startswith('{"title"')
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0
