"""The lens in figures: the fold, the size of a saved page, and a real Chromium that opens it and jumps about in it.

    python -m benchmarks.lens [--rows 100000] [--jumps 200] [--long 10000000 --dir SCRATCH] [--out lens.json]
    python -m benchmarks.lens --memory SCRATCH/long

The trace is a simulated broker's: fan-out and direct publishes of small and large bodies, acks, rejects, idle
times in which the collector works, and a power cut.  Fold, its `at` for a random row, and export are
processor time; what the browser does is wall time, from the start of the page's own script to its first
picture, for each jump until the new state is drawn and laid out, for each step of the drive until its rows
are drawn, and how far a live page is behind a broker of this machine.  `--long` writes a trace of so many
rows and opens it with `warrenmq lens --at` at a row that breaks a rule, behind three quarters of it.  The
browser's figures need playwright and Chromium.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import warrenmq
from benchmarks.long_trace import write_long
from warrenmq.lens.drive_site import Driven
from warrenmq.lens.fold import Fold, Folding
from warrenmq.lens.lesson import find_lesson, play, script_name
from warrenmq.lens.lesson_site import lesson_site
from warrenmq.lens.saved import save
from warrenmq.lens.server import Site, site
from warrenmq.lens.sources import Follower
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedMachine
from warrenmq.trace.reader import open_trace

WANTED = "wanted: 300,000 rows/s folded, 1.2 MB for 100,000 rows, open in 0.8 s, jumps (the page's, and Fold.at) within 50 ms at p95, a window of 10^8 rows in 3 s, a step of the drive in 30 ms, live within 2 s"
LIVE_ROWS = 20_000
"""A second."""
QUEUES = ("orders", "audit", "billing")
_JUMPS = """
(jumps) => {
  const took = [], chance = (n) => 1 + Math.floor(Math.random() * n);
  for (let i = 0; i < jumps; i++) {
    const begin = performance.now();
    lens.show(chance(lens.tape.last), {}, false, false);
    document.body.getBoundingClientRect();
    took.push(performance.now() - begin);
  }
  return took;
}
"""


_STEPS = """
async (turns) => {
  await drive.command({ do: "publish", queue: "orders", size: 9000, count: 100, hold: true });
  for (let i = 0; i < turns; i++) {  // a reader has seen the last one, and presses again
    await new Promise((rest) => setTimeout(rest, 600));
    await drive.command({ do: "turn" });
  }
  return drive.took.slice(-turns);
}
"""


def life(machine: SimulatedMachine, rows: int) -> None:
    """One boot that writes at least so many rows."""
    choose = random.Random(machine.seed)
    broker = machine.open()
    broker.declare_exchange("mail", "fanout")
    queues = [broker.declare_queue(name) for name in QUEUES]
    for queue in queues:
        broker.bind(queue, "mail")
    published = 0
    while published < rows // 20:
        confirms = []
        for _ in range(choose.randrange(1, 30)):
            published += 1
            body = bytes(choose.choice((200, 700, 5_000, 9_000, 12_000)))
            if choose.random() < 0.4:
                confirms.append(broker.publish("mail", "", body))
            else:
                confirms.append(choose.choice(queues).publish(body, persistent=choose.random() < 0.85))
        for confirm in confirms:
            confirm.result()
        for queue in queues:
            held = [delivery for _ in range(choose.randrange(30)) if (delivery := queue.get()) is not None]
            for delivery in held:
                (delivery.ack if choose.random() < 0.95 else delivery.nack)()
        machine.sleep(choose.choice((0.01, 0.3, 8.0)))


def traced(rows: int, folder: str) -> None:
    """Write a trace of about so many rows."""
    settings = Settings(msg_store_file_size_limit=262_144, classic_queue_index_v2_segment_entry_count=256)
    with SimulatedMachine(1, settings, traced=True) as machine:
        machine.sim.run(lambda: life(machine, rows))
        machine.crash(power_cut=True)
        machine.sim.run(lambda: machine.open().close())
        machine.save_trace(folder)


def folded(folder: str) -> dict[str, Any]:
    """Rows, and rows a second of processor time."""
    with open_trace(folder) as trace:
        rows = list(rows_in_order(trace))
        gc.freeze()  # the rows are the benchmark's: the fold of a trace does not keep them
        best = float("inf")
        for _ in range(3):
            step, begin = Folding(trace.catalog.runs).step, time.process_time()
            for run, row in rows:
                step(run, row)
            best = min(best, time.process_time() - begin)
    gc.unfreeze()
    return {"rows": len(rows), "folded_per_second": round(len(rows) / best)}


def remembered(path: str) -> dict[str, Any]:
    """Memory that folding a whole trace takes: what the process has at most, above what the opened trace and
    its index had.
    """

    def resident() -> int:
        """Without mapped files: what is read of the trace is the page cache's."""
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    with open_trace(path) as trace:
        fold = Fold(trace)
        gc.collect()
        opened = most = resident()
        for number, _ in enumerate(fold.steps()):
            if number % 10_000 == 0:
                most = max(most, resident())
        return {"fold_rows": fold.rows, "fold_mb": round((most - opened) / 1e6, 1)}


