"""`warrenmq bench`: what this machine and this disk give, in a minute.

Every measure runs in a process of its own, which is this same verb with `--only`.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import structlog

from warrenmq.errors import Error, NotFound


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "bench", help="measure what this machine and this disk give", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument(
        "--dir", default=".", help="measure in a temporary folder below this one (default: %(default)s)"
    )
    parser.add_argument("--only", help="one measure, in this process", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it run at all?")
    parser.add_argument("--json", action="store_true", help="one object on stdout")


def run(args: argparse.Namespace) -> int:
    from warrenmq.bench import MEASURES

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


def _here(name: str, args: argparse.Namespace) -> dict[str, float]:
    from warrenmq.bench import MEASURES, QUICK, THOROUGH

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    directory = tempfile.mkdtemp(prefix="warrenmq-bench-", dir=args.dir)
    try:
        return MEASURES[name](directory, QUICK if args.quick else THOROUGH)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _in_a_process(name: str, args: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, "-m", "warrenmq", "bench", "--json", "--only", name, "--dir", args.dir]
    child = subprocess.run(
        [*command, *(["--quick"] if args.quick else [])], stdout=subprocess.PIPE, check=False
    )
    if child.returncode:
        raise Error(f"the measure {name} failed with exit code {child.returncode}")
    result: dict[str, float] = json.loads(child.stdout)[name]
    return result
