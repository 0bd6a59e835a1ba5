"""Lessons in a real browser: every page of the site, offline, and the drive with its buttons."""

import threading

import pytest

from warrenmq.lens.lesson import find_lesson, lessons, play
from warrenmq.lens.lesson_page import export
from warrenmq.lens.lesson_site import Driven, lesson_site
from warrenmq.lens.server import Site

NAMES = [lesson.name for lesson in lessons()]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    export(lessons(), str(folder))
    return folder


def test_every_lesson_is_walked_to_its_end_offline(site, watched):
    page = watched.page
    page.goto(f"file://{site}/index.html")
    assert page.locator(".lessons a").count() == len(NAMES)
    for lesson in lessons():
        page.goto(f"file://{site}/{lesson.name}.html", wait_until="domcontentloaded")
        played = play(lesson)
        assert page.locator("article").count() == len(lesson.steps)
        for number, each in enumerate(played.steps, 1):
            article = page.locator(f"#step-{number}")
            if each.right is not None:
                article.locator("input").nth(each.right).check()
                assert article.locator(".verdict:visible").inner_text() == "Right."
            article.locator(f"a[href$='#row={each.row}']").first.wait_for()
        page.set_viewport_size({"width": 320, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, lesson.name
        page.set_viewport_size({"width": 1280, "height": 800})


def test_the_lens_of_a_lesson_stands_where_its_steps_say_and_has_its_marks_as_chapters(site, watched):
    for name in (NAMES[0], NAMES[3], NAMES[12]):
        played = play(find_lesson(name))
        last = played.steps[-1]
        page = watched.open(f"{site}/{name}.lens.html", row=last.row)
        assert page.evaluate("lens.state.at") == last.row
        chapters = page.evaluate("lens.tape.head.chapters")
        assert {(each.row, each.step.mark) for each in played.steps} <= {
            (row, title) for row, title in chapters
        }


def test_the_drive_is_steered_with_buttons(watched):
    lesson = find_lesson("one-message")
    with Driven(lesson.folder) as driven:
        served = Site(lesson_site(play(lesson), driven, "secret"))
        thread = threading.Thread(target=served.run)
        thread.start()
        page = watched.page
        try:
            page.context.set_offline(False)
            watched.may_ask = served.url
            page.goto(f"{served.url}drive/#token=secret")
            page.wait_for_selector("body[data-ready]")
            watched.until("document.querySelector('.linked input')?.value.length > 20")
            rows = page.evaluate("lens.tape.last")
            for label in ("publish 9 kB", "settle"):
                before = page.locator(".linked input").input_value()
                page.get_by_role("button", name=label, exact=True).click()
                watched.until(f"document.querySelector('.linked input').value !== {before!r}")
            watched.until(f"lens.tape.last > {rows} + 10")
            assert "APPEND" in page.evaluate(
                "Array.from({length: lens.tape.last - lens.tape.first}, (_, i) => lens.tape.head.events[lens.tape.row(lens.tape.first + 1 + i).event])"
            )
            page.get_by_role("button", name="power cut", exact=True).click()
            page.get_by_role("button", name="open again", exact=True).click()
            watched.until("!document.querySelector('.drivebox .first')")
            assert "token" not in page.url
        finally:
            page.goto("about:blank")
            served.close()
            thread.join()