def sought(folder: str, jumps: int) -> dict[str, Any]:
    """Processor time of Fold.at for random rows, once the whole trace has been folded."""
    choose, took = random.Random(1), []
    with open_trace(folder) as trace:
        fold = Fold(trace)
        fold.at(fold.rows)
        for _ in range(jumps):
            row, begin = choose.randint(1, fold.rows), time.process_time()
            fold.at(row)
            took.append((time.process_time() - begin) * 1_000)
    took.sort()
    return {
        "at_p50_ms": round(statistics.median(took), 1),
        "at_p95_ms": round(took[int(len(took) * 0.95)], 1),
    }


def exported(folder: str, page: str) -> dict[str, Any]:
    """Size, and processor time."""
    begin = time.process_time()
    with open_trace(folder) as trace:
        save(trace, page, "benchmark")
        rows = trace.catalog.rows
    size = os.path.getsize(page)
    return {
        "export_seconds": round(time.process_time() - begin, 2),
        "bytes": size,
        "bytes_per_100000_rows": round(size / rows * 100_000),
    }


def _options() -> list[str]:
    return ["--no-sandbox"] if os.getuid() == 0 else []


def browsed(program: str, page: str, jumps: int) -> dict[str, Any]:
    """A real Chromium: opening a saved page and jumping in it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_options())
        opened = []
        for _ in range(3):
            shown = browser.new_page(viewport={"width": 1280, "height": 800})
            shown.goto(f"file://{page}")
            shown.wait_for_selector("body[data-ready]")
            opened.append(shown.evaluate("lens.opened"))
            if len(opened) < 3:
                shown.close()
        shown.wait_for_selector("body[data-warm]", timeout=120_000)
        took = sorted(shown.evaluate(_JUMPS, jumps))
        browser.close()
    return {
        "open_ms": round(statistics.median(opened)),
        "jump_p50_ms": round(statistics.median(took), 1),
        "jump_p95_ms": round(took[int(len(took) * 0.95)], 1),
    }


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of an application that is served."""
    server = Site(app)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server.url
    finally:
        server.close()
        thread.join()


def stepped(program: str, turns: int) -> dict[str, Any]:
    """Wall time of a step of the drive: from the command to the new picture, in a real Chromium."""
    lesson = find_lesson("the-collector")
    took: dict[str, list[float]] = {}
    with Driven(script_name(lesson), lesson.title) as driven, sync_playwright() as playwright:
        app = lesson_site(play(lesson), driven, "secret")
        browser = playwright.chromium.launch(executable_path=program, args=_options())
        with served(app) as url:
            page = browser.new_page(viewport={"width": 1280, "height": 800}, bypass_csp=True)
            page.goto(f"{url}drive/#token=secret")
            page.wait_for_function(
                "globalThis.drive && document.querySelector('iframe')?.contentWindow?.lens"
            )
            for profiles in ("one", "both"):
                if profiles == "both":
                    page.get_by_role("button", name="both, side by side").click()
                    page.wait_for_selector("#classic")
                page.wait_for_timeout(1_000)
                times = page.evaluate(_STEPS, turns)
                took[profiles] = sorted(times)
            browser.close()
    return {
        f"step_{name}_ms_{profiles}": round(times[int(len(times) * share)], 1)
        for profiles, times in took.items()
        for name, share in (("p50", 0.5), ("p95", 0.95))
    }


