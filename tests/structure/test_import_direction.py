"""Directions of imports between packages (docs/architecture.md), and no circles."""

from collections import defaultdict
from functools import cache

import pytest

from tests.support.source_tree import imports, modules

BASE = {"checks", "errors", "log", "patterns", "settings", "forks"}
STATES = BASE | {"seams", "trace", "commit_log", "directory", "message"}
"""The rooms below the parts of the store and of a queue."""
QUEUES = STATES | {"queue_index", "backing_queue", "queue"}
ACTORS = QUEUES | {"runtime", "routing", "supervision", "message_store", "node", "vhost"}
FACE = ACTORS | {"actors.node", "actors.store", "actors.queue", "actors.sending", "actors.vhost", "tree"}

MAY_IMPORT = {
    "errors": set(),
    "forks": set(),
    "signals": set(),
    "log": set(),
    "location": set(),
    "accepting": {"log"},
    "version": {"location"},
    "terminal": set(),
    "checks": {"errors"},
    "patterns": set(),
    "settings": {"checks", "errors"},
    "seams": {"errors", "forks"},
    "trace": {"errors", "forks", "seams", "signals"},
    "commit_log": {"errors", "seams"},  # knows files and bytes, not what they mean
    "erlang": {"errors"},  # what RabbitMQ wrote, as bytes and plain values
    "routing": {"errors"},
    "runtime": {"checks", "errors", "forks", "log", "seams", "signals", "trace"},  # knows no RabbitMQ
    "supervision": {"checks", "errors", "log", "seams", "trace", "runtime"},  # nor does this
    # states and formats: no process, no thread, no clock
    "directory": BASE | {"seams", "commit_log"},
    "message": BASE | {"erlang", "seams"},  # AMQP's tables are read where RabbitMQ's terms are
    "message_store": STATES,  # knows no queue_index
    "queue_index": STATES,  # knows no message_store
    "backing_queue": STATES | {"queue_index"},
    "queue": STATES | {"erlang", "queue_index", "backing_queue"},  # no runtime: a value
    "node": BASE | {"seams"},
    "vhost": STATES | {"queue_index", "queue", "message_store"},
    # processes
    "actors.node": ACTORS,
    "actors.store": ACTORS - QUEUES | STATES,
    "actors.sending": ACTORS,  # below the others: nothing in actors/ may need what needs it
    "actors.queue": ACTORS | {"erlang", "actors.node", "actors.store", "actors.sending"},
    "actors.vhost": ACTORS | {"actors.queue", "actors.sending", "actors.store"},
    "tree": FACE - {"tree"},
    # faces
    "broker": FACE | {"signals"},
    "opening": FACE | {"broker", "shared"},
    "aio": FACE | {"broker", "opening"},
    "durable_actors": FACE | {"broker"},
    "actors": set(),
    "simulate": FACE | {"amqp", "broker", "testing", "replay"},  # runs the broker on simulated machines and judges it
    "testing": FACE | {"broker", "amqp"},  # simulated machines, for users' tests as well as ours
    "root": FACE | {"broker", "opening", "version", "durable_actors"},
    "remote": {"errors"},
    "amqp": FACE | {"accepting", "erlang", "broker"},  # clients over the network, at a broker
    "management": FACE | {"accepting", "amqp", "broker", "version"},  # the HTTP API of an AMQP server
    "shared": FACE | {"broker", "amqp", "terminal"},  # many processes, one directory
    "otel": FACE | {"broker", "version"},  # spans, for programs that have OpenTelemetry
    "bench": FACE | {"broker", "root", "terminal"},
    # readers
    "inspect": STATES | {"erlang", "message_store", "queue_index", "routing", "vhost", "terminal"},  # reads directories, knows no actor
    "mend": FACE | {"erlang", "inspect", "broker", "remote", "terminal"},  # moves and mends directories
    "rabbit_logs": {"errors", "erlang", "latency", "terminal"},
    "replay": {"errors", "trace", "latency", "rabbit_logs", "terminal", "location", "version"},
    "lens": FACE | {"accepting", "broker", "inspect", "replay", "terminal", "testing"},  # the drive runs the real actors in the simulation; the inspector reads bytes
    "cli": FACE | {"amqp", "bench", "broker", "inspect", "lens", "management", "mend", "rabbit_logs", "remote", "replay", "simulate", "root", "shared", "version", "terminal"},
    "__main__": {"cli"},
}  # fmt: skip
"""For each package, the others that it may import."""

ROOM_OF = {
    "warrenmq": "root",
    "warrenmq.runtime.seams": "seams",
    "warrenmq.supervisors": "supervision",  # OTP's supervisor, for everybody's actors
    "warrenmq.supervisors.broker_sup": "tree",  # which actors this broker has
}


def room(name):
    """warrenmq.seams.disk -> seams; warrenmq.actors.queue.process -> actors.queue."""
    if name in ROOM_OF:
        return ROOM_OF[name]
    parts = name.split(".")
    if parts[1] == "supervisors":
        return "supervision"
    return ".".join(parts[1:3]) if parts[1] == "actors" and len(parts) > 2 else parts[1]


def module_of(name):
    """The module that an imported name is or lies in."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name


@cache
def edges():
    """Each module with those that it imports, also for types alone and inside functions."""
    return {
        name: {
            module_of(each.name)
            for each in imports(module)
            if each.name == "warrenmq" or each.name.startswith("warrenmq.")
        }
        - {name}
        for name, module in modules().items()
    }


def circles(graph):
    """The strongly connected parts of more than one node (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.append(sorted(part))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def test_a_package_imports_only_what_the_plan_allows():
    wrong = [
        f"{name} imports {target}"
        for name, targets in edges().items()
        for target in sorted(targets)
        if room(target) != room(name) and room(target) not in MAY_IMPORT[room(name)]
    ]
    assert not wrong


def test_imports_are_absolute_and_by_import_name():
    wrong = [
        f"{name} line {each.line}: {each.name}"
        for name, module in modules().items()
        for each in imports(module)
        if each.name.startswith(".") or each.name.split(".")[0] in {"actors", "supervisors"}
    ]
    assert not wrong


def test_no_modules_import_each_other_in_a_circle():
    assert circles({name: targets - {"warrenmq"} for name, targets in edges().items()}) == []


def test_no_packages_import_each_other_in_a_circle():
    rooms = defaultdict(set)
    for name, targets in edges().items():
        rooms[room(name)] |= {room(target) for target in targets} - {room(name)}
    for targets in list(rooms.values()):
        for target in targets:
            rooms[target] |= set()
    assert circles(rooms) == []


@pytest.mark.parametrize(
    ("graph", "found"), [({"a": {"b"}, "b": set()}, []), ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, [["b", "c"]])]
)
def test_circles_are_found(graph, found):
    assert circles(graph) == found
