"""Who may import whom (docs/architecture.md): the direction in which a message walks, and no way back."""

import pytest

from tests.support.source_tree import imports, modules

BASE = {"errors", "settings"}
STORAGE = BASE | {"trace", "storage"}
ACTORS = STORAGE | {"runtime", "routing", "actors"}
SUPERVISORS = ACTORS | {"supervisors"}
FACE = SUPERVISORS | {"face"}

MAY_IMPORT = {
    "errors": set(),
    "settings": {"errors"},
    "trace": {"errors", "trace"},
    "storage": STORAGE,
    "routing": BASE | {"routing"},
    "runtime": {"errors", "trace", "runtime"},  # knows no RabbitMQ
    "actors": ACTORS,
    "supervisors": SUPERVISORS,
    "face": FACE,
    "replay": {"errors", "trace", "replay"},
    "bench": FACE | {"bench"},
    "cli": FACE | {"bench", "replay", "cli"},
    "__main__": {"cli"},
}
"""Rooms; every module that lies directly in warrenmq/ is `face`, but for those that have a line of their own."""


def room(name):
    """warrenmq.storage.disk -> storage; warrenmq.broker -> face."""
    parts = name.split(".")
    second = parts[1] if len(parts) > 1 else ""
    return second if second in MAY_IMPORT else "face"


def module_of(name):
    """The module that an imported name is or lies in."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name


def ours(module):
    return [each for each in imports(module) if each.name == "warrenmq" or each.name.startswith("warrenmq.")]


@pytest.mark.parametrize("name", modules())
def test_a_room_imports_only_rooms_below_it(name):
    wrong = [
        f"line {each.line}: {each.name}"
        for each in ours(modules()[name])
        if room(module_of(each.name)) not in MAY_IMPORT[room(name)] and not is_the_bare_package(each)
    ]
    assert not wrong, f"{name} ({room(name)}) imports what it must not know"


def is_the_bare_package(each):
    """`import warrenmq.x.y` also names the package; only what is taken from it counts."""
    return each.name == "warrenmq" and each.for_types_only


@pytest.mark.parametrize("name", modules())
def test_imports_are_absolute_and_by_import_name(name):
    for each in imports(modules()[name]):
        assert not each.name.startswith("."), f"{name} line {each.line} is relative"
        assert each.name.split(".")[0] not in {"actors", "supervisors"}, f"{name} line {each.line}"


def test_modules_import_each_other_in_no_circle():
    edges = {
        name: {module_of(each.name) for each in ours(module) if not each.for_types_only and not each.deferred}
        - {name}
        for name, module in modules().items()
    }
    done, path = set(), []

    def visit(name):
        if name in done:
            return
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        path.append(name)
        for target in sorted(edges[name]):
            visit(target)
        path.pop()
        done.add(name)

    for name in edges:
        visit(name)
