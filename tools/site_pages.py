"""The pages of the documentation's site that are no files of docs/, as text; mkdocs.yml has the navigation."""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import posixpath
import re
from dataclasses import fields
from importlib import import_module
from typing import NamedTuple

import warrenmq
from warrenmq import cli
from warrenmq.replay.rules.registry import RULES
from warrenmq.settings import Settings


class ApiPage(NamedTuple):
    """A page of the reference whose entries are made from docstrings."""

    title: str
    intro: str
    names: tuple[str, ...] = ()
    """Names with their modules."""
    modules: tuple[str, ...] = ()
    """Modules whose `__all__` comes after the names."""


API = {
    "broker": ApiPage(
        "The broker",
        "What [Embedding the broker](../embedding.md) tells, call by call.",
        ("warrenmq.open", "warrenmq.Broker", "warrenmq.QueueHandle", "warrenmq.Exchange", "warrenmq.Queue", "warrenmq.Stats",
         "warrenmq.__version__"),
    ),
    "messages": ApiPage(
        "Messages",
        "What is published, what comes, and what is known of it.",
        ("warrenmq.Confirm", "warrenmq.Properties", "warrenmq.Message", "warrenmq.Delivery", "warrenmq.Consumer"),
    ),
    "durable-actors": ApiPage(
        "Durable actors",
        "Told on [a page of their own](../durable-actors.md).",
        ("warrenmq.DurableActor", "warrenmq.DurableRef"),
    ),
    "settings": ApiPage(
        "Settings",
        "All of them; what each means stands below the table. [Settings](../settings.md) has those that most users need.",
        ("warrenmq.Settings",),
    ),
    "errors": ApiPage(
        "Errors",
        "Everything that is raised on purpose is an `Error`, sorted by whose fault it is; its text is one sentence that says what to do. "
        "A `CallerError` is the caller's: the call was refused and nothing changed. A `Refusal`: the call was fine, the broker cannot take it. "
        "When the disk itself fails, the system's `OSError` comes through unchanged.",
        tuple(f"warrenmq.{name}" for name in (
            "Error", "AccessRefused", "ArgumentTypeError", "ArgumentValueError", "AskFailed", "Blocked", "BrokerClosed",
            "CommandInvalid", "CorruptFile", "DirectoryInUse", "ForkedProcess", "Nacked", "NotFound", "PreconditionFailed",
            "ProcessDied", "ResourceError", "ResourceLocked", "Returned", "SettingsError",
        )),
    ),
    "aio": ApiPage(
        "asyncio",
        "The same broker, awaited: nothing here blocks the event loop.",
        tuple(f"warrenmq.aio.{name}" for name in ("open", "Broker", "Queue", "Exchange", "Transaction", "Consumer")),
    ),
    "serving": ApiPage(
        "Serving",
        "AMQP clients and the management API, as [Serving](../serving.md) and [Operating](../operating.md) tell.",
        modules=("warrenmq.amqp", "warrenmq.management"),
    ),
    "otel": ApiPage("OpenTelemetry", "Spans of publishes and deliveries.", ("warrenmq.otel.Tracing",)),
    "testing": ApiPage(
        "Testing", "Told on [a page of its own](../testing.md).", modules=("warrenmq.testing",)
    ),
    "runtime": ApiPage(
        "The process model", "Told on [a page of its own](../runtime.md).", modules=("warrenmq.runtime",)
    ),
    "supervisors": ApiPage(
        "Supervisors", "OTP's, for Pykka actors ([how](../runtime.md#supervisors)).", modules=("warrenmq.supervisors",)
    ),
    "replay": ApiPage(
        "Replay", "Told on [a page of its own](../replay.md).", modules=("warrenmq.replay",)
    ),
    "lens": ApiPage("The lens", "Told on [a page of its own](../lens.md).", modules=("warrenmq.lens",)),
}  # fmt: skip
"""Pages of the reference of the API by their file names."""

_OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "LICENSE": "project/license.md",
    "tests/README.md": "project/tests.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
