"""Mutation testing: whether the tests notice when a line of a module is wrong.

    python tools/mutate.py warrenmq/message_store/*.py --tests tests/message_store --count 40 --seed 1

Draws `count` mutations of the modules by a seed (comparisons flipped, numbers off by one, statements removed, branches
swapped, conditions negated) and runs the tests once with each, stopping at the first failure.  A mutation is killed when a
test fails or does not end in time.  Modules that are the same give the same mutations, so two versions of the tests can be
compared.  With `--out FILE` results are appended to a file, and a run with the same file goes on where the last one ended.

No file is changed: each run is a fork of this process in which the import system compiles the mutated tree instead.
Tests that start processes of their own run the original code there.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.machinery
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

import pytest
from hypothesis import Phase, settings

FLIPPED = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
AT_THE_EDGE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
OTHER_SIGN = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.And: ast.Or, ast.Or: ast.And}
REMOVABLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Continue, ast.Break)


class Mutation(NamedTuple):
    """A module with one thing changed; its text says what."""

    path: str
    line: int
    what: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.what}"


def mutations(path: str) -> Iterator[Mutation]:
    """Every mutation of a module, in the order of its lines."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    places = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    nodes = {id(node): node for function in places for each in function.body for node in _code(each)}
    for node in sorted(nodes.values(), key=lambda each: (each.lineno, each.col_offset)):
        for change in _changes(node):
            # The change is made in the tree itself and undone: what is compiled is a copy.
            before, saved = ast.unparse(node), dict(node.__dict__)
            kind = node.__class__
            change()
            after, mutated = ast.unparse(node), copy.deepcopy(tree)
            node.__class__ = kind
            node.__dict__.clear()
            node.__dict__.update(saved)
            yield Mutation(path, node.lineno, f"{_short(before)}  ->  {_short(after)}", mutated)


def _code(statement: ast.stmt) -> Iterator[ast.stmt | ast.expr]:
    """The nodes of a statement that run: no annotations, no docstrings, no messages of errors."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Raise, ast.Assert, ast.FunctionDef)):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, (ast.stmt, ast.expr)):
            yield node
        if isinstance(node, ast.AnnAssign):
            waiting += [node.value] if node.value else []
        else:
            waiting += ast.iter_child_nodes(node)


def _changes(node: ast.AST) -> Iterator:
    match node:
        case ast.Compare(ops=[op]):
            for table in (FLIPPED, AT_THE_EDGE):
                if type(op) in table:
                    yield lambda table=table: node.__dict__.update(ops=[table[type(op)]()])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in OTHER_SIGN:
            yield lambda: node.__dict__.update(op=OTHER_SIGN[type(op)]())
        case ast.Constant(value=bool(value)):
            yield lambda: node.__dict__.update(value=not value)
        case ast.Constant(value=int(value)):
            yield lambda: node.__dict__.update(value=value + 1)
        case ast.If() | ast.While() | ast.IfExp() if not isinstance(node.test, (ast.Compare, ast.Constant)):
            yield lambda: node.__dict__.update(test=ast.UnaryOp(ast.Not(), node.test))
    match node:
        case ast.If(body=body, orelse=[_, *_] as orelse):
            yield lambda: node.__dict__.update(body=orelse, orelse=body)
        case ast.IfExp(body=body, orelse=orelse):
            yield lambda: node.__dict__.update(body=orelse, orelse=body)
    if isinstance(node, REMOVABLE):
        yield lambda: setattr(node, "__class__", ast.Pass)


def _short(code: str) -> str:
    line = " ".join(code.split())
    return line if len(line) <= 70 else line[:67] + "..."


def run_tests(tests: list[str], seconds: float, mutation: Mutation | None = None) -> str:
    """Run the tests in a fork of this process, with the mutation: "passed", "failed" or "hung"."""
    child = os.fork()
    if child == 0:
        _run_in_child(tests, mutation)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return "passed" if os.waitstatus_to_exitcode(status) == 0 else "failed"
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"


def _run_in_child(tests: list[str], mutation: Mutation | None) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    if mutation is not None:
        _compile_instead(os.path.abspath(mutation.path), mutation.tree)
    # A failing example is not shrunk: that takes minutes, and is not read.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    settings.register_profile("mutate", derandomize=True, deadline=None, database=None, phases=phases)
    options = ["-xq", "-p", "no:cacheprovider", "--hypothesis-profile=mutate"]
    # hypothesis is imported before pytest begins
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    os._exit(pytest.main([*options, *tests]))


def _compile_instead(path: str, tree: ast.Module) -> None:
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        if os.path.realpath(self.path) == os.path.realpath(path):
            return compile(ast.fix_missing_locations(tree), path, "exec")
        return original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="+")
    parser.add_argument("--tests", nargs="+", required=True, help="what pytest runs, the fast ones first")
    parser.add_argument("--count", type=int, default=40, help="how many mutations (40)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="when the tests of one mutation count as hung (120)"
    )
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="seconds after which no other one is begun"
    )
    parser.add_argument("--out", help="the file of results")
    args = parser.parse_args()
    sys.path.insert(0, os.getcwd())
    drawn = [mutation for path in sorted(args.modules) for mutation in mutations(path)]
    drawn = random.Random(args.seed).sample(drawn, min(args.count, len(drawn)))
    known = _known(args.out)
    began = time.monotonic()
    if not known and run_tests(args.tests, args.seconds) != "passed":
        sys.exit("the tests do not pass as they are")
    print(f"{len(drawn)} mutations; the tests alone take {time.monotonic() - began:.1f} s", flush=True)
    for mutation in drawn:
        if str(mutation) in known or time.monotonic() - began > args.budget:
            continue
        started = time.monotonic()
        came = run_tests(args.tests, args.seconds, mutation)
        known[str(mutation)] = "SURVIVED" if came == "passed" else "killed"
        line = f"{known[str(mutation)]:8}\t{time.monotonic() - started:.1f}\t{mutation}"
        print(line, flush=True)
        if args.out:
            with open(args.out, "a", encoding="utf-8") as out:
                print(line, file=out)
    results = [known[str(each)] for each in drawn if str(each) in known]
    print(f"{results.count('killed')} of {len(results)} killed; {len(drawn) - len(results)} not tried")


def _known(path: str | None) -> dict[str, str]:
    if path is None or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 2) for line in file]
    return {what: came.strip() for came, _, what in rows}


if __name__ == "__main__":
    main()
