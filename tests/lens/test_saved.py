"""The saved page: one file, the same each time, which shows in a real browser what the fold says."""

import json
import random
import re
from collections import Counter

import pytest

from tests.broker.lives import long_life, trace_of
from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from warrenmq.cli import main
from warrenmq.lens.captions import render
from warrenmq.lens.fold import Fold
from warrenmq.lens.marked import Evidence, Marked
from warrenmq.lens.saved import MODULES, one_script, packed, page, save, static
from warrenmq.lens.tables import NAMES
from warrenmq.replay.drive.engine import replay_trace
from warrenmq.trace.reader import open_memory, open_trace

HOSTILE = [
    '<script>document.title="hacked"</script>',
    '"><img src=x onerror=alert(1)>',
    "\u202egnp.exe",
    "a/b#7 <b>&amp;",
]


@pytest.fixture(scope="module", params=BOTH_PROFILES)
def trace(request):
    return open_memory(trace_of(3, long_life, BOTH_PROFILES[request.param]))


@pytest.fixture(scope="module")
def saved(trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("lens") / "page.html"
    save(trace, str(path), "a life")
    return path


def test_the_same_trace_gives_the_same_file(trace, saved, tmp_path):
    save(trace, str(tmp_path / "again.html"), "a life")
    assert (tmp_path / "again.html").read_bytes() == saved.read_bytes()


def test_the_modules_can_be_one():
    """Each top-level name is declared in one module only, and modules stand behind those that they import."""
    declared = Counter()
    for place, name in enumerate(MODULES):
        text = static(f"{name}.js")
        declared.update(
            set(re.findall(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", text, re.MULTILINE))
        )
        for needed in re.findall(r'^import .* from "\./(\w+)\.js";$', text, re.MULTILINE):
            assert needed in MODULES[:place]
    assert [name for name, count in declared.items() if count > 1] == []
    assert not re.search(r"^(import|export)\b", one_script(), re.MULTILINE)


def test_nothing_of_the_page_makes_markup_of_text():
    for name in MODULES:
        text = static(f"{name}.js")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text
        ), name


def test_the_page_shows_the_state_and_the_caption_of_any_row(trace, saved, watched):
    shown = watched.open(saved, row=500)
    fold, captions = Fold(trace), ["", *(render(step.caption) for step in Fold(trace).steps())]
    chosen = random.Random(7)
    for row in [*(chosen.randint(1, fold.rows) for _ in range(6)), fold.rows, 1]:
        state = fold.at(row)
        tables = shown.evaluate(
            "(row) => { lens.go(row, false); return lens.tape.tables.map((table) => [...table]); }", row
        )
        for name, table in zip(NAMES, tables, strict=True):
            told = {
                str(key): list(value) if isinstance(value, tuple) else value
                for key, value in state[name].items()
            }
            assert {str(key): value for key, value in table} == told, (row, name)
        assert shown.inner_text(".caption") == captions[row]


def test_the_page_goes_on_and_back_by_keys(trace, saved, watched):
    shown = watched.open(saved)

    def at():
        return shown.evaluate("lens.state.at")

    shown.keyboard.press("ArrowRight")
    assert at() == 2
    shown.keyboard.press("End")
    assert at() == trace.catalog.rows
    shown.keyboard.press("ArrowLeft")
    shown.keyboard.press("Home")
    assert at() == 1
    shown.keyboard.press("u")
    synced = at()
    assert shown.evaluate("lens.tape.head.marks[lens.tape.row(lens.state.at).mark]") == "sync"
    shown.keyboard.press("w")
    assert shown.locator(".why li").count() == 1 + len(shown.evaluate("lens.tape.why(lens.state.at)"))
    shown.keyboard.press("Escape")

    def focus(where):
        return shown.evaluate(f"document.activeElement === document.querySelector({where!r})")

    shown.focus(".ask")  # from the keyboard: a dialog takes the focus, and gives it back to what opened it
    shown.keyboard.press("Enter")
    assert focus(".why")
    shown.keyboard.press("Escape")
    assert focus(".ask")
    shown.keyboard.press("/")
    assert focus(".search input")
    shown.keyboard.press("Escape")
    assert focus(".ask")
    shown.focus(".actor .of")
    shown.keyboard.press("Enter")
    assert focus(".inspector")
    shown.keyboard.press("?")  # one opened in another: both close, and the focus is where it began
    shown.keyboard.press("Escape")
    assert focus(".actor .of")
    shown.keyboard.press("Enter")
    shown.keyboard.press("Tab")
    assert focus(".inspector .close")
    shown.keyboard.press("Enter")
    assert focus(".actor .of")
    shown.keyboard.press("i")
    assert shown.locator(".inspector").count() == 1
    shown.keyboard.press("?")
    assert shown.locator(".keys dt").count() > 10
    shown.keyboard.press("n")
    assert at() > synced
    watched.until("location.hash.includes('row=' + lens.state.at)")
    shown.keyboard.press("/")
    shown.keyboard.type("is up again")
    shown.keyboard.press("Enter")
    assert "is up again" in shown.inner_text(".caption")
    shown.go_back()
    watched.until("!document.querySelector('.caption').innerText.includes('is up again')")


def test_what_is_let_go_leaves_the_address(saved, watched):
    shown = watched.open(saved)
    for key in ("i", "f", "Escape"):
        shown.keyboard.press(key)
    watched.until("location.hash === '#row=1'")
    shown.keyboard.press("/")
    shown.keyboard.type("no caption says this")
    shown.keyboard.press("Enter")
    assert shown.inner_text(".search [role=status]") == "no later row says so"


@pytest.mark.parametrize(("count", "shown"), [(300, 300), (900, 3)])
def test_many_records_of_a_file_are_filled_as_far_as_they_are_synced(saved, watched, count, shown):
    """None is so thin that nothing is seen of it but the line to its neighbour; none is told as synced that is not."""
    page = watched.open(saved)
    found = page.evaluate(
        """(count) => {
          const { tape, names } = lens, size = 50;
          tape.tables[names.run] = new Map(tape.tables[names.run]).set("settings", [1, count * size, 16, 16, 100]);
          tape.tables[names.file] = new Map([["p/7", [count * size, count * size * 2 / 3, count * size / 3, 0, "current"]]]);
          tape.tables[names.rec] = new Map(Array.from({ length: count }, (_, n) => [`p/7/${n * size}`, [n + 1000, size, 1, ""]]));
          lens.render(false);
          return [...document.querySelectorAll(".rec")].map((rec) => ({ level: /w\\d/.exec(rec.className)[0], wide: rec.getBoundingClientRect().width,
            edge: parseFloat(getComputedStyle(rec, "::after").width) || 0, border: parseFloat(getComputedStyle(rec).borderRightWidth) }));
        }""",
        count,
    )
    assert len(found) == shown
    width = Counter()
    for each in found:
        width[each["level"]] += each["wide"]
        assert each["edge"] < each["wide"] / 3
        assert each["level"] == "w0" or not each["border"]
    assert max(width.values()) < 1.3 * min(width.values())


@pytest.mark.parametrize("width", [320, 768, 3840])
def test_the_page_fits(saved, watched, width):
    watched.page.set_viewport_size({"width": width, "height": 844})
    shown = watched.open(saved, row=700)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    shown.evaluate(
        "lens.tape.head.chapters = [1, 2, 3, 4, 5, -3, -2, -1, 0].map((row) => [row > 0 ? row : lens.tape.last + row, 'a chapter']); lens.go(700)"
    )
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    sides = "[...document.querySelectorAll('.chapters button')].map((each) => each.getBoundingClientRect()).every((box) => box.left >= 0 && box.right <= innerWidth)"
    assert shown.evaluate(sides)
    shown.evaluate(
        "lens.go(lens.tape.next(700, 1, (row) => lens.tape.head.events[lens.tape.row(row).event] === 'APPEND'))"
    )
    shapes = "[...document.querySelectorAll('.cell.foc, .rec.foc, .chip.foc')].map((each) => getComputedStyle(each).boxShadow.includes('-5px'))"
    # this row's message differs in form, not by its colour alone
    assert set(shown.evaluate(shapes)) == {True}
    unnamed = "[...document.querySelectorAll('button, select, input')].filter((e) => !(e.innerText || e.ariaLabel || e.title).trim()).length"
    assert shown.evaluate(unnamed) == 0


def test_names_and_bodies_cannot_become_markup(watched, tmp_path):
    host = SimulatedHost(1)
    with host.open() as broker:
        for name in HOSTILE:
            queue = broker.declare_queue(name)
            queue.publish(f"<script>{name}</script>".encode() * 10).result()
            queue.get().ack()
    trace = open_memory(host.sink.files())
    host.close()
    path = tmp_path / "page.html"
    path.write_text(page(packed(trace, HOSTILE[0]), HOSTILE[0]), encoding="utf-8")
    shown = watched.open(path)
    for row in range(1, trace.catalog.rows, 29):
        shown.evaluate("(row) => lens.go(row, false)", row)
    shown.evaluate(
        "lens.go(lens.tape.marks.filter(([, mark]) => lens.tape.head.marks[mark] === 'confirm').at(-1)[0])"
    )
    shown.evaluate("lens.select({kind: 'actor', id: lens.tape.row(lens.state.at).actor}); lens.toggle('why')")
    assert shown.locator("#app :is(script, img, b > b)").count() == 0
    assert shown.title() == f"{HOSTILE[0]}: the lens"
    names = shown.locator(".queue h3").all_inner_texts()
    assert set(names) == {name.replace("\u202e", "\u27e8U+202E\u27e9") for name in HOSTILE}


def test_a_violated_rule_is_a_mark_that_is_told(watched, tmp_path):
    from tests.replay.planted_violations import a_restart_beyond_intensity
    from tests.support.simulated_trace import consistent_trace
    from tests.support.trace_writer import write_trace

    runs = consistent_trace(3)
    a_restart_beyond_intensity(runs)
    trace = open_memory(write_trace(runs))
    violations = replay_trace(trace).violations
    assert violations
    path = tmp_path / "page.html"
    path.write_text(
        page(packed(trace, "broken", Marked(Evidence.of_findings(violations))), "broken"), encoding="utf-8"
    )
    shown = watched.open(path)
    assert shown.locator(".violation").count() == len(violations)
    shown.keyboard.press("v")
    assert violations[0].rule in shown.inner_text(".broken")


def test_the_command_writes_the_page(tmp_path, capsys):
    host = SimulatedHost(2)
    with host.open() as broker:
        broker.declare_queue("q").publish(b"m").result()
    host.save_trace(tmp_path / "trace")
    host.close()
    out = tmp_path / "page.html"
    assert main(["trace", "export", str(tmp_path / "trace"), "--to", "lens", "-o", str(out)]) == 0
    assert out.read_text().startswith("<!doctype html>")
    assert main(["trace", "export", str(tmp_path / "trace"), "--to", "lens"]) == 2
    assert main(["trace", "export", str(tmp_path / "nowhere"), "--to", "lens", "-o", str(out)]) == 2
    assert (
        main(["trace", "export", str(tmp_path / "trace"), "--to", "lens", "-o", str(tmp_path / "no" / "x")])
        == 2
    )
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_a_trace_of_a_later_version_is_refused(tmp_path, capsys):
    from tests.support.simulated_trace import consistent_trace
    from tests.support.trace_writer import write_trace
    from warrenmq.trace.segment import decode_header, encode_header

    for name, content in write_trace(consistent_trace(3)).items():
        if name.endswith(".wtr"):
            header, end = decode_header(memoryview(content))
            (tmp_path / name).write_bytes(encode_header(header | {"v": 99}) + content[end:])
    assert main(["trace", "export", str(tmp_path), "--to", "lens", "-o", str(tmp_path / "page.html")]) == 2
    assert "later version" in capsys.readouterr().err
    assert main(["lens", str(tmp_path)]) == main(["lens", str(tmp_path), "--live"]) == 2
    assert capsys.readouterr().err.count("later version") == 2
    pytest.importorskip("plotly")
    report = tmp_path / "report.html"
    assert main(["replay", str(tmp_path), "--engine", "python", "--report", str(report)]) == 0
    assert report.exists()
    assert not (tmp_path / "report.lens.html").exists()


def test_a_report_leads_to_its_moments_in_the_lens_beside_it(tmp_path, capsys):
    pytest.importorskip("plotly")
    host = SimulatedHost(3)
    with host.open() as broker:
        broker.declare_queue("q").publish(b"m").result()
        broker.mark("before the end")
    host.sleep(1)
    broker = host.open()
    broker.queue("q").publish(b"m" * 9_000)
    host.crash(power_cut=False)
    host.open().close()
    host.save_trace(tmp_path / "trace")
    host.close()
    report = tmp_path / "run.html"
    assert main(["replay", str(tmp_path / "trace"), "--engine", "python", "--report", str(report)]) == 0
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', report.read_text())[1]
    moments, outages = json.loads(data)["moments"], json.loads(data)["outages"]
    assert moments[0]["text"] == "before the end."
    assert moments[1]["text"].startswith("The process went without a goodbye.")
    with open_trace(tmp_path / "trace") as trace:
        captions = [render(step.caption) for step in Fold(trace).steps()]
    for each in moments:
        page_, _, row = each["link"].partition("#row=")
        assert (tmp_path / page_).read_text().startswith("<!doctype html>")
        assert each["text"].split(".")[0] in captions[int(row) - 1]
    assert 0 <= moments[0]["share"] < moments[1]["share"] < 1
    assert [each["name"] for each in moments[:2]] == ["before the end", "The process went without a goodbye"]
    (outage,) = outages
    assert moments[0]["share"] <= outage[0] < outage[1] <= moments[1]["share"]
    capsys.readouterr()