"""Files of the repository that are pages of the site, too."""

SOURCES = {
    "warrenmq/errors.py": "api/errors.md",
    "warrenmq/trace/events/__init__.py": "trace.md",
    "warrenmq/settings.py": "api/settings.md",
    "warrenmq/cli": "reference/command-line.md",
    "warrenmq/replay/rules": "reference/rules.md",
}
"""Links into the code that lead, on the site, to the page that is made of it."""

_LANGUAGES = {".py": "python", ".js": "javascript"}
_FENCE = re.compile(r"(^(?P<ticks>`{3,})[^\n]*\n.*?^(?P=ticks)$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\])\((?P<target>[^)\s#]+)(?P<heading>#[^)\s]*)?\)")


def api_names(page: ApiPage) -> list[str]:
    """The names that a page of the API has entries of."""
    return [
        *page.names,
        *(f"{module}.{name}" for module in page.modules for name in import_module(module).__all__),
    ]


def made_pages(root: str) -> dict[str, str]:
    """The text of every page that is not in docs/, by its place on the site; links are still those of the repository."""
    pages = {place: _read(root, path) for path, place in _OUTSIDE.items()}
    pages["project/license.md"] = f"# License\n\n```text\n{pages['project/license.md']}```\n"
    tables = {"errors": errors_table(), "settings": settings_table()}
    pages |= {f"api/{name}.md": _api_text(page, tables.get(name, "")) for name, page in API.items()}
    pages["reference/command-line.md"] = command_line()
    pages["reference/rules.md"] = rules_page()
    examples = _examples(root)
    pages["examples/index.md"] = _examples_text(examples)
    pages |= {_example_place(name): _example_text(name, files) for name, files in examples.items()}
    return pages


def places(root: str) -> dict[str, str]:
    """The page on the site of each file of the repository that has one."""
    found = _OUTSIDE | SOURCES
    found |= {f"examples/{name}": _example_place(name) for name in _examples(root)}
    found["examples"] = "examples/index.md"
    for where, _, names in os.walk(os.path.join(root, "docs")):
        for name in names:
            path = os.path.relpath(os.path.join(where, name), root)
            found[path] = path.removeprefix("docs/")
    found["docs"] = "README.md"
    return found


def with_links_of_the_site(text: str, page: str, there: dict[str, str]) -> str:
    """A page of the repository with its links turned into those of the site; others stay, and the build refuses them.

    `page` is its path in the repository, `there` what `places` found.
    """

    def turned(link: re.Match[str]) -> str:
        if "://" in link["target"]:
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link["target"]))
        if path not in there:
            return link[0]
        target = posixpath.relpath(there[path], posixpath.dirname(there[page]) or ".")
        return f"({target}{link['heading'] or ''})"

    parts = _FENCE.split(text)  # text, a block, its ticks, text, ...
    return "".join(
        _LINK.sub(turned, part) if n % 3 == 0 else part for n, part in enumerate(parts) if n % 3 != 2
    )


def example_pages(root: str) -> list[str]:
    """The places of the examples' pages."""
    return [_example_place(name) for name in _examples(root)]


def command_line() -> str:
    """Every verb with its help, from the parser itself."""
    parts = [
        "# The command line\n\nWhat `warrenmq VERB --help` says, of every verb.",
        *(
            f"{'#' * depth} {name}\n\n```text\n{text}```"
            for depth, name, text in _helps(cli.parser(cli.verbs()), 1)
        ),
    ]
    return "\n\n".join(parts) + "\n"


def errors_table() -> str:
    """Every public error with what it is a kind of, from the classes themselves."""
    errors = [each for name in warrenmq.__all__ if _is_error(each := getattr(warrenmq, name))]
    rows = [
        f"| `{each.__name__}` | {', '.join(f'`{base.__name__}`' for base in each.__bases__)} | {_sentence(each.__doc__)} |"
        for each in sorted(errors, key=lambda error: [base.__name__ for base in error.__mro__[::-1]])
    ]
    return "\n".join(["| error | is a | when |", "| --- | --- | --- |", *rows])


