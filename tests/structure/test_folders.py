"""The folders of the repository and of the package are each computed in one place: nothing else counts folders up from
its own file.
"""

import ast

import pytest

from tests.support.source_tree import ROOT, tracked_files
from warrenmq.location import HOME

THE_ONE_PLACE = {
    "warrenmq/location.py",
    "benchmarks/__init__.py",
    "tests/support/source_tree.py",
    # Started by their paths, before anything of ours can be imported:
    "examples/run_demo.py",
    "tests/run.py",
    "tools/project_venv.py",
    "tools/node_client.py",
}


def counts_up(node):
    """True of the folder above the folder of __file__, or one further up."""
    return _above(node) >= 2


def _above(node):
    match node:
        case ast.Subscript(
            value=ast.Attribute(value=value, attr="parents"), slice=ast.Constant(value=int(n))
        ):
            return _above(value) + n + 1 if _is_file(value) else 0
        case ast.Attribute(value=value, attr="parent"):
            return _above(value) + 1 if _is_file(value) else 0
        case ast.Call(func=ast.Attribute(attr="dirname"), args=[value]):
            return _above(value) + 1 if _is_file(value) else 0
        case ast.Call(func=ast.Attribute(value=value, attr="resolve" | "absolute")):
            return _above(value)
    return 0


def _is_file(node):
    return any(
        isinstance(each, ast.Name | ast.Attribute)
        and getattr(each, "id", getattr(each, "attr", "")) == "__file__"
        for each in ast.walk(node)
    )


def test_no_other_file_counts_folders_up_from_its_own():
    wrong = []
    for path in tracked_files() or ():
        if path.endswith(".py") and path not in THE_ONE_PLACE:
            with open(f"{ROOT}/{path}", encoding="utf-8") as file:
                text = file.read()
            if "__file__" in text:  # parsing them all takes seconds
                nodes = ast.walk(ast.parse(text))
                wrong += [f"{path} line {node.lineno}" for node in nodes if counts_up(node)]
    assert not wrong


def test_the_places_are_right():
    assert str(HOME) == ROOT
    assert (HOME / "warrenmq" / "location.py").exists()


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        ("Path(__file__).parents[2] / 'docs'", True), ("Path(__file__).resolve().parent.parent", True),
        ("os.path.dirname(os.path.dirname(os.path.abspath(__file__)))", True), ("Path(warrenmq.__file__).parents[1]", True),
        ("Path(__file__).with_name('recorded')", False), ("os.path.dirname(__file__)", False), ("path.parents[3]", False),
    ],
)  # fmt: skip
def test_counting_up_is_found(code, counts):
    assert any(map(counts_up, ast.walk(ast.parse(code)))) is counts
