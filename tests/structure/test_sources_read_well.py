"""Docstrings: every module has one, the public API has them, and none begins as a riddle."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import warrenmq
from tests.support.source_tree import modules

RIDDLES = {
    "who", "whose", "whom", "what", "which", "when", "where", "why", "how", "whether", "whatever", "whoever", "whichever",
    "wherever", "however", "that", "those", "these", "nobody", "somebody", "everybody", "anybody", "as",
}  # fmt: skip
"""First words of docstrings that say nothing in an index; a sentence begins with the thing or the verb instead."""


def test_a_module_says_what_it_is():
    silent = [
        name for name, module in modules().items() if module.tree.body and not ast.get_docstring(module.tree)
    ]
    assert not silent


def docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and (
            text := ast.get_docstring(node)
        ):
            yield getattr(node, "name", ""), text


def test_the_first_word_of_a_docstring_is_no_interrogative_or_pronoun():
    riddles = [
        f"{module} {name}: {text.splitlines()[0]}"
        for module, parsed in modules().items()
        for name, text in docstrings(parsed.tree)
        if text.split()[0].rstrip(",:").lower() in RIDDLES
    ]
    assert not riddles


def test_a_comment_stands_above_its_statement_not_behind_the_bracket_that_ends_it():
    """The formatter breaks a line for the sake of a comment that no longer fits behind it."""
    behind = [
        f"{name}: {line.strip()}"
        for name, module in modules().items()
        for line in Path(module.path).read_text().splitlines()
        if re.match(r"\s*[])}][\s:,)\]}]*# (?!fmt: |noqa|type: )", line)
    ]
    assert not behind


def public_names():
    return [name for name in getattr(warrenmq, "__all__", []) if not name.startswith("__")]


def test_the_public_names_are_sorted_and_there():
    names = list(getattr(warrenmq, "__all__", []))
    assert names == sorted(names)
    assert [name for name in names if not hasattr(warrenmq, name)] == []


@pytest.mark.parametrize("name", public_names())
def test_public_things_have_docstrings(name):
    thing = getattr(warrenmq, name)
    if not (inspect.isclass(thing) or inspect.isfunction(thing) or inspect.ismodule(thing)):
        return
    assert inspect.getdoc(thing), name
    if not inspect.isclass(thing) or issubclass(thing, BaseException):
        return
    methods = {
        member: value
        for member, value in vars(thing).items()
        if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }
    silent = [member for member in methods if not inspect.getdoc(getattr(thing, member))]
    assert silent == []


ROW = re.compile(r"^(_?[a-z]\w*) {2,}\S", re.MULTILINE)
"""A row of a table in a docstring: a name, and what it is."""


def attributes(node):
    """The names of a class that an instance has: methods, fields, and whatever is assigned to self."""
    for each in node.body:
        match each:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
            yield each.attr


def test_a_table_of_attributes_in_the_docstring_of_a_class_has_their_names():
    """Their whole names, so that they are found: `_timers`, if that is what the class has."""
    wrong = [
        f"{module} {node.name}: {name} is {other}"
        for module, parsed in modules().items()
        for node in ast.walk(parsed.tree)
        if isinstance(node, ast.ClassDef) and (text := ast.get_docstring(node))
        for there in [set(attributes(node))]
        for name in ROW.findall(text)
        for other in [name.removeprefix("_") if name.startswith("_") else f"_{name}"]
        if name not in there and other in there
    ]
    assert not wrong


def test_the_contents_of_a_room_name_each_of_its_modules_once():
    """In packages whose docstring is a table of contents, as message_store."""
    tables = 0
    for name, module in modules().items():
        named = re.findall(r"^ {4}([\w/]+) {2,}\S", ast.get_docstring(module.tree) or "", re.MULTILINE)
        inside = [
            each for each in modules() if each.startswith(f"{name}.") and not modules()[each].is_package
        ]
        there = {each.removeprefix(f"{name}.").replace(".", "/") for each in inside}
        if module.is_package and 2 * len(set(named) & there) > len(there):
            tables += 1
            assert sorted(named) == sorted(there), name
    assert tables >= 10
