"""`warrenmq lens`: see a trace, recorded or live, row by row in a browser."""

from __future__ import annotations

import argparse
import gc
import os
import webbrowser
from contextlib import ExitStack
from typing import Any

from warrenmq.cli._parsers import add_page_server, add_verb
from warrenmq.errors import CallerError


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "lens",
        summary="see a trace, row by row, forwards and backwards, in a browser",
        does="Serve a page that shows the broker of a trace at work: supervision tree and mailboxes, message stores byte by byte, flying counters, "
        "queues, syncs, confirms. With --live a trace that a broker is writing is followed. Only this machine can ask for the page. "
        "`warrenmq trace export --to lens` saves it as one file.",
        example="warrenmq lens trace/ --at 1200",
        ends="0 ended by Ctrl-C, 2 there is no such trace or row, or the port is in use.",
    )  # fmt: skip
    parser.add_argument("trace", metavar="TRACE", nargs="?",
                        help="a directory of trace files, one file, or a data directory whose broker writes its trace into the folder trace in it "
                        "(default: that of --data)")  # fmt: skip
    parser.add_argument("--at", metavar="ROW",
                        help="begin at this row, or at 'ACTOR NUMBER' as a replay names the rows of a violation, 'RUN ACTOR NUMBER' where several runs have it; of a trace of more than 200000 rows "
                        "those around it are shown (default: 1)")  # fmt: skip
    parser.add_argument("--live", action="store_true", help="follow the trace while a broker writes it")
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="the broker's data directory: the inspector reads the bytes of records there; without --at the trace is followed as with --live",
    )
    parser.add_argument(
        "--vhost", metavar="NAME", help="the virtual host of the trace, where --data has several"
    )
    parser.add_argument(
        "--bodies", action="store_true", help="show the bodies of messages, too (with --data)"
    )
    add_page_server(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    if args.bodies and args.data is None:
        raise CallerError("--bodies needs --data DIR: a trace holds no bodies.")
    if args.live and args.at is not None:
        raise CallerError("--live begins with the latest row; leave --at out.")
    try:
        from warrenmq.lens.server import run_site, site
    except ModuleNotFoundError as why:
        raise CallerError(
            f"it needs {why.name}; install warrenmq[web], or save the page: warrenmq trace export --to lens."
        ) from why
    from warrenmq.lens.record_bytes import RecordReader

    given = args.trace or args.data
    if given is None:
        raise CallerError(
            "name a trace, or the data directory of a broker that writes one into its folder trace."
        )
    path, title = _trace_of(given), os.path.basename(os.path.abspath(given))
    reader = None if args.data is None else RecordReader(args.data, bodies=args.bodies, vhost=args.vhost)
    follows = args.live or (args.data is not None and args.at is None)
    with ExitStack() as stack:
        feed, at = (_followed(path, title, stack), 0) if follows else _recorded(path, title, args.at)
        row = f"#row={at}" if at else ""

        def said(url: str) -> None:
            print(f"ready {url}{row}", flush=True)
            if args.open:
                webbrowser.open(url + row)

        try:
            run_site(site(feed, reader=reader), port=args.port, said=said)
        except KeyboardInterrupt:
            pass  # how it ends
    return 0


def _trace_of(path: str) -> str:
    """The trace at a path, or that in the folder `trace` of a data directory."""
    from warrenmq.trace.reader import names_in

    inside = os.path.join(path, "trace")
    return inside if os.path.isdir(inside) and not names_in(path) else path


def _recorded(path: str, title: str, wanted: str | None) -> tuple[Any, int]:
    """The feed of a trace, and the number of the row that is wanted."""
    from warrenmq.lens.sources import recorded, row_of
    from warrenmq.trace.reader import open_trace

    with open_trace(path) as trace:
        gc.freeze()  # the pieces of a long trace are not searched for garbage while its rows are folded
        actor, _, number = (wanted or "0").rpartition(" ")
        if not number.replace(",", "").isdecimal():
            raise CallerError(f"--at is {wanted!r}; give the number of a row, or 'ACTOR NUMBER'.")
        at = int(number.replace(",", ""))
        if actor:
            at = row_of(trace, actor, at)
        return recorded(trace, title, at), at


def _followed(path: str, title: str, stack: ExitStack) -> Any:
    from warrenmq.lens.sources import Follower
    from warrenmq.trace.reader import require_live

    require_live([path])
    follower = Follower(path, title)
    follower.start()
    stack.callback(follower.close)
    return follower.feed
