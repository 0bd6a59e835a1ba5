"""`warrenmq learn`: the list, the static site, the server of one lesson, and what it says of wrong ones."""

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from html import unescape

import httpx
import pytest

from warrenmq.cli import main
from warrenmq.lens.drive import Drive
from warrenmq.lens.drive_site import Driven
from warrenmq.lens.lesson import find_lesson, lessons, play, script_name
from warrenmq.lens.lesson_page import export
from warrenmq.lens.lesson_site import lesson_site
from warrenmq.lens.stills import name, parts
from warrenmq.lens.tables import empty, named

HOSTILE = '<script>alert(1)</script>" \u202e'
SCENE = """
def scenario(machine):
    broker = machine.open()
    name = '<script>alert(1)</script>" \\u202e'
    queue = broker.declare_queue(name)
    broker.declare_exchange(name + "x", "fanout")
    broker.bind(name, name + "x", name)
    queue.publish(b"x" * 5000)
    machine.mark("here")
"""
TEXT = "# <b>One</b> `x`\n\nAll of *it*.\n\n## Step\nmark: here\nlook: stores, flying, cache, mail, tree, queue, index, publisher, exchanges, memory, alarms\n\nText."


def test_the_lessons_are_listed(capsys):
    assert main(["learn"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 15
    assert lines[3].split()[:2] == ["4", "flying-counter"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    return folder, export(lessons(), str(folder))


def test_the_site_holds_all_that_its_pages_link_to_and_runs_no_script_in_a_text(site):
    folder, names = site
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    for each in names:
        if each.endswith(".lens.html") or not each.endswith(".html"):
            continue
        text = (folder / each).read_text(encoding="utf-8")
        links = re.findall(r'(?:href|src)="([^"]*)"', text)
        assert {link.partition("#")[0] for link in links} - {"data:,"} <= set(names)
        assert "<script" not in text
        assert "http" not in text.replace("http-equiv", "")
        ids = re.findall(r' id="([^"]+)"', text)
        assert not [one for one in ids if one != "hatch" and ids.count(one) > 1]


def test_a_page_has_every_step_with_its_picture_and_the_right_answer_marked(site):
    folder, _ = site
    for lesson in lessons():
        text = (folder / f"{lesson.name}.html").read_text(encoding="utf-8")
        played = play(lesson)
        assert text.count("<article") == len(lesson.steps)
        assert text.count("<figure>") == sum(bool(step.look) for step in lesson.steps)
        assert text.count('class="verdict right"') == sum(each.right is not None for each in played.steps)
        for each in played.steps:
            assert f"#row={each.row}" in text


def test_the_same_lessons_give_the_same_site(site, tmp_path):
    folder, names = site
    assert export([find_lesson("4")], str(tmp_path))
    for each in ("04-flying-counter.lens.html", "lessons.css"):
        assert (tmp_path / each).read_bytes() == (folder / each).read_bytes()
    assert names[0] == "index.html"


def test_an_export_says_where_it_is(tmp_path, capsys):
    assert main(["learn", "4", "--export", str(tmp_path / "s")]) == 0
    assert f"begin with {tmp_path / 's'}/index.html" in capsys.readouterr().out


def test_names_of_a_lesson_s_queues_are_only_ever_text(tmp_path):
    (tmp_path / "scenario.py").write_text(SCENE, encoding="utf-8")
    (tmp_path / "lesson.md").write_text(TEXT, encoding="utf-8")
    export([find_lesson(str(tmp_path))], str(tmp_path / "site"))
    text = (tmp_path / "site" / f"{tmp_path.name}.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;b&gt;One&lt;/b&gt; <code>x</code>" in text
    assert f"<bdi>{HOSTILE}</bdi>" in unescape(text)


def test_a_picture_of_nothing_says_so():
    look = (
        "stores", "flying", "cache", "mail", "tree", "queue", "index", "publisher", "exchanges", "memory",
        "alarms",
    )  # fmt: skip
    drawn = parts(named(empty()), look)
    assert drawn.count('class="none"') == len(look)
    assert name("<") == "<bdi>&lt;</bdi>"


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        (["nothing"], TEXT, "there is no lesson 'nothing'"),
        (["{folder}"], TEXT.replace("mark: here", "mark: gone"), "no mark 'gone'"),
        (["{folder}", "--export", "{folder}/lesson.md"], TEXT, "cannot be written"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_exit_2(arguments, text, said, tmp_path, capsys):
    (tmp_path / "scenario.py").write_text(SCENE, encoding="utf-8")
    (tmp_path / "lesson.md").write_text(text, encoding="utf-8")
    assert main(["learn", *(each.format(folder=tmp_path) for each in arguments)]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1


def test_the_stop_of_a_quoted_error_is_the_sentences_own(tmp_path, capsys):
    (tmp_path / "scenario.py").write_text("raise ValueError('Not so.')", encoding="utf-8")
    (tmp_path / "lesson.md").write_text(TEXT, encoding="utf-8")
    assert main(["learn", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith("ValueError: Not so.\n")


def test_a_lesson_is_served_with_its_lens_and_its_drive():
    lesson = find_lesson("flying-counter")
    # in a thread: a browser of another test may keep a loop in this one
    with Driven(script_name(lesson), lesson.title) as driven, ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, use(lesson_site(play(lesson), driven, "secret"))).result()


TOKEN = {"X-Lens-Token": "secret"}
PUBLISH = {"do": "publish", "queue": "orders", "size": 9}


async def use(app):
    """Read the pages, drive the broker, and ask for what is refused."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        await read_pages(client)
        run = await drive(client)
        answers = await drive_two_profiles(client)
        await ask_for_nonsense(client, run, answers)


async def post(client, path, **body):
    return (await client.post(f"/drive/{path}", json=body, headers=TOKEN)).json()


async def read_pages(client):
    assert "Flying counters" in (text := (await client.get("/")).text)
    assert "secret" not in text
    assert "drive/#token=secret" in (await client.get("/?token=secret")).text
    assert "secret" not in (await client.get("/?token=wrong")).text
    for path in (
        "lessons.css", "lens/", "lens/tape", "lens/static/app.js", "lens/static/drive.js", "drive/", "drive/view/modern/",
        "drive/view/modern/tape",
    ):  # fmt: skip
        assert (await client.get(f"/{path}")).status_code == 200
    assert (await client.get("/drive/view/other/tape")).status_code == 404
    assert (await client.get("/", headers={"Host": "evil.example"})).status_code == 403
    assert (await client.post("/drive/do", json=PUBLISH)).status_code == 403


async def drive(client):
    """Publish, let it settle, go back, and come again; returns the run."""
    (first,) = (await client.get("/drive/now")).json()["runs"]
    (run,) = (await post(client, "do", **PUBLISH, after={"modern": first["rows"]}))["runs"]
    assert run["result"] == 1
    assert sum(more["n"] for more in run["news"]) == run["rows"] - first["rows"] > 0
    assert run["came"][-1] == ["publish 1 of 9 bytes to orders", run["rows"]]
    before = (await client.get("/drive/view/modern/tape")).text

    async def in_index(row):
        return await client.get(f"/drive/view/modern/index?queue=orders&priority=0&seq=1&row={row}")

    bytes_then = await in_index(run["rows"])
    assert bytes_then.headers["x-rows"] == str(run["rows"])
    assert bytes_then.json()["records"] == []  # it is in the queue's memory
    await post(client, "do", do="settle")
    now = (await client.get("/drive/now")).json()["runs"][0]["rows"]
    assert (await in_index(now)).json()["records"]
    assert (await in_index(run["rows"])).json()["records"] == []
    assert "error" in (await client.get("/drive/view/modern/bytes?row=0")).json()
    (forked,) = (await post(client, "fork", rows={"modern": 1}))["runs"]
    assert forked["rows"] < run["rows"]
    (again,) = (await post(client, "again", links=[run["link"]]))["runs"]
    assert (again["rows"], again["link"]) == (run["rows"], run["link"])

    def whole(tape):
        return [json.loads(each)["n"] for each in tape.split("\n")[1:]]

    assert sum(whole((await client.get("/drive/view/modern/tape")).text)) == sum(whole(before))
    return run


async def drive_two_profiles(client):
    both = (await post(client, "beside", profiles=["classic", "modern"]))["runs"]
    assert [each["profile"] for each in both] == ["classic", "modern"]
    answers = (await post(client, "do", **PUBLISH, after={"classic": both[0]["rows"], "modern": 3}))["runs"]
    assert [each["result"] for each in answers] == [1, 1]
    assert answers[1]["news"] == [{"anew": True}]
    return answers


async def ask_for_nonsense(client, run, answers):
    elsewhere = Drive.of_link(run["link"])
    elsewhere.script = "/somebody/s/lesson"
    for path, body in (
        ("fork", {"rows": {"modern": "x"}}),
        ("fork", {"rows": {"modern": 10**9}}),
        ("fork", []),
        ("again", {"links": ["x"]}),
        ("again", {"links": []}),
        ("again", {"links": [elsewhere.link()]}),
        ("beside", {"profiles": ["old"]}),
    ):
        refused = await client.post(f"/drive/{path}", json=body, headers=TOKEN)
        assert refused.status_code == 400
        assert refused.json()["error"].endswith((".", "?"))
    elsewhere.close()
    for content in ("no json", "[]", json.dumps({"do": "dance"}), "x" * 70_000):
        answer = (await client.post("/drive/do", content=content, headers=TOKEN)).json()
        assert {each["error"] for each in answer["runs"]} != set()
        assert [each["rows"] for each in answer["runs"]] == [each["rows"] for each in answers]
