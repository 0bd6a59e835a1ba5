"""Lessons in a real browser: every page of the site, offline, and the drive with its buttons."""

import threading
from functools import cache

import pytest

from warrenmq.lens import lesson_page
from warrenmq.lens.drive_site import Driven
from warrenmq.lens.lesson import find_lesson, lessons, play, script_name
from warrenmq.lens.lesson_page import export
from warrenmq.lens.lesson_site import lesson_site
from warrenmq.lens.server import Site

played = cache(play)
NAMES = [lesson.name for lesson in lessons()]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lesson_page, "play", played)
        export(lessons(), str(folder))
    return folder


def test_every_lesson_is_walked_to_its_end_offline(site, watched):
    page = watched.page
    page.goto(f"file://{site}/index.html")
    assert page.locator(".lessons a").count() == len(NAMES)
    for lesson in lessons():
        page.goto(f"file://{site}/{lesson.name}.html", wait_until="domcontentloaded")
        walked = played(lesson)
        assert page.locator("article").count() == len(lesson.steps)
        for number, each in enumerate(walked.steps, 1):
            article = page.locator(f"#step-{number}")
            if each.right is not None:
                article.locator("input").nth(each.right).check()
                assert article.locator(".verdict:visible").inner_text() == "Right."
            link = article.locator(f"a[href*='#row={each.row}&']").first
        link.click()  # the lens beside the text goes to the row of the last step, and points at what it looks at
        frame = next(each for each in page.frames if each.name == "lens")
        watched.until_in(frame, f"globalThis.lens?.state.at === {walked.steps[-1].row}")
        look, pointed, chapters = frame.evaluate(
            "[lens.state.look, document.querySelectorAll('.looked').length > 0, lens.tape.head.chapters]"
        )
        assert look == list(walked.steps[-1].step.look)
        assert pointed == bool(look)
        assert [
            [each.row, each.step.mark] for each in walked.steps if [each.row, each.step.mark] not in chapters
        ] == []
        if lesson is lessons()[0]:
            assert watched.faults(page, "dark") == []
        page.set_viewport_size({"width": 320, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, lesson.name
        page.set_viewport_size({"width": 1280, "height": 800})


@pytest.fixture
def drive(watched):
    """The drive of a lesson, served: its page and its desk's state."""
    lesson = find_lesson("one-message")
    with Driven(script_name(lesson), lesson.title) as driven:
        served = Site(lesson_site(played(lesson), driven, "secret"))
        thread = threading.Thread(target=served.run)
        thread.start()
        try:
            watched.page.context.set_offline(False)
            watched.may_ask = served.url
            watched.page.goto(f"{served.url}drive/#token=secret")
            watched.until("globalThis.drive && document.querySelector('iframe')?.contentWindow?.lens")
            yield watched
        finally:
            watched.page.goto("about:blank")
            served.close()
            thread.join()


RUN = "document.querySelector('#modern').contentWindow.lens"


def press(watched, label, frame=None):
    """Press a button of the desk, or the first such of a frame, and wait for the rows that it brings."""
    answers = watched.page.evaluate("drive.took.length")
    where = watched.page.frame_locator(frame) if frame else watched.page
    where.get_by_role("button", name=label, exact=True).first.click()
    watched.until(f"drive.took.length > {answers}")


def test_the_drive_is_steered_without_a_reload_and_its_address_makes_it_again(drive):
    page = drive.page
    page.evaluate("globalThis.same = true")
    rows = page.evaluate(f"{RUN}.tape.last")
    page.get_by_label("size", exact=True).select_option("9000")
    page.get_by_label("leave it in the mailboxes").check()
    press(drive, "publish")
    press(drive, "application")
    press(drive, "serve orders", "#modern")
    assert page.evaluate(f"{RUN}.tape.last") > rows
    press(drive, "until all is quiet")
    events = f"Array.from({{length: {RUN}.tape.last}}, (_, i) => {RUN}.tape.head.events[{RUN}.tape.row(i + 1).event])"
    assert "APPEND" in page.evaluate(events)[rows:]
    press(drive, "power cut")
    press(drive, "open the broker again")
    assert page.evaluate("globalThis.same")
    assert "token" not in page.url
    end = page.evaluate(f"{RUN}.tape.last")
    drive.until(f"location.hash.includes(drive.run('modern').link + '&row={end}')")
    link = page.url
    page.evaluate(f"{RUN}.go({rows + 1})")
    page.get_by_role("button", name=f"fork at row {rows + 1}").click()
    drive.until(f"{RUN}.tape.last < {end}")
    page.goto("about:blank")
    page.goto(link)
    drive.until(f"document.querySelector('#modern')?.contentWindow?.lens?.tape.last === {end}")


def test_both_profiles_step_together(drive):
    page = drive.page
    press(drive, "both, side by side")
    drive.until("document.querySelector('#classic')?.contentWindow?.lens")
    press(drive, "publish")
    press(drive, "until all is quiet")
    confirmed = "document.querySelector('#{}').contentWindow.lens.T.pub.values().next().value?.[1]"
    drive.until(f"{confirmed.format('classic')} === 2")
    drive.until(f"{confirmed.format('modern')} === 2")
    at = [
        page.evaluate(f"document.querySelector('#{each}').contentWindow.lens.state.at")
        for each in ("classic", "modern")
    ]
    page.locator("#desk h1").click()
    page.keyboard.press("ArrowLeft")
    for each, row in zip(("classic", "modern"), at, strict=True):
        drive.until(f"document.querySelector('#{each}').contentWindow.lens.state.at === {row - 1}")


def test_the_desk_and_the_lens_beside_it_are_accessible(drive):
    page = drive.page
    assert drive.faults(page, "light") == []
    frame = next(each for each in page.frames if "/view/" in each.url)
    frame.evaluate(
        "lens.toggle('keys'); lens.toggle('why'); lens.select({kind: 'actor', id: lens.tape.row(1).actor})"
    )
    assert drive.faults(frame, "dark") == []
    frame.evaluate("document.querySelector('select').removeAttribute('aria-label')")
    assert "select-name" in " ".join(drive.faults(frame, "light"))
