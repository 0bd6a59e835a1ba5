"""The lens: a page that shows a broker at work, row by row of its trace, forwards and backwards (docs/lens.md).

app.mount("/lens", warrenmq.lens.app(broker))     in FastAPI or Starlette: the broker, live
warrenmq.lens.show("trace/")                      in Jupyter: a recorded trace

In the order of reading:

    tables            the picture: what a page draws, and nothing else
    fold              rows of a trace become changes of it
    scene             what the fold keeps on the way
    rows/handler      which function is for which event
    rows/mail         mailboxes, publishes, flying counters
    rows/queues       messages of a queue
    rows/index        its files
    rows/stores       message stores
    rows/collector    their garbage collectors
    rows/routing      exchanges and bindings
    rows/lives        runs, processes, alarms, credit
    rows/remarks      what has a caption and hardly a picture
    captions          a caption as words
    told              the picture in words, for the terminal
    stills            the picture in a lesson's text
    marked            the strip below it
    chapters          its numbers
    pack              the changes as few bytes; static/tape.js reads them
    saved             one file that opens offline, of these and static/
    feed              the rows of a server's page
    sources           where they come from: a trace, a part of one, a live one
    record_bytes      the files of a directory, for the inspector
    server            who may ask for a page, and the local server
    lesson_text       lesson.md, read
    predict           the condition under which an answer is right
    scripts           a scenario and its settings
    patience          the time that a scenario has
    lesson            the scenario played, and the text beside it
    lesson_page       a lesson as pages
    drive_commands    what an application and a machine can be told to do
    drive             a simulated broker, turn by turn
    drive_site        the drive's server
    lesson_site       a lesson's server: page, lens and drive
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Protocol

from warrenmq.errors import CallerError

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["Shown", "app", "show"]


class Traced(Protocol):
    """Protocol of an object that writes a trace: a Broker, or anything with a `trace_path`."""

    @property
    def trace_path(self) -> str | None:
        """The folder of the trace; None without one."""


def app(broker: Traced, *, hosts: Iterable[str] | None = None) -> Starlette:
    """Build an ASGI application with the read-only page of a running broker; serve it at the root or mount it at a path.

    It answers requests for this machine only (127.0.0.1, localhost, ::1), or for the names in `hosts`; who
    may see it is for the application around it to say.  The rows are read from the broker's trace by a thread
    that ends with the process.  CallerError for a broker that writes no trace to a folder.  Needs
    warrenmq[web].
    """
    from warrenmq.lens.server import HERE, site
    from warrenmq.lens.sources import Follower

    path = broker.trace_path
    if path is None:
        raise CallerError("the broker writes no trace: open it with warrenmq.open(..., trace=FOLDER).")
    follower = Follower(path, os.path.basename(os.path.abspath(path)))
    follower.start()
    return site(follower.feed, hosts=HERE if hosts is None else frozenset(hosts))


class Shown:
    """The page of a trace for Jupyter, in a sandboxed iframe."""

    def __init__(self, page: str, height: int) -> None:
        self.page = page
        """The whole page, as `warrenmq trace export --to lens` writes it."""
        self.height = height

    def _repr_html_(self) -> str:
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{escape(self.page)}" '
            f'style="width:100%;height:{self.height}px;border:0"></iframe>'
        )


def show(trace: str | os.PathLike[str], *, height: int = 720) -> Shown:
    """Show a recorded trace in a notebook, `height` pixels high; NotATrace if the path has none."""
    from warrenmq.lens.saved import page_of
    from warrenmq.trace.reader import open_trace

    with open_trace(trace) as opened:
        return Shown(page_of(opened, os.path.basename(os.path.abspath(trace))), height)
