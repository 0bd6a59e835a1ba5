"""A real browser for the tests of the page: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.limits import LIMIT


def chromium() -> str | None:
    """The browser's program."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for the tests of a file; its event loop must not run on while other files are tested."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the page is tested with playwright, which is not installed"
    )
    program = chromium()
    if program is None:
        pytest.skip("the page is tested in chromium, which is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(
            executable_path=program, args=["--no-sandbox"] if os.getuid() == 0 else []
        )
        yield opened
        opened.close()


class Watched:
    """A page of the browser, and what it did that it should not."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.may_ask = "file:"
        """Where its requests may go."""
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def asks(self, url: str) -> None:
        """A request is made."""
        if not url.startswith((self.may_ask, "data:", "about:")):
            self.complaints.append(url)

    def until(self, expression: str) -> None:
        """Wait until an expression is true on the page (its policy forbids Playwright's own way)."""
        self.until_in(self.page, expression)

    def until_in(self, frame: Any, expression: str) -> None:
        """Wait until an expression is true in a frame."""
        for _ in range(round(LIMIT * 50)):
            if frame.evaluate(expression):
                return
            self.page.wait_for_timeout(20)
        raise AssertionError(f"it did not come true: {expression}")

    def faults(self, where: Any, scheme: str) -> list[str]:
        """Violations that axe finds in the page, or in a frame of it, as it stands: contrast, labels, roles."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
        self.page.emulate_media(color_scheme=scheme)
        found = axe.run(where).response["violations"]
        return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]

    def open(self, path: Any, row: int = 1) -> Any:
        """Open a saved page at a row."""
        self.page.goto(f"file://{path}#row={row}")
        self.page.wait_for_selector("body[data-ready]")
        return self.page


@pytest.fixture
def watched(browser: Any) -> Iterator[Watched]:
    """A page that may say nothing and ask nobody."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, reduced_motion="reduce", offline=True
    )
    page = Watched(context)
    page.page.on("request", lambda request: page.asks(request.url))
    yield page
    context.close()
    assert page.complaints == []
