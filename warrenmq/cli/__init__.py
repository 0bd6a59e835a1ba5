"""The command line: `warrenmq VERB`.

Each module of this package is a verb and has two functions: `add_parser(subparsers)`, which names the verb and its
arguments, and `run(args)`, which does it and returns the exit code.  Modules whose name starts with an underscore
are parts that verbs share.  What a verb needs besides the standard library it imports inside `run`, so that
`warrenmq --help` costs nothing and works without Spark.

Data goes to stdout, progress and complaints to stderr.  Exit codes: 0 fine, 1 a problem was found, 2 usage error.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any, Protocol, cast

import structlog

from warrenmq.errors import CallerError, Error

__all__ = ["main"]


class Verb(Protocol):
    """What the dispatcher expects of a module of this package."""

    def add_parser(self, subparsers: Any) -> Any: ...
    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; what it raises as an error of ours becomes a sentence on stderr, without a traceback."""
    parser = argparse.ArgumentParser(
        prog="warrenmq", description="Durable queues with supervised actors whose every run can be replayed."
    )
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    known = verbs()
    for verb in known.values():
        verb.add_parser(subparsers)
    args = parser.parse_args(argv)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # stdout is for data
    try:
        return known[args.verb].run(args)
    except Error as error:
        print(f"warrenmq {args.verb}: {error}", file=sys.stderr)
        return 2 if isinstance(error, CallerError) else 1
    except BrokenPipeError:  # `warrenmq ... | head`: nobody reads on, and nothing is wrong
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130  # as a shell reports a process that SIGINT ended


def verbs() -> dict[str, Verb]:
    """The verbs by name, in alphabetical order."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    return {name: cast("Verb", importlib.import_module(f"{__name__}.{name}")) for name in sorted(names)}
