"""Rows of a trace are read by the names of their columns (trace/events/): outside warrenmq/trace nothing reads a, b, c or pseq."""

import ast
import os
import re

import pytest

from tests.support.source_tree import ROOT

FOLDERS = (
    "warrenmq/replay",
    "warrenmq/lens",
    "warrenmq/bench",
    "warrenmq/cli",
    "benchmarks",
    "examples",
    "tools",
)
"""Readers of traces are here; elsewhere rows are only written, by functions that name their columns."""
LETTERS = {"a", "b", "c", "pseq"}
IN_SQL = re.compile(r"\bpseq\b|(?<![\w.`'\"/-])\b[abc]\b\s*(?:[-+<>]|between\b)|\((?:a|b|c)\)")
ROWS = re.compile(r"(?:^|_)(?:row|rows|last|placed)$")
"""Names of what is indexed as a row."""

CARRIERS = {
    "warrenmq/replay/spark/arrow_rows.py",  # the public DataFrame has the stored columns, too
    "warrenmq/replay/spark/source.py",  # the same without names
    "warrenmq/replay/spark/own_rules.py",  # the table `stored`, of which the views by name are made
    "warrenmq/replay/spark/check.py",  # the public rows as stored ones again
    "warrenmq/replay/drive/columns.py",  # rows as columns, under the names that are stored
    "tools/trace_page.py",  # says where each column is stored
}
"""Files that carry whole rows from one form to another, without reading any."""


def files():
    """(path, text) of each file that handles rows."""
    for folder in FOLDERS:
        for where, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in names:
                path = os.path.relpath(os.path.join(where, name), ROOT)
                if not name.endswith(".py") or path in CARRIERS:
                    continue
                with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                    text = file.read()
                if folder == "warrenmq/replay" or "warrenmq.trace" in text or "warrenmq.replay" in text:
                    yield path, text


def last_name(node):
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return last_name(value)
    return ""


def readings(tree):
    """(line, what) of each place that reads a column by its letter or by its place in the row."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=value, attr=attr) if attr in LETTERS and last_name(value) != "self":
                yield node.lineno, f".{attr}"
            case ast.Name(id="pseq"):
                yield node.lineno, "pseq"
            case ast.Subscript(slice=ast.Constant(value=str(key))) if key in LETTERS:
                yield node.lineno, f"[{key!r}]"
            case ast.Subscript(slice=ast.Constant(value=int(place)), value=value) if (
                ROWS.search(last_name(value)) and place > 1
            ):
                yield node.lineno, f"{last_name(value)}[{place}]"
            case ast.Tuple(elts=targets, ctx=ast.Store()) if len(targets) == 9:
                yield node.lineno, "nine columns unpacked"
            case ast.Call(func=func, args=args) if last_name(func) != "open":
                for each in args:
                    if isinstance(each, ast.Constant) and each.value in LETTERS:
                        yield node.lineno, f"{last_name(func)}({each.value!r})"
            case ast.Constant(value=str(text)) if IN_SQL.search(text):
                yield node.lineno, f"in a text: {IN_SQL.search(text).group()}"


def test_rows_are_read_by_name():
    wrong = [
        f"{path} line {line}: {what}" for path, text in files() for line, what in readings(ast.parse(text))
    ]
    assert not wrong


@pytest.mark.parametrize(
    "code",
    [
        "row.a", "placed[1][5]", "row[7]", "t, seq, msg, peer, pseq, a, b, c, who = row", "found['pseq']", "sf.col('b')",
        "where('a + b > 0')", "f'{first} between a and a + b - 1'", "rows.pseq != 0", "sf.expr('sum(b)')",
    ],
)  # fmt: skip
def test_a_reading_by_letter_or_place_is_found(code):
    assert list(readings(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["Publish.of(row).count", "row.t", "Row(*row)", "open(name, 'a')", "self.a", "'a b c'"]
)
def test_anything_else_is_not(code):
    assert not list(readings(ast.parse(code)))
