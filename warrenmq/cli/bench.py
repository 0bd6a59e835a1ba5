"""`warrenmq bench`: throughput and latency on this machine and disk, in a minute.

Every measure runs in a process of its own, which is this same verb with `--only`.  With `--profile` it is one workload
under each of the profiles instead, side by side, counted from their traces.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from warrenmq.cli._parsers import add_verb
from warrenmq.errors import CallerError, Error, NotFound
from warrenmq.settings import PROFILES
from warrenmq.terminal import number, table


def add_parser(subparsers: Any) -> None:
    parser = add_verb(
        subparsers, "bench",
        summary="measure what this machine and this disk give",
        does="Measure, in a minute, how many messages a second this machine and this disk publish, confirm, deliver and replay. "
        "With --profile it is one workload under each of the profiles instead, side by side, counted from their traces.",
        example="warrenmq bench --dir /mnt/disk",
        ends="0 done, 2 nothing can be measured there.",
    )  # fmt: skip
    parser.add_argument(
        "--dir",
        default=".",
        metavar="DIR",
        help="measure in a temporary folder below this one (default: %(default)s)",
    )
    parser.add_argument("--profile", help=f"compare these profiles: {','.join(PROFILES)}", metavar="A,B")
    parser.add_argument(
        "--only", help="one measure, in this process (default: all, each in its own)", metavar="NAME"
    )
    parser.add_argument("--quick", action="store_true", help="small numbers: does it run at all?")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    from warrenmq.bench import MEASURES

    if args.profile:
        return _side_by_side(args)
    if args.only and args.only not in MEASURES:
        raise NotFound(f"no measure is called {args.only!r}; there are {', '.join(MEASURES)}")
    names = [args.only] if args.only else list(MEASURES)
    results = {}
    for name in names:
        results[name] = _here(name, args) if args.only else _in_a_process(name, args)
        if not args.json:
            numbers = "  ".join(f"{key} {value:,.4g}" for key, value in results[name].items())
            print(f"{name:20} {numbers}", flush=True)
    if args.json:
        print(json.dumps(results))
    return 0


def _side_by_side(args: argparse.Namespace) -> int:
    names = args.profile.split(",")
    if unknown := [name for name in names if name not in PROFILES]:
        raise NotFound(f"no profile is called {unknown[0]!r}; there are {', '.join(PROFILES)}")
    if args.only:  # the child of the next line
        results = {names[0]: _profile(names[0], args)}
    else:
        results = {name: _child(["--only", "profile", "--profile", name], args)[name] for name in names}
    if args.json:
        print(json.dumps(results))
        return 0
    measures = next(iter(results.values()))
    print(
        table(
            ("", *results), [(each, *(number(told[each]) for told in results.values())) for each in measures]
        )
    )
    return 0


def _profile(name: str, args: argparse.Namespace) -> dict[str, float]:
    from warrenmq.bench import QUICK, THOROUGH, profile

    with _folder(args) as directory:
        return profile(directory, QUICK if args.quick else THOROUGH, name)


def _here(name: str, args: argparse.Namespace) -> dict[str, float]:
    from warrenmq.bench import MEASURES, QUICK, THOROUGH

    with _folder(args) as directory:
        return MEASURES[name](directory, QUICK if args.quick else THOROUGH)


@contextmanager
def _folder(args: argparse.Namespace) -> Iterator[str]:
    """A temporary folder to measure in; only warnings are logged."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        directory = tempfile.mkdtemp(prefix="warrenmq-bench-", dir=args.dir)
    except OSError as error:
        raise CallerError(
            f"nothing can be measured in {args.dir}: {error.strerror}; name a folder with --dir."
        ) from error
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _in_a_process(name: str, args: argparse.Namespace) -> dict[str, float]:
    return _child(["--only", name], args)[name]


def _child(options: list[str], args: argparse.Namespace) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "warrenmq", "bench", "--json", "--dir", args.dir, *options]
    child = subprocess.run(
        [*command, *(["--quick"] if args.quick else [])], stdout=subprocess.PIPE, check=False
    )
    if child.returncode:
        raise Error(f"the measure {options[-1]} failed with exit code {child.returncode}")
    results: dict[str, dict[str, float]] = json.loads(child.stdout)
    return results
