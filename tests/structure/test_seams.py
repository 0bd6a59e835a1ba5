"""Actors and storage reach the outside world through the runtime, the disk and the trace only.

Everything that makes a run repeatable under simulation stands on this: one forgotten `time.time()` and the same seed
is no longer the same run.
"""

import ast

import pytest

from tests.support.source_tree import imports, modules

CLOSED = {
    "_thread",
    "threading",
    "time",
    "random",
    "secrets",
    "uuid",
    "socket",
    "subprocess",
    "asyncio",
    "queue",
}
"""Modules whose use means an own thread, clock, die or line to the outside."""

SEAM = {
    "warrenmq.storage.disk",  # is the seam: the one place that calls the operating system
    "warrenmq.storage.owner_lock",  # and this: its lock on a directory, and who holds it
    "warrenmq.storage.memory",  # and this: how much memory there is
}
LOCKS = {"threading.Lock", "threading.RLock"}
"""Tables that several actors share (Erlang's ETS) have a lock; nobody waits while holding one."""
HARMLESS_OF_OS = {"path", "fspath", "PathLike", "strerror"}


def behind_the_seams():
    rooms = ("warrenmq.storage", "warrenmq.routing", "warrenmq.actors", "warrenmq.supervisors")
    return [name for name in modules() if name.startswith(rooms) and name not in SEAM]


@pytest.mark.parametrize("name", behind_the_seams())
def test_no_module_behind_the_seams_imports_a_clock_a_thread_or_a_die(name):
    wrong = [
        f"line {each.line}: {each.name}"
        for each in imports(modules()[name])
        if each.name.split(".")[0] in CLOSED and each.name not in LOCKS and not each.for_types_only
    ]
    assert not wrong


@pytest.mark.parametrize("name", behind_the_seams())
def test_no_module_behind_the_seams_opens_a_file_or_asks_the_system(name):
    wrong = []
    for node in ast.walk(modules()[name].tree):
        match node:
            case ast.Call(func=ast.Name(id="open" | "input" | "print" as called)):
                wrong.append(f"line {node.lineno}: {called}()")
            case ast.Attribute(value=ast.Name(id="os"), attr=attribute) if attribute not in HARMLESS_OF_OS:
                wrong.append(f"line {node.lineno}: os.{attribute}")
            case ast.ImportFrom(module="os" | "pathlib"):
                wrong.append(f"line {node.lineno}: from {node.module}")
    assert not wrong


ORDER_OF_CHANCE = {"id", "hash"}


@pytest.mark.parametrize("name", behind_the_seams())
def test_nothing_depends_on_an_address_or_a_hash(name):
    """`id()` and `hash()` of bytes and strings differ from run to run."""
    wrong = [
        f"line {node.lineno}: {node.func.id}()"
        for node in ast.walk(modules()[name].tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ORDER_OF_CHANCE
    ]
    assert not wrong