def publishing(folder: str, rows_per_second: int, seconds: float, told: Any) -> None:
    """A process of its own: a broker that writes so many rows a second; `told` gets when how many were written."""
    written = []
    with warrenmq.open(os.path.join(folder, "data"), trace=os.path.join(folder, "live")) as broker:
        recorder = broker.runtime.recorder
        queue, begin = broker.declare_queue("orders"), time.monotonic()
        while (now := time.monotonic() - begin) < seconds:
            while recorder.rows < rows_per_second * now:
                for _ in range(20):
                    queue.publish(b"x" * 200, persistent=False)
                for _ in range(20):
                    if (delivery := queue.get()) is not None:
                        delivery.ack()
            written.append((time.monotonic(), recorder.rows))
            time.sleep(0.01)
        told.send(written)
        time.sleep(3)


def followed(program: str, rows_per_second: int, seconds: float, folder: str) -> dict[str, Any]:
    """Measure the delay of a page behind a broker in another process, at a rate of rows a second."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    writer = context.Process(target=publishing, args=(folder, rows_per_second, seconds, theirs))
    writer.start()
    trace = os.path.join(folder, "live")
    while not os.path.isdir(trace):
        time.sleep(0.1)
    time.sleep(1)
    follower = Follower(trace, "live")
    follower.start()
    seen = []
    with sync_playwright() as playwright, served(site(follower.feed)) as url:
        browser = playwright.chromium.launch(executable_path=program, args=_options())
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(url)
        page.wait_for_selector("body[data-ready]")
        while not (seen and ours.poll()):
            page.wait_for_timeout(200)
            seen.append((page.evaluate("lens.state.at"), time.monotonic()))
        browser.close()
    written = ours.recv()
    writer.join()
    follower.close()
    behind = sorted(now - max((t for t, rows in written if rows <= last), default=now) for last, now in seen)
    return {
        "live_rows_per_second": round(written[-1][1] / (written[-1][0] - written[0][0])),
        "live_behind_p50_s": round(statistics.median(behind), 2),
        "live_behind_most_s": round(behind[-1], 2),
    }


def windowed(rows: int, folder: str, program: str | None) -> dict[str, Any]:
    """Open a long trace at a row that breaks a rule: from the start of the command to its address, and to the
    first picture.
    """
    path = Path(folder, "long")
    if not path.is_dir():
        Path(folder, "long-row").write_text(" ".join(map(str, write_long(path, rows))))
    begin = time.process_time()
    with open_trace(path) as trace:
        found = {"long_rows": trace.catalog.rows, "long_index_seconds": round(time.process_time() - begin, 2)}
    if program is None:
        return found
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_options())
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        command = [sys.executable, "-c", "import warrenmq.cli; warrenmq.cli.main()", "lens", str(path)]
        began = time.monotonic()
        with subprocess.Popen(
            [*command, "--at", Path(folder, "long-row").read_text()], stdout=subprocess.PIPE, text=True
        ) as served:
            assert served.stdout is not None
            url = served.stdout.readline().split()[1]
            found["long_address_seconds"] = round(time.monotonic() - began, 2)
            page.goto(url)
            page.wait_for_selector("body[data-ready]")
            found["long_open_seconds"] = round(time.monotonic() - began, 2)
            served.send_signal(signal.SIGINT)
        browser.close()
    return found


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--jumps", type=int, default=200)
    parser.add_argument("--long", type=int, default=0)
    parser.add_argument("--memory", metavar="TRACE", help="only the memory of the fold of this trace")
    parser.add_argument("--dir", default=None, help="where the long trace is kept")
    parser.add_argument("--out", default=None)
    parser.add_argument("--smoke", action="store_true", help="a small trace, to see that it runs")
    args = parser.parse_args()
    if args.memory:
        for name, value in remembered(args.memory).items():
            print(f"{name:24} {value:>14,}")
        return 0
    rows, jumps = (2_000, 5) if args.smoke else (args.rows, args.jumps)
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        folder, page = os.path.join(scratch, "trace"), os.path.join(scratch, "page.html")
        traced(rows, folder)
        found = folded(folder) | sought(folder, jumps) | exported(folder, page)
        if program := shutil.which("chromium") or shutil.which("google-chrome"):
            found |= browsed(program, page, jumps) | stepped(program, min(jumps, 50))
            found |= followed(program, LIVE_ROWS, 5 if args.smoke else 15, scratch)
        if args.long:
            found |= windowed(args.long, args.dir or scratch, program)
    for name, value in found.items():
        print(f"{name:24} {value:>14,}")
    print(WANTED)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
