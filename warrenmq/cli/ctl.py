"""`warrenmq ctl COMMAND`: rabbitmqctl's commands over the management API."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from warrenmq.cli._ctl_client import Api, path
from warrenmq.cli._ctl_commands import ACTIONS, LISTINGS, Action, Listing
from warrenmq.cli._parsers import add_verb
from warrenmq.settings import MANAGEMENT_URL
from warrenmq.terminal import plain

URL = "http://guest:guest@localhost:15672"
TAKES_EMPTY_ARGUMENTS = True
"""An empty pattern permits nothing, or fits every name."""


def add_parser(subparsers: Any) -> None:
    parser = add_verb(
        subparsers, "ctl",
        summary="look into a running server and change it, with rabbitmqctl's commands",
        does="Ask a server that was started with --management, or a RabbitMQ with its management plugin. Rows are separated by tabs, "
        "the first one names the columns.",
        example="warrenmq ctl list_queues name messages consumers\nwarrenmq ctl set_policy short '^jobs' '{\"max-length\": 1000}'",
        ends="0 done, 2 the server refused it or cannot be reached.",
    )  # fmt: skip
    parser.add_argument(
        "--url", metavar="URL",
        help=f"the management API: http://USER:PASSWORD@HOST:PORT (default: ${MANAGEMENT_URL}, else {URL})",
    )  # fmt: skip
    _add_output(parser, default=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    for name, listing in LISTINGS.items():
        what = f"list {listing.says.format_map(_Shown())}"
        words = [each.upper() for each in listing.arguments]
        command = _add_command(commands, name, what, [*words, *listing.columns[:2]])
        _add_vhost(command, wanted=listing.of_vhost)
        for argument in listing.arguments:
            command.add_argument(argument, metavar=argument.upper(), help=f"the {argument}")
        columns = " ".join(listing.columns)
        command.add_argument(
            "columns", nargs="*", metavar="COLUMN", help=f"fields of the API (default: {columns})"
        )
    for name, action in ACTIONS.items():
        words = [f"'{each.rstrip('*?').upper()}'" for each in action.arguments]
        command = _add_command(commands, name, _imperative(name, action.says.format_map(_Shown())), words)
        _add_vhost(command, wanted=action.of_vhost)
        for option in action.options:
            if option.endswith("!"):
                command.add_argument(
                    f"--{option[:-1]}",
                    action="store_true",
                    help=f"only {option[:-1].replace('-', ' it is ')}",
                )
            else:
                command.add_argument(f"--{option}", metavar=option.upper(), help=f"the policy's {option}")
        for argument in action.arguments:
            name_of = argument.rstrip("*?")
            many = argument[len(name_of) :] or None
            command.add_argument(name_of, nargs=many, metavar=name_of.upper(), help=f"the {name_of}")


def _add_output(parser: argparse.ArgumentParser, *, default: bool | str) -> None:
    """Both before and behind the command, as rabbitmqctl takes its options."""
    for flags, what in (
        (("-q", "--quiet"), "print no line that says what is done"),
        (("--json",), "print what the API answers as JSON"),
    ):
        parser.add_argument(*flags, action="store_true", default=default, help=what)


def _add_command(commands: Any, name: str, what: str, words: Iterable[str]) -> Any:
    command = add_verb(
        commands, name, summary=what, does=f"{what[0].upper()}{what[1:]}, as rabbitmqctl does.",
        example=" ".join(["warrenmq ctl", name, *words]), ends="0 done, 2 the server refused it or cannot be reached.",
    )  # fmt: skip
    _add_output(command, default=argparse.SUPPRESS)
    return command


def _imperative(command: str, says: str) -> str:
    """The line that a command prints ("Adding user NAME") as its help has it ("add user NAME")."""
    verb, of_something, _ = command.partition("_")
    return f"{verb} {says.partition(' ')[2]}" if of_something else says


class _Shown(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return name.upper()


def _add_vhost(command: argparse.ArgumentParser, *, wanted: bool) -> None:
    if wanted:
        command.add_argument(
            "-p", "--vhost", default="/", metavar="VHOST", help="the virtual host (default: /)"
        )


def run(args: argparse.Namespace) -> int:
    api = Api(args.url or os.environ.get(MANAGEMENT_URL) or URL)
    if args.command in LISTINGS:
        _list(api, args, LISTINGS[args.command])
    else:
        _act(api, args, ACTIONS[args.command])
    return 0


def _list(api: Api, args: argparse.Namespace, listing: Listing) -> None:
    names = {name: path(str(value)) for name, value in vars(args).items() if isinstance(value, str)}
    renamed = dict(listing.renamed)
    # some are counted if they are named
    fields = ",".join(path(renamed.get(column, column)) for column in args.columns)
    rows = api.call("GET", listing.path.format_map(names) + (f"?columns={fields}" if fields else ""))
    if args.json:
        print(json.dumps(rows))
        return
    _say(args, f"Listing {listing.says.format_map(vars(args))} ...")
    columns = args.columns or listing.columns
    if rows:
        print("\t".join(columns))
    for row in rows:
        print("\t".join(shown(_cell(row, column, renamed)) for column in columns))


def _cell(row: dict[str, Any], column: str, renamed: dict[str, str]) -> Any:
    if column == "source_kind":
        return "exchange"
    value: Any = row
    for part in renamed.get(column, column).split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def shown(value: Any) -> str:
    """A value as a cell: lists as rabbitmqctl prints them, tables as JSON, nothing as nothing; no tab and no
    line break in it.

    | value          | cell       |
    | -------------- | ---------- |
    | null           |            |
    | true           | true       |
    | ["a", "b"]     | [a, b]     |
    | {"a": 1}       | {"a": 1}   |
    | {}, []         | []         |
    """
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case list():
            return f"[{', '.join(map(shown, value))}]"
        case dict():
            return json.dumps(value) if value else "[]"
    return plain(str(value))


def _act(api: Api, args: argparse.Namespace, action: Action) -> None:
    _say(args, f"{action.says.format_map({**vars(args)})} ...")
    answer = action.does(api, args)
    if args.json:
        print(json.dumps(answer))
    elif args.command == "status":
        for name, value in answer.items():
            print(f"{name}\t{shown(value)}")


def _say(args: argparse.Namespace, line: str) -> None:
    if not args.quiet and not args.json:
        print(line, file=sys.stderr)
