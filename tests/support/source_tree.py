"""The project's own sources and pages, for tests that hold its structure."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
from typing import NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HOMES = {"warrenmq": "warrenmq", "warrenmq.actors": "actors", "warrenmq.supervisors": "supervisors"}
"""Import names and the folders where their files are."""


class Module(NamedTuple):
    name: str
    path: str
    tree: ast.Module
    lines: int

    @property
    def is_package(self):
        return os.path.basename(self.path) == "__init__.py"


class Import(NamedTuple):
    """One name that a module imports: `warrenmq.seams.disk`, or `warrenmq.seams.disk.Disk` of a from-import."""

    name: str
    line: int
    for_types_only: bool
    deferred: bool
    """Inside a function: done when it is called, so it makes no circle at import."""


@functools.cache
def modules():
    """Every module of warrenmq by its import name."""
    found = {}
    for home, folder in HOMES.items():
        top = os.path.join(ROOT, folder)
        for where, folders, files in os.walk(top):
            # lessons are found by their folders, 01-one-message and so on: no part of the package's code
            folders[:] = sorted(name for name in folders if name != "__pycache__" and "-" not in name)
            for file in sorted(files):
                if file.endswith(".py"):
                    path = os.path.join(where, file)
                    name = ".".join([home, *os.path.relpath(path, top)[:-3].split(os.sep)])
                    name = name.removesuffix(".__init__")
                    found[name] = _parse(name, path)
    return found


@functools.cache
def imports(module):
    """The names that a module imports, anywhere in the file."""
    return list(_imports(module.tree, for_types_only=False, deferred=False))


def tracked_files():
    """The paths that git tracks, relative to the root; None outside a checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    return (
        [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name] if listed.returncode == 0 else None
    )


def _parse(name, path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return Module(name, path, ast.parse(text, path), text.count("\n"))


def _imports(node, for_types_only, deferred):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, for_types_only, deferred)
        elif isinstance(child, ast.ImportFrom):
            for alias in child.names:
                name = f"{'.' * child.level}{child.module or ''}.{alias.name}"
                yield Import(name, child.lineno, for_types_only, deferred)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _imports(child, True, deferred)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(child, for_types_only, deferred or inside)


PART = re.compile(
    r'^(?:#+ (?P<heading>[^\n]+)|```(?P<language>\w*)(?: title="(?P<title>[^"\n]+)")?\n(?P<code>.*?)^```)$',
    re.MULTILINE | re.DOTALL,
)
TUTORIALS = "docs/tutorials/"
"""Pages there are typed from top to bottom (tests/examples/test_tutorials.py); on others each block stands alone."""


class Block(NamedTuple):
    page: str
    heading: str
    nth: int
    """Under its heading, among those of its language."""
    language: str
    code: str

    def __str__(self):
        return f"{self.page}: {self.heading}, {self.language} {self.nth}"


def pages():
    """The pages for people, relative to the root."""
    found = [
        os.path.relpath(os.path.join(where, name), ROOT)
        for where, _, names in os.walk(os.path.join(ROOT, "docs"))
        for name in names
        if name.endswith(".md")
    ]
    return ["README.md", *sorted(found)]


def text_of(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def anchors(page):
    """The targets of links into a page: its headings, as GitHub turns them into anchors, and its own anchors."""
    text = text_of(page)
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings} | set(
        re.findall(r'<a id="([\w-]+)">', text)
    )


def blocks(language):
    """Every fenced block of a language that stands alone, in all pages."""
    found = []
    for page in pages():
        if page.startswith(TUTORIALS):
            continue
        heading, seen = "", {}
        for part in PART.finditer(text_of(page)):
            if part["heading"]:
                heading = part["heading"]
            elif part["language"] == language:
                seen[heading] = seen.get(heading, 0) + 1
                found.append(Block(page, heading, seen[heading], language, part["code"]))
    return found
