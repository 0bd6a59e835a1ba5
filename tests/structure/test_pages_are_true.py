"""Names in the README and docs/ exist: files, names of the code, settings, packages, invariants."""

import ast
import functools
import re
from dataclasses import fields

import pytest

from tests.support.source_tree import PART, modules, pages, text_of, tracked_files
from warrenmq.settings import Settings

MADE_BY_COMMANDS = {
    "report.html",
    "warrenmq-demo.html",
    "rabbitmq.conf",
    "page.html",
    "users.json",
    "out/index.html",
}
FILE = re.compile(r"`([\w./-]+\.(?:py|md|toml|txt|html|conf|json))`")


@pytest.mark.parametrize("page", pages())
def test_every_file_that_a_page_names_exists(page):
    """By its path, or the end of it: `process.py` is enough beside `actors/queue/`."""
    there = "\n".join(["", *(tracked_files() or []), ""])
    named = FILE.findall(text_of(page))
    missing = [each for each in named if f"/{each}\n" not in there and f"\n{each}\n" not in there]
    typed = {part["title"] for part in PART.finditer(text_of(page))}
    assert [each for each in missing if each not in MADE_BY_COMMANDS | typed] == []


def test_every_setting_on_its_page_is_one_and_has_the_default_that_is_said():
    table = text_of("docs/settings.md").partition("| setting | default |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE)
    defaults = {each.name: each.default for each in fields(Settings)}
    units = {"16 MiB": 16 << 20, "25 ms": 25, "false": False, "true": True}
    assert rows
    for name, said in rows:
        plain = said.strip().strip("`")
        default = defaults[name]
        assert plain == str(default) or units.get(plain) == default or plain == str(default).strip("()"), name


def test_every_package_is_among_the_rooms():
    listed = text_of("docs/architecture.md").partition("## Rooms")[2].partition("\n## ")[0]
    packages = [name for name, module in modules().items() if module.is_package and name.count(".") == 1]
    assert [name for name in packages if f"{name.rpartition('.')[2]}/" not in listed] == []


STORIES = ["message-store", "queue", "garbage-collection", "confirms", "architecture", "extending"]
"""Pages that tell the code by its names."""
NAME = re.compile(
    r"^(?!.*\.(?:py|rdq|rdt|qi|qs|idx|jif|tmp|id|log|terms)$)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?$"
)
NOT_OURS = re.compile(
    r"rabbit_\w*|_fanout|_topic|_headers|gen_server2|supervisor2|credit_flow|vm_memory_monitor|fdatasync|sync_file_range"
)


@functools.cache
def members():
    """Every class with the names in it, those of the classes it inherits from included, and every other name."""
    classes, names = {}, {each.name for each in fields(Settings)}
    for name, module in modules().items():
        names.update(name.split("."))
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                inside = classes.setdefault(node.name, set())
                inside |= {ast.unparse(base).partition("[")[0] for base in node.bases}
                for each in ast.walk(node):
                    inside |= defined(each)
            names |= defined(node)
    return classes, names


def defined(node):
    """The names that a statement defines: functions, classes, variables, attributes of self, keyword arguments."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Name(ctx=ast.Store()):
            return {node.id}
        case ast.Attribute(ctx=ast.Store()):
            return {node.attr}
        case ast.arg():
            return {node.arg}
    return set()


@functools.cache
def has(name):
    """True if a name, or `Class.member`, is in the code."""
    classes, names = members()
    first, *rest = name.removesuffix("()").split(".")
    if not rest or first not in classes:
        return first in names and all(each in names for each in rest)
    family, known = [first], set()
    while family:
        each = family.pop()
        if each in classes and each not in known:
            known.add(each)
            family += classes[each]
    return all(any(each in classes[one] for one in known) for each in rest)


@pytest.mark.parametrize("page", STORIES)
def test_every_name_in_a_story_is_in_the_code(page):
    text = re.sub(r"^```.*?^```", "", text_of(f"docs/{page}.md"), flags=re.MULTILINE | re.DOTALL)
    named = {each for each in re.findall(r"`([^`\n]+)`", text) if NAME.match(each)}
    assert [each for each in sorted(named) if not NOT_OURS.fullmatch(each) and not has(each)] == []
