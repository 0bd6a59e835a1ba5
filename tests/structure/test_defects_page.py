"""docs/defects.md names every defect once, and tests that exist."""

import ast
import os
import re
from collections import Counter

from tests.support.source_tree import ROOT, text_of

NUMBERS = {"S": 40, "Q": 67, "C": 9, "H": 23}
"""How many there are: of the store, of the queue, points of a combine, hazards."""
ROW = re.compile(r"^\| ((?:[SQCH]\d+(?:, )?)+) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::([\w:]+)`")


def rows():
    return ROW.findall(text_of("docs/defects.md"))


def names_in(path):
    """The tests of a file, those of a class with its name."""
    with open(os.path.join(ROOT, "tests", path), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for each in tree.body:
        if isinstance(each, ast.ClassDef):
            found |= {f"{each.name}::{node.name}" for node in each.body if isinstance(node, ast.FunctionDef)}
    return found


def test_every_number_is_there_once():
    told = Counter(number for numbers, _ in rows() for number in numbers.split(", "))
    assert told == Counter(f"{kind}{n}" for kind, count in NUMBERS.items() for n in range(1, count + 1))


def test_every_row_says_why_not_or_names_a_test():
    silent = [numbers for numbers, rest in rows() if "cannot arise: " not in rest and not TEST.search(rest)]
    assert silent == []


def test_every_test_that_is_named_exists():
    named = TEST.findall(text_of("docs/defects.md"))
    assert [f"{path}::{name}" for path, name in named if name not in names_in(path)] == []
