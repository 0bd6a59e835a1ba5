"""The site of the documentation: its navigation has every page, its reference every public name.

`.ci/run` builds it, where a link that leads nowhere fails."""

import ast
import re
from dataclasses import fields
from importlib import import_module
from itertools import pairwise

import pytest
import yaml

import warrenmq
import warrenmq.errors
from tests.support.source_tree import ROOT, modules, pages, text_of
from tools.site_pages import (
    API,
    api_names,
    command_line,
    errors_table,
    made_pages,
    places,
    rules_page,
    settings_table,
    with_links_of_the_site,
)
from warrenmq.replay.rules.registry import RULES
from warrenmq.settings import Settings


class Reader(yaml.SafeLoader):
    """mkdocs.yml names a Python function, which is of no interest here."""


Reader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def navigation():
    def leaves(entry):
        match entry:
            case str():
                return [entry]
            case list():
                return [each for one in entry for each in leaves(one)]
            case dict():
                return [each for one in entry.values() for each in leaves(one)]

    return leaves(yaml.load(text_of("mkdocs.yml"), Reader)["nav"])


def test_the_navigation_has_each_page_once_and_nothing_else():
    made = [place for place in made_pages(ROOT) if not place.startswith("examples/")]
    docs = [page.removeprefix("docs/") for page in pages() if page.startswith("docs/")]
    assert sorted(navigation()) == sorted([*docs, *made, "examples/index.md"])


@pytest.mark.parametrize("name", warrenmq.__all__)
def test_every_public_name_is_in_the_reference(name):
    assert f"warrenmq.{name}" in {each for page in API.values() for each in api_names(page)}


def test_every_entry_of_the_reference_exists():
    for page in API.values():
        for name in api_names(page):
            module, _, last = name.rpartition(".")
            assert hasattr(import_module(module), last), name


def test_every_package_that_says_what_is_public_and_is_told_of_in_docs_is_in_the_reference():
    """Packages inside have `__all__`, too; what a page imports is for users."""
    told = "".join(text_of(page) for page in pages())
    listed = {name.rpartition(".")[0] for page in API.values() for name in api_names(page)}
    imported = {
        node.module
        for block in told.split("```python\n")[1:]
        for node in ast.walk(ast.parse(block.partition("```")[0]))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    packages = {name for name, module in modules().items() if module.is_package}
    assert sorted(each for each in imported & packages if each not in listed) == []


def test_every_verb_has_its_help_on_the_page_of_commands():
    page = command_line()
    for verb in ("publish", "trace what-if", "ctl", "serve"):
        assert f" warrenmq {verb}\n\n```text\nusage: warrenmq {verb} " in page, verb


def test_tables_have_each_error_with_its_kind_each_setting_with_its_values_and_each_rule_with_its_sentence():
    assert (
        "| `ForkedProcess` | `BrokerClosed` | The broker belongs to the process that this one was forked from. |"
        in errors_table()
    )
    errors = {name for name, each in vars(warrenmq.errors).items() if isinstance(each, type)} & set(
        warrenmq.__all__
    )
    assert [name for name in errors if f"\n| `{name}` | " not in errors_table()] == []
    assert "| `heartbeat` | `60` | a whole number from 0 to 65535 |" in settings_table()
    assert [each.name for each in fields(Settings) if f"\n| `{each.name}` | " not in settings_table()] == []
    assert [
        rule.id
        for rule in RULES.values()
        if f"\n| {rule.id} | {rule.name} | {rule.text} | " not in rules_page()
    ] == []


ITEM = re.compile(r"( *)(?:[-*]|\d+\.) ")


@pytest.mark.parametrize("page", pages())
def test_lists_and_tables_are_lists_and_tables_on_the_site_too(page):
    """Python's Markdown wants an empty line before them, and four columns for a list in a list; GitHub does without."""
    wrong = []
    lines = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL).split("\n")
    for before, line in pairwise(lines):
        item = ITEM.match(line)
        follows_text = before and not before.startswith(("|", " ")) and not ITEM.match(before)
        if (follows_text and (item or line.startswith("|"))) or (item and len(item[1]) % 4):
            wrong.append(line)
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "page", "turned"),
    [
        ("[a](docs/queue.md)", "README.md", "[a](queue.md)"),
        ("[a](../README.md)", "docs/runtime.md", "[a](index.md)"),
        ("[a](../queue.md)", "docs/reference/classic-queue.md", "[a](../queue.md)"),
        ("[a](../examples/)", "docs/embedding.md", "[a](examples/index.md)"),
        ("[a](../examples/gunicorn_app.py)", "docs/embedding.md", "[a](examples/gunicorn-app.md)"),
        ("[a](../docs/runtime.md)", "benchmarks/README.md", "[a](../runtime.md)"),
        ("[a](#) [b](https://example.org/docs/queue.md)", "README.md", None),
        ("[a](../pyproject.toml)", "docs/runtime.md", None),
        ("```python\nx = a[0](README.md)\n```\n", "docs/runtime.md", None),
        ("```sh\na\n```\n[a](queue.md) `x`\n```sh\nb\n```\n[a](LICENSE)", "README.md",
         "```sh\na\n```\n[a](queue.md) `x`\n```sh\nb\n```\n[a](project/license.md)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("heading", ["", "#a-heading"])
def test_links_between_files_become_links_of_the_site(text, page, turned, heading):
    text, turned = (each.replace(")", f"{heading})") for each in (text, turned or text))
    assert with_links_of_the_site(text, page, places(ROOT)) == turned