def settings_table() -> str:
    """Every setting with its default and the values that it takes, from the class itself."""
    rows = [
        f"| `{each.name}` | {'by the profile' if each.default is None else f'`{each.default}`'} | "
        f"{each.metadata['kind'].problem(...).removeprefix('must be ')} |"
        for each in fields(Settings)
    ]
    return "\n".join(["| setting | default | takes |", "| --- | --- | --- |", *rows])


def rules_page() -> str:
    """Every invariant that the replay checks, from the registry."""
    lines = [
        "# Rules",
        "",
        "What [`warrenmq replay`](../replay.md) checks in every trace, and which rows could have broken each. Rules of your own:",
        "[a tutorial](../tutorials/write-a-rule.md), [the tables](../rules.md).",
        "",
        "| rule | name | | exercised by |",
        "| --- | --- | --- | --- |",
        *(f"| {rule.id} | {rule.name} | {rule.text} | {rule.exercised.by} |" for rule in RULES.values()),
    ]
    return "\n".join([*lines, ""])


def _is_error(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def _sentence(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


def lessons_list(titles: dict[str, str]) -> str:
    """Links to the pages of lessons, by their files."""
    lines = [f"{n}. [{title}](lessons/{file})" for n, (file, title) in enumerate(titles.items(), 1)]
    return "\n".join(["", "## All lessons", "", *lines, ""])


def _helps(parser: argparse.ArgumentParser, depth: int) -> list[tuple[int, str, str]]:
    found = [] if depth == 1 else [(min(depth, 3), parser.prog, parser.format_help())]
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way to find the parsers of verbs
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for verb in dict.fromkeys(action.choices.values()):
                found += _helps(verb, depth + 1)
    return found


def _api_text(page: ApiPage, table: str) -> str:
    entries = [f"::: {name}" for name in api_names(page)]
    return "\n\n".join(filter(None, [f"# {page.title}", page.intro, table, *entries])) + "\n"


def _examples(root: str) -> dict[str, dict[str, str]]:
    """The files of each example, a program or a folder; the one that describes it comes first."""
    found = {}
    for name in sorted(os.listdir(os.path.join(root, "examples"))):
        if os.path.splitext(name)[1] in _LANGUAGES:
            found[name] = {name: _read(root, f"examples/{name}")}
        elif os.path.exists(os.path.join(root, "examples", name, "manage.py")):
            found[name] = _site_files(root, f"examples/{name}")
    return found


def _site_files(root: str, folder: str) -> dict[str, str]:
    top = os.path.join(root, folder)
    paths = [
        os.path.relpath(os.path.join(where, each), top)
        for where, _, files in os.walk(top)
        for each in files
        if each.endswith(".py")
    ]
    texts = {
        path: _read(root, f"{folder}/{path}") for path in sorted(paths, key=lambda p: (p != "manage.py", p))
    }
    return {path: text for path, text in texts.items() if text}


def _example_place(name: str) -> str:
    return f"examples/{os.path.splitext(name)[0].replace('_', '-')}.md"


def _examples_text(examples: dict[str, dict[str, str]]) -> str:
    lines = [
        f"- [{name}]({posixpath.basename(_example_place(name))}): {_first_sentence(next(iter(files.values())))}"
        for name, files in examples.items()
    ]
    return "\n".join(["# Examples", "", "Whole programs; each runs in the tests.", "", *lines, ""])


def _example_text(name: str, files: dict[str, str]) -> str:
    parts = [
        f'````{_LANGUAGES[os.path.splitext(file)[1]]} title="{file}"\n{code}````\n'
        for file, code in files.items()
    ]
    return "\n".join([f"# {name}", "", *parts])


def _first_sentence(code: str) -> str:
    if code.startswith("/"):
        return code.partition("\n")[0].strip("/* ")
    return (ast.get_docstring(ast.parse(code)) or "").partition("\n\n")[0].replace("\n", " ")


def _read(root: str, path: str) -> str:
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()
