"""The command line: `warrenmq VERB`.

Each module of this package is a verb and has two functions: `add_parser(subparsers)`, which names the verb and its
arguments, and `run(args)`, which does it and returns the exit code.  Modules whose name starts with an underscore
are parts that verbs share.  A verb imports inside `run` what it needs besides the standard library, so that
`warrenmq --help` costs nothing and works without Spark.

Data goes to stdout, progress and complaints to stderr.  Exit codes: 0 fine, 1 a problem was found, 2 the command cannot
be carried out, 130 interrupted (_failures.py).
"""

from __future__ import annotations

import argparse
import importlib
import logging
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

import structlog

from warrenmq.cli._failures import IMPOSSIBLE, Failure, failure_of
from warrenmq.cli._streams import OutputLost, standard_streams
from warrenmq.errors import CallerError
from warrenmq.version import version

__all__ = ["main", "parser", "verbs"]


class Verb(Protocol):
    """The contract between the dispatcher and a module of this package."""

    def add_parser(self, subparsers: Any) -> Any: ...
    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code; what it raises becomes a sentence on stderr, never a traceback."""
    with standard_streams():
        args = argparse.Namespace(verb=None)
        try:
            return _run(argv, args)
        except OutputLost as lost:
            failure = _of_output(lost)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the one place where all errors become sentences
            failure = failure_of(error)
        if failure.text:
            with suppress(OutputLost):
                sys.stdout.flush()  # earlier output comes first
            print(
                f"warrenmq {args.verb}: {failure.text}" if args.verb else f"warrenmq: {failure.text}",
                file=sys.stderr,
            )
        return failure.status


def _run(argv: Sequence[str] | None, args: argparse.Namespace) -> int:
    """Parse into `args`, and do it; what was said is written when this returns."""
    words = sys.argv[1:] if argv is None else argv
    known = verbs(words[0] if words else "")
    # else what libraries log, as an interrupted py4j its stack, goes to stderr
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())
    try:
        parser(known).parse_args(words, args)
        empty = [name for name, value in vars(args).items() if value == ""]
        if empty and not getattr(known[args.verb], "TAKES_EMPTY_ARGUMENTS", False):
            raise CallerError(f"the argument {empty[0].replace('_', '-')} is empty; give it a value.")
        structlog.configure(
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),  # stdout is for data
            wrapper_class=structlog.make_filtering_bound_logger(
                logging.INFO if args.verb == "serve" else logging.WARNING
            ),
        )
        status = known[args.verb].run(args)
    except SystemExit:  # help, the version, or wrong usage
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return status


def _of_output(lost: OutputLost) -> Failure:
    """`warrenmq ... | head` reads as much as it wants, and nothing is wrong."""
    return (
        Failure(0, "")
        if lost.is_broken_pipe
        else Failure(IMPOSSIBLE, f"stdout cannot be written: {lost.reason}.")
    )


def parser(known: dict[str, Verb]) -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    made = argparse.ArgumentParser(
        prog="warrenmq",
        description="Durable queues with supervised actors whose every run can be replayed.",
        epilog="warrenmq VERB --help says what a verb does, with an example. "
        "Exit status: 0 all is well, 1 a problem was found, 2 the command cannot be carried out.",
    )
    made.add_argument(
        "--version", action="version", version=f"warrenmq {version()}", help="print the version and exit"
    )
    subparsers = made.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=True)
    for verb in known.values():
        verb.add_parser(subparsers)
    return made


def verbs(only: str = "") -> dict[str, Verb]:
    """The verbs by name, in alphabetical order: hash_password.py is hash-password.

    Of one that is called `only` the others are left out: their modules and parsers would take a third of the
    time that a short command takes.
    """
    modules = {
        module.name.replace("_", "-"): module.name
        for module in sorted(pkgutil.iter_modules(__path__))
        if not module.name.startswith("_")
    }
    names = [only] if only in modules else modules
    return {name: cast("Verb", importlib.import_module(f"{__name__}.{modules[name]}")) for name in names}
