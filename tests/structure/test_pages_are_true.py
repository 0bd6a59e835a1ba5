"""Names in pages, docstrings and comments exist: files, names of the code, settings, packages, invariants."""

import argparse
import ast
import builtins
import functools
import re
import sys
from dataclasses import fields

import pytest

import warrenmq
from tests.support.source_tree import PART, modules, pages, text_of, tracked_files
from warrenmq import cli
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


def test_every_program_that_a_page_runs_with_python_m_exists():
    """Ours; those of others, such as mkdocs, have their own tests."""
    files = {f"{name.replace('/', '.')}." for name in tracked_files() or []}
    run = {
        (path, each)
        for path in tracked_files() or []
        if path.endswith(".md")
        for each in re.findall(r"python3? -m ((?:warrenmq|benchmarks|tools|tests)[\w.]*)", text_of(path))
    }
    assert len(run) > 10
    assert [each for each in sorted(run) if not any(name.startswith(f"{each[1]}.") for name in files)] == []


COMMAND = re.compile(r"^(?:\$ )?warrenmq ([a-z-]+(?: [^\n]*)?)$", re.MULTILINE)
QUOTED_COMMAND = re.compile(r"`warrenmq ([a-z][^`]*)`")


def test_every_command_of_a_page_has_a_verb_and_options_that_there_are():
    """In pieces of text that no test types, too, and in the middle of a sentence."""
    written = {
        (page, words)
        for page in pages()
        for text in [text_of(page)]
        for words in [
            *COMMAND.findall("\n".join(FENCED.findall(text))),
            *QUOTED_COMMAND.findall(FENCED.sub("", text)),
        ]
    }
    assert len(written) > 100
    whole = cli.parser(cli.verbs())
    assert [each for each in sorted(written) if not is_command(whole, each[1])] == []


def is_command(parser, words):
    """True if a command's verb, its task and its options are in the parser; placeholders and values are not looked at."""
    for word in re.split(r" [#|<>] ", words)[0].split():
        tasks = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        if tasks and word in tasks[0].choices:
            parser = tasks[0].choices[word]
        else:
            is_name = tasks and re.fullmatch(r"[a-z][a-z_-]*", word)
            if is_name or (
                word.startswith("--") and word.partition("=")[0] not in parser._option_string_actions
            ):
                return False
    return True


def test_every_module_that_a_source_names_by_its_folder_exists():
    """In docstrings and comments: `queue/state.py`, or the path from the root."""
    there = "\n".join(["", *(tracked_files() or []), ""])
    named = {
        (path, each)
        for path in tracked_files() or []
        if path.endswith((".py", ".js")) and not path.startswith("tests/structure/")
        for each in re.findall(r"(?<![\w./{}-])((?:[\w-]+/)+\w+\.py)\b", text_of(path))
    }
    assert len(named) > 100
    assert [
        each for each in sorted(named) if f"/{each[1]}\n" not in there and f"\n{each[1]}\n" not in there
    ] == []


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


def test_the_supervision_tree_on_its_page_has_every_actor_of_a_broker(tmp_path):
    """A collector stands beside its store there, as `gc`."""
    drawn = (
        text_of("docs/architecture.md").partition("## The supervision tree")[2].partition("\n## ")[0].split()
    )
    with warrenmq.open(tmp_path) as broker:
        names = [each.name for each in broker.stats().actors]
    assert [name for name in names if name.removesuffix("_gc") not in drawn] == []


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


QUOTED = re.compile(r"`(_?[A-Za-z]\w*(?:\.\w+)*(?:\(\))?)`")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PROSE = re.compile(r'^ *""".*?"""$|#.*?$', re.MULTILINE | re.DOTALL)
OF_OTHERS = {"task_publish_retry", "logging.Handler.handleError"}
"""Names of programs and libraries that nothing here calls."""


def test_every_name_in_a_page_a_docstring_or_a_comment_is_used_somewhere():
    """Weaker than the test of the stories, for all text: a function that was renamed is noticed if no code has its old name."""
    words = words_in_use()
    stale = [
        f"{path}: {name}"
        for path, text in texts()
        for name in sorted(set(QUOTED.findall(text)) - OF_OTHERS)
        if is_identifier(name) and not NOT_OURS.fullmatch(name) and not is_used(name, words)
    ]
    assert stale == []


def texts():
    """Every page but those on RabbitMQ and on the past, without blocks of code, and every Python file."""
    for path in tracked_files() or []:
        if path.endswith(".md") and not path.startswith(("docs/reference/", "tests/golden/", "CHANGELOG")):
            yield path, FENCED.sub("", text_of(path))
        elif path.endswith(".py") and not path.startswith("tests/structure/"):
            yield path, text_of(path)


def is_identifier(name):
    """True for what looks like a name of code, and not like a word, a key or a suffix."""
    return bool(re.search(r"\w_\w|\.|\(\)|[a-z][A-Z]", name)) and not name.startswith("_")


def is_used(name, words):
    """True if each part of a name is used; a member of a class of ours must be in that class."""
    first, *rest = name.removesuffix("()").split(".")
    if rest and first in members()[0]:
        return has(name)
    return all(each in words for each in (first, *rest)) or (
        first.startswith("WARRENMQ_") and first.removeprefix("WARRENMQ_").lower() in words
    )


@functools.cache
def words_in_use():
    """The words of all code, without docstrings and comments, and those of what RabbitMQ's pages say."""
    found = {*dir(builtins), *sys.stdlib_module_names}
    for path in tracked_files() or []:
        found.update(re.findall(r"\w+", path))
        if path.endswith((".py", ".tla", ".toml", ".js", ".conf")) or path.startswith("docs/reference/"):
            found.update(re.findall(r"\w+", PROSE.sub("", text_of(path))))
    return found
