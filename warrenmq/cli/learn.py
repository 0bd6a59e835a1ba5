"""`warrenmq learn`: lessons on how RabbitMQ keeps its messages."""

from __future__ import annotations

import argparse
import logging
import pathlib
import secrets
import sys
import webbrowser
from typing import Any

import structlog

from warrenmq.cli._parsers import add_page_server, add_verb
from warrenmq.errors import CallerError


def add_parser(subparsers: Any) -> Any:
    parser = add_verb(
        subparsers, "learn",
        summary="lessons on how RabbitMQ's queues keep their messages",
        does="List the lessons, serve one of them on this machine, or write all of them (or one) as a static site. A lesson is a text with pictures and "
        "questions; all it shows comes from a simulated run of the real actors. A folder with lesson.md and scenario.py is a lesson of your own: "
        "its scenario is run.",
        example="warrenmq learn\nwarrenmq learn flying-counter\nwarrenmq learn --export site/",
        ends="0 listed, written, or ended by Ctrl-C, 2 there is no such lesson, or something is wrong with it, or the port is in use.",
    )  # fmt: skip
    parser.add_argument(
        "lesson", nargs="?", metavar="LESSON", help="a number, a name, or a folder; left out, all lessons"
    )
    parser.add_argument("--export", metavar="DIR", help="write a static site there, which opens offline")
    add_page_server(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    structlog.configure(  # crashes in a lesson are part of it: no logs of them on the terminal
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
    )
    try:
        from warrenmq.lens.lesson import find_lesson, lessons

        chosen = None if args.lesson is None else find_lesson(args.lesson)
        if args.export is not None:
            return _export([chosen] if chosen else lessons(), args)
        if chosen is None:
            for each in lessons():
                print(f"{each.number:>3}  {each.name.partition('-')[2]:30} {each.title}")
            return 0
        return _serve(chosen, args)
    except ImportError as why:
        raise CallerError(
            f"lessons need the simulation, and a page needs the web: install warrenmq[simulation,web] ({why})."
        ) from why


def _export(chosen: Any, args: argparse.Namespace) -> int:
    from warrenmq.lens.lesson_page import export

    try:
        names = export(chosen, args.export)
    except OSError as error:
        raise CallerError(
            f"{args.export} cannot be written: {error.strerror}; name another folder."
        ) from error
    print(f"{len(names)} files in {args.export}; begin with {args.export.rstrip('/')}/{names[0]}")
    if args.open:
        webbrowser.open(pathlib.Path(args.export, names[0]).absolute().as_uri())
    return 0


def _serve(chosen: Any, args: argparse.Namespace) -> int:
    from warrenmq.lens.drive_site import Driven
    from warrenmq.lens.lesson import play, script_name
    from warrenmq.lens.lesson_site import lesson_site
    from warrenmq.lens.server import run_site

    token, played = secrets.token_urlsafe(16), play(chosen)

    def said(url: str) -> None:
        print(f"ready {url}?token={token}\ndrive {url}drive/#token={token}", flush=True)
        if args.open:
            webbrowser.open(f"{url}?token={token}")

    with Driven(script_name(chosen), chosen.title) as driven:
        try:
            run_site(lesson_site(played, driven, token), port=args.port, said=said)
        except KeyboardInterrupt:
            pass  # how it ends
    return 0
