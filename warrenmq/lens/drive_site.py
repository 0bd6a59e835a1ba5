"""The server of the drive: one run, or one of each profile on the same script, steered by commands and shown by the lens.

    GET  /                   the page: the desk with its buttons, and a frame for each run
    GET  /now                the runs: rows, who can run, what was chosen, and the link that makes each again
    POST /do                 a command (drive_commands.py) for all runs, with {"after": {profile: the last row that the page has}}
    POST /again              {"links": [...]}: these runs are made again, in the place of those that are there
    POST /fork               {"rows": {profile: row}}: runs that went the same way to these rows, in the place of those that are there
    POST /beside             {"profiles": [...]}: the script from its beginning under these profiles
    GET  /view/PROFILE/      the lens on one run
    GET  /view/PROFILE/tape  the rows of one run, as the lens reads them; /view/PROFILE/bytes and /index?row=... read records in
                             the files of its simulated disk, as they were at the end of the turn that wrote this row

Each answer to a command brings the rows that are new, so nothing is read twice.  The actors live in one thread of their own.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route, Router

from warrenmq.errors import CallerError
from warrenmq.lens.drive import PROFILES, Drive
from warrenmq.lens.feed import Feed
from warrenmq.lens.lesson import is_known
from warrenmq.lens.record_bytes import RecordReader
from warrenmq.lens.server import answer_bytes, answer_index
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.testing.machine import DATA
from warrenmq.trace.catalog import Run
from warrenmq.trace.reader import open_memory

T = TypeVar("T")
_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><title>{title}</title><link rel="icon" href="data:,">'
    '<link rel="stylesheet" href="{static}style.css">'
)
_DESK = (
    _HEAD.format(title="the drive", static="../lens/static/")
    + '<link rel="stylesheet" href="../lens/static/drive.css"></head>'
    '<body class="driven"><aside id="desk" aria-label="the desk"></aside><main id="runs" aria-label="the runs"></main><script type="module" src="../lens/static/drive.js"></script></body></html>'
)
_VIEW = (
    _HEAD.format(title="a run", static="../../../lens/static/")
    + '</head><body class="framed"><div id="app"><p class="wait">The actors start.</p></div>'
    '<script type="module" src="../../../lens/static/view.js"></script></body></html>'
)
MOST_CAME = 200
"""The most choices of a run that the page gets, the latest ones."""
LARGEST_COMMAND = 1 << 16
"""Bytes of a command."""


class _Watched:
    """A Drive with the feed of its rows, which is read on after each command."""

    def __init__(self, drive: Drive, title: str) -> None:
        self.drive = drive
        self._runs: list[Run] = []
        self.feed = Feed(self._runs, title)
        self._written = 0
        """Rows that the machine had written at the last look."""
        self._last = (0, 0)
        self._at_last = 0
        """Rows of the time `_last` that the feed has."""
        self.read()

    def read(self) -> None:
        """Add the rows that were written since the last call."""
        if self.drive.machine.rows == self._written:
            return
        self._written = self.drive.machine.rows
        with open_memory(self.drive.files()) as trace:
            self._runs[:] = trace.catalog.runs
            coming = rows_in_order(trace, since=self._last)
            for _ in range(self._at_last):
                next(coming)
            rows = list(coming)
            self.feed.add(rows)
        for run, row in rows:
            self._at_last = self._at_last + 1 if (run, row.t) == self._last else 1
            self._last = run, row.t

    def told(self, after: int | None = None) -> dict[str, Any]:
        """Tell the page of the run; the rows behind `after`, too, if it has come so far."""
        news = [] if after is None else [more for more, _ in self.feed.since(after)]
        return {
            "profile": self.drive.profile,
            **self.drive.now(),
            "came": self.drive.came[-MOST_CAME:],
            "script_rows": self.drive.script_rows,
            "files": self.drive.files_to_rot(),
            "link": self.drive.link(),
            "news": news,
        }


class Driven:
    """One or two drives in a thread of their own, started on first use."""

    def __init__(self, script: str, title: str) -> None:
        self._script, self._title = script, title
        self._thread = ThreadPoolExecutor(1, "drive")
        self._runs: dict[str, _Watched] = {}
        self._disk: tuple[tuple[str, int], int, TemporaryDirectory[str]] | None = None
        """((profile, row), rows that had been written then, copy of the disk) of the last question about bytes."""

    async def ask(self, question: Callable[[], T]) -> T:
        """Call `question` in the drive's thread, once there is a run; returns its result."""

        def asked() -> T:
            if not self._runs:
                self._replace([partial(Drive, self._script)])
            return question()

        return await asyncio.get_running_loop().run_in_executor(self._thread, asked)

    def _replace(self, makers: Iterable[Callable[[], Drive]]) -> None:
        """Put other runs in the place of those that are there; if one cannot be made, those that are there stay."""
        with ExitStack() as made:
            drives = [made.enter_context(make()) for make in makers]
            made.pop_all()
        self._close_runs()
        self._runs = {
            drive.profile: _Watched(drive, f"{drive.profile} profile: {self._title}") for drive in drives
        }

    def told(self, after: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Tell the page of all runs."""
        rows = after or {}
        return {
            "runs": [each.told(_row(rows.get(profile))) for profile, each in self._runs.items()],
            "script": self._title,
        }

    def do(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a command in each run; a run that cannot says so as its `error`."""
        asked = {name: value for name, value in command.items() if name != "after"}
        answers = {}
        for profile, each in self._runs.items():
            try:
                answers[profile] = each.drive.do(asked)
            except CallerError as error:
                answers[profile] = {"error": str(error)}
            each.read()
        after = command.get("after")
        told = self.told(after if isinstance(after, dict) else None)
        return told | {"runs": [answers[run["profile"]] | run for run in told["runs"]]}

    def again(self, links: Any) -> dict[str, Any]:
        """Make the runs of one or two links again."""
        if not isinstance(links, list) or not 0 < len(links) <= len(PROFILES):
            raise CallerError("links is a list of one link, or of one of each profile.")
        scripts = [Drive.script_of_link(str(link)) for link in links]
        for script in scripts:
            if script != self._script and not is_known(script):
                raise CallerError(
                    f"this link is of the lesson {script}, which is not served here; open it with: warrenmq learn {script}."
                )
        self._replace(partial(Drive.of_link, str(link)) for link in links)
        return self.told()

    def fork(self, rows: Any) -> dict[str, Any]:
        """Replace the runs by others that went the same way to these rows."""
        if not isinstance(rows, dict) or any(_row(row) is None for row in rows.values()):
            raise CallerError("rows has the number of a row for each profile.")
        self._replace(
            partial(each.drive.fork, rows.get(profile, each.drive.machine.rows))
            for profile, each in self._runs.items()
        )
        return self.told()

    def beside(self, profiles: Any) -> dict[str, Any]:
        """Begin the script anew under one profile or both."""
        if not isinstance(profiles, list) or not profiles or not set(profiles) <= set(PROFILES):
            raise CallerError(f"profiles is a list of {' and '.join(PROFILES)}.")
        now = next(iter(self._runs.values())).drive
        self._replace(
            partial(Drive, now.script, seed=now.seed, profile=each) for each in PROFILES if each in profiles
        )
        return self.told()

    def tape(self, profile: str) -> str | None:
        """The rows of a run for the page; None if there is no such run."""
        run = self._runs.get(profile)
        return None if run is None else run.feed.tape()

    def disk_at(self, profile: str, row: int) -> tuple[RecordReader, int]:
        """A reader of the disk as it was at the end of the turn that wrote a row, and the number of rows at
        that time; CallerError if there is no such row.
        """
        if profile not in self._runs:
            raise CallerError("there is no such run.")
        drive = self._runs[profile].drive
        if self._disk is None or self._disk[0] != (profile, row):
            self._forget_disk()
            other = drive.fork(row) if row < drive.machine.rows else nullcontext(drive)
            with other as then:
                machine, folder = then.machine, TemporaryDirectory(prefix="warrenmq-drive-")
                for path, content in machine.disk.contents().items():
                    copy = f"{folder.name}{path}"
                    os.makedirs(os.path.dirname(copy), exist_ok=True)
                    with open(copy, "wb") as file:
                        file.write(content)
                self._disk = (profile, row), machine.rows, folder
        _, rows, folder = self._disk
        return RecordReader(f"{folder.name}{DATA}", bodies=True), rows

    def _forget_disk(self) -> None:
        if self._disk is not None:
            self._disk[2].cleanup()
            self._disk = None

    def _close_runs(self) -> None:
        self._forget_disk()
        for each in self._runs.values():
            each.drive.close()

    def close(self) -> None:
        """End the runs and the thread."""
        self._thread.submit(self._close_runs).result()
        self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _row(value: Any) -> int | None:
    return value if type(value) is int else None


def drive_routes(driven: Driven) -> Router:
    """Build the routes of the drive; whoever mounts them guards them (server.Guard)."""

    async def desk(_: Request) -> Response:
        return HTMLResponse(_DESK)

    async def view(_: Request) -> Response:
        return HTMLResponse(_VIEW)

    async def tape(request: Request) -> Response:
        text = await driven.ask(lambda: driven.tape(request.path_params["profile"]))
        if text is None:
            return Response("there is no such run.", status_code=404)
        body = await asyncio.to_thread(gzip.compress, text.encode(), 6)
        return Response(body, media_type="text/plain", headers={"content-encoding": "gzip"})

    def reading(
        answer: Callable[[RecordReader, Request], Awaitable[Response]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def read(request: Request) -> Response:
            row = request.query_params.get("row", "")
            profile = request.path_params["profile"]
            try:
                reader, rows = await driven.ask(
                    lambda: driven.disk_at(profile, int(row) if row.isdigit() else 0)
                )
            except CallerError as error:
                return JSONResponse({"error": str(error)})
            answered = await answer(reader, request)
            answered.headers["x-rows"] = str(rows)
            return answered

        return read

    async def now(_: Request) -> Response:
        return JSONResponse(await driven.ask(driven.told))

    def taking(act: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            asked = await _asked(request)
            try:
                return JSONResponse(await driven.ask(lambda: act(asked)))
            except CallerError as error:
                return JSONResponse({"error": str(error)}, status_code=400)

        return answer

    return Router([
        Route("/", desk),
        Route("/now", now),
        Route("/do", taking(driven.do), methods=["POST"]),
        Route("/again", taking(lambda asked: driven.again(asked.get("links"))), methods=["POST"]),
        Route("/fork", taking(lambda asked: driven.fork(asked.get("rows"))), methods=["POST"]),
        Route("/beside", taking(lambda asked: driven.beside(asked.get("profiles"))), methods=["POST"]),
        Route("/view/{profile}/", view),
        Route("/view/{profile}/tape", tape),
        Route("/view/{profile}/bytes", reading(answer_bytes)),
        Route("/view/{profile}/index", reading(answer_index)),
    ])  # fmt: skip


async def _asked(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_COMMAND:
            return {}
    try:
        asked = json.loads(body)
    except ValueError:
        return {}
    return asked if isinstance(asked, dict) else {}
