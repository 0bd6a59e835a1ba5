"""Who may import whom (docs/architecture.md): the direction in which a message walks, and no way back."""

import pytest

from tests.support.source_tree import imports, modules

BASE = {"checks", "errors", "log", "settings", "forks"}
STORAGE = BASE | {"seams", "trace", "erlang", "storage"}  # AMQP's tables are read where RabbitMQ's terms are
ACTORS = STORAGE | {"runtime", "routing", "supervision", "actors"}
TREE = ACTORS | {"tree"}
FACE = TREE | {"face"}

MAY_IMPORT = {
    "errors": set(),
    "forks": set(),  # whatever has a thread, a lock or a descriptor tells it
    "log": set(),
    "checks": {"errors"},  # of what callers pass
    "settings": {"checks", "errors"},
    "seams": set(),  # what the seams look like, for those who are handed one
    "trace": {"errors", "forks", "seams", "trace"},
    "erlang": {"errors", "erlang"},  # what RabbitMQ wrote, as bytes and plain values
    "storage": STORAGE,
    "inspect": BASE | {"seams", "trace", "storage", "erlang", "inspect"},  # reads directories, knows no actor
    "routing": BASE | {"routing"},
    "runtime": {"errors", "forks", "log", "seams", "trace", "runtime"},  # knows no RabbitMQ
    "supervision": {"checks", "errors", "log", "seams", "trace", "runtime", "supervision"},  # nor does this
    "actors": ACTORS,
    "tree": TREE,
    "face": FACE,
    "replay": {"errors", "trace", "erlang", "replay"},  # RabbitMQ's own traces are written in Erlang's terms
    "bench": FACE | {"bench"},
    "mend": FACE | {"erlang", "inspect", "mend"},  # moves and mends directories, through a broker where it publishes
    "amqp": FACE | {"erlang", "amqp"},  # clients over the network, at a broker
    "cli": FACE | {"amqp", "bench", "replay", "cli", "inspect", "mend"},
    "__main__": {"cli"},
}
"""Rooms; every module that lies directly in warrenmq/ is `face`, but for those that have a line of their own."""

ROOM_OF = {
    "warrenmq.runtime.seams": "seams",
    "warrenmq.supervisors": "supervision",  # OTP's supervisor, for everybody's actors
    "warrenmq.supervisors.broker_sup": "tree",  # which actors this broker has
}


def room(name):
    """warrenmq.storage.disk -> storage; warrenmq.broker -> face."""
    while name != "warrenmq":
        if name in ROOM_OF:
            return ROOM_OF[name]
        parent, _, last = name.rpartition(".")
        if parent == "warrenmq" and last in MAY_IMPORT:
            return last
        name = parent
    return "face"


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
        if room(module_of(each.name)) not in MAY_IMPORT[room(name)]
    ]
    assert not wrong, f"{name} ({room(name)}) imports what it must not know"


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
