"""The memory that the operating system reports, from file trees that a test lays out."""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from warrenmq.node.memory_use import is_memory_short, memory_limit, memory_ratio, total_memory
from warrenmq.seams.memory import RealMemory
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedMemory

PAGE = resource.getpagesize()
MIB = 1 << 20
NO_LIMIT_V1 = 9223372036854771712


def system(tmp_path: Path, files: dict[str, str]) -> RealMemory:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return RealMemory(str(tmp_path))


def test_used_is_the_resident_set() -> None:
    used = RealMemory().used()
    assert used is not None
    assert used > 5 * MIB
    with mmap.mmap(-1, 64 * MIB) as ballast:
        ballast[:: resource.getpagesize()] = bytes(64 * MIB // resource.getpagesize())
        grown = RealMemory().used()
    assert grown is not None
    assert used + 60 * MIB < grown < used + 80 * MIB


def test_used_is_the_second_number_of_statm_in_pages(tmp_path: Path) -> None:
    assert system(tmp_path, {"proc/self/statm": "90000 1234 500 1 0 9000 0\n"}).used() == 1234 * PAGE


def test_without_proc_the_resident_set_is_what_ps_says(tmp_path: Path) -> None:
    used = RealMemory(str(tmp_path)).used()
    assert used is None or used > 5 * MIB


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_without_a_descriptor_the_resident_set_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    memory = system(tmp_path, {"proc/self/statm": "9 7 5"})

    def refused(*_: Any, **__: Any) -> bytes:
        raise OSError(number, "Too many open files")

    assert memory.used() == 7 * PAGE
    with monkeypatch.context() as short:
        short.setattr(Path, "read_bytes", refused)
        short.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
        assert memory.used() == 7 * PAGE
    system(tmp_path, {"proc/self/statm": "9 8 5"})
    assert memory.used() == 8 * PAGE


def test_the_total_is_no_more_than_the_machine_has(tmp_path: Path) -> None:
    machine = RealMemory(str(tmp_path)).total()
    assert 0 < RealMemory().total() <= machine


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        pytest.param({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": f"{64 * MIB}\n"}, 64 * MIB,
                     id="v2"),
        pytest.param({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
                      "sys/fs/cgroup/a/memory.max": f"{32 * MIB}\n"}, 32 * MIB, id="v2, the group above"),
        pytest.param({"proc/self/cgroup": "0::/docker/123\n", "sys/fs/cgroup/memory.max": f"{16 * MIB}\n"}, 16 * MIB,
                     id="v2, a path of the host inside a container"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, None, id="v2 without limit"),
        pytest.param({"proc/self/cgroup": "4:memory:/x\n1:cpu:/\n0::/\n",
                      "sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{48 * MIB}\n",
                      "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{NO_LIMIT_V1}\n"}, 48 * MIB, id="v1"),
        pytest.param({"proc/self/cgroup": "4:cpu,memory:/\n",
                      "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{NO_LIMIT_V1}\n"}, None, id="v1 without limit"),
        pytest.param({"proc/self/cgroup": "1:cpu:/\n"}, None, id="no memory controller"),
    ],
)  # fmt: skip
def test_a_containers_limit_is_respected(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    machine = RealMemory(str(tmp_path / "nothing")).total()
    assert system(tmp_path, files).total() == (machine if limit is None else limit)


def test_the_address_space_that_the_process_may_have_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (40 * MIB, resource.RLIM_INFINITY))
    assert RealMemory(str(tmp_path)).total() == 40 * MIB


def test_the_override_is_taken_for_the_total() -> None:
    memory = SimulatedMemory(total_bytes=8000)
    assert total_memory(Settings(), memory) == 8000
    assert total_memory(Settings(total_memory_available_override_value=3000), memory) == 3000


@pytest.mark.parametrize(
    ("watermark", "limit"), [(0.4, 400), (0.3339, 333), (0.0, 0), (1.0, 1000), (300, 300), (3000, 1000)]
)
def test_the_limit_is_a_share_or_bytes_and_never_more_than_there_is(watermark: float, limit: int) -> None:
    assert memory_limit(watermark, 1000) == limit


@pytest.mark.parametrize(
    ("used", "limit", "ratio"),
    [(100, 400, 0.25), (500, 400, 1.25), (100, 0, math.inf), (None, 400, 0.0), (100, None, 0.0)],
)
def test_the_ratio_is_used_of_limit(used: int | None, limit: int | None, ratio: float) -> None:
    assert memory_ratio(used, limit) == ratio


@pytest.mark.parametrize(
    ("used", "limit", "due"), [(401, 400, True), (400, 400, False), (1, 0, True), (None, 0, False)]
)
def test_the_memory_alarm_is_due_above_the_limit(used: int | None, limit: int, due: bool) -> None:
    assert is_memory_short(used, limit) is due


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="the C library is not glibc")
def test_threads_share_one_heap() -> None:
    found = subprocess.run([sys.executable, "-c", _HEAPS], capture_output=True, text=True, check=True)
    assert found.stderr.count("Arena ") == 1


_HEAPS = """
import ctypes, threading
from warrenmq.seams.memory import have_one_heap

have_one_heap()
meeting = threading.Barrier(4)

def allocate():
    meeting.wait()
    bytes(100_000)
    meeting.wait()

threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.CDLL(None).malloc_stats()
"""
