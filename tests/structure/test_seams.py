"""Actors and storage reach the outside world through the runtime, the disk and the trace only.

Everything that makes a run repeatable under simulation stands on this: one forgotten `time.time()` and the same seed
is no longer the same run.
"""

import ast

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
    "warrenmq.seams.real_disk",  # is the seam: the one place that calls the operating system
    "warrenmq.directory.owner_lock",  # and this: its lock on a directory, and who holds it
    "warrenmq.seams.descriptors",  # and this: how many files may be open
    "warrenmq.seams.memory",  # and this: how much memory there is
    "warrenmq.seams.blocking",  # and this: which scheduler runs the calling thread
}
LOCKS = {"threading.Lock", "threading.RLock"}
"""Tables that several actors share (Erlang's ETS) have a lock; nobody waits while holding one."""
HARMLESS_OF_OS = {"path", "fspath", "PathLike", "strerror"}


def behind_the_seams():
    rooms = (
        "actors", "supervisors", "routing", "seams", "commit_log", "directory", "message", "message_store", "queue_index", "backing_queue", "queue", "node", "vhost",
    )  # fmt: skip
    return [
        name
        for name in modules()
        if name.split(".")[1:2] and name.split(".")[1] in rooms and name not in SEAM
    ]


def test_no_module_behind_the_seams_imports_a_clock_a_thread_or_a_die():
    wrong = [
        f"{name} line {each.line}: {each.name}"
        for name in behind_the_seams()
        for each in imports(modules()[name])
        if each.name.split(".")[0] in CLOSED and each.name not in LOCKS and not each.for_types_only
    ]
    assert not wrong


def test_no_module_behind_the_seams_opens_a_file_or_asks_the_system():
    wrong = []
    for name in behind_the_seams():
        for node in ast.walk(modules()[name].tree):
            match node:
                case ast.Call(func=ast.Name(id="open" | "input" | "print" as called)):
                    wrong.append(f"{name} line {node.lineno}: {called}()")
                case ast.Attribute(value=ast.Name(id="os"), attr=attribute) if (
                    attribute not in HARMLESS_OF_OS
                ):
                    wrong.append(f"{name} line {node.lineno}: os.{attribute}")
                case ast.ImportFrom(module="os" | "pathlib"):
                    wrong.append(f"{name} line {node.lineno}: from {node.module}")
    assert not wrong


ORDER_OF_CHANCE = {"id", "hash"}


def test_nothing_depends_on_an_address_or_a_hash():
    """`id()` and `hash()` of bytes and strings differ from run to run."""
    wrong = [
        f"{name} line {node.lineno}: {node.func.id}()"
        for name in behind_the_seams()
        for node in ast.walk(modules()[name].tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ORDER_OF_CHANCE
    ]
    assert not wrong
