"""The writes that FencedFile guards itself take the fence's lock and refuse as Fence.guard does."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

import pytest

from warrenmq.runtime.fence import Fence
from warrenmq.seams.disk import write_in_turn
from warrenmq.seams.fenced_disk import FencedDisk, FencedFile

WRITES = {"append": (b"x",), "pwrite": (b"x", 7), "truncate": (3,)}


class Witness:
    """A lock and a file that note what happens to them."""

    path = "witness"

    def __init__(self, *, fails: bool) -> None:
        self.log: list[Any] = []
        self.fails = fails

    def acquire(self) -> None:
        self.log.append("acquire")

    def release(self) -> None:
        self.log.append("release")

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        def operation(*arguments: object) -> None:
            self.log.append((name, *arguments))
            if self.fails:
                raise OSError

        return operation


def outcome(write: str, *, cut: bool, fails: bool, by_hand: bool) -> list[Any]:
    """The state of lock and file, and the error: of a FencedFile, or of a write under `guard`."""
    witness = Witness(fails=fails)
    fence = Fence(cast("Any", witness))
    fence.cut = cut
    file = cast("Any", witness)
    try:
        if by_hand:
            with fence.guard():
                getattr(file, write)(*WRITES[write])
        else:
            getattr(FencedFile(file, fence), write)(*WRITES[write])
    except Exception as error:
        witness.log.append(repr(error))
    return witness.log


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_takes_the_lock_and_refuses_as_guard_does(write: str, cut: bool, fails: bool) -> None:
    fenced = outcome(write, cut=cut, fails=fails, by_hand=False)
    assert fenced == outcome(write, cut=cut, fails=fails, by_hand=True)
    assert (write, *WRITES[write]) in fenced or cut


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_writes_to_several_files_take_the_lock_once(cut: bool, fails: bool) -> None:
    witness = Witness(fails=fails)
    fence = Fence(cast("Any", witness))
    fence.cut = cut
    file = cast("Any", witness)
    fenced = FencedFile(file, fence)
    for write, named in ((FencedDisk(file, fence).write_files, fenced), (write_in_turn, file)):
        if write is write_in_turn:
            witness.log.append("by hand")
        try:
            with fence.guard() if write is write_in_turn else nullcontext():
                write([(cast("Any", named), b"x", 7), (cast("Any", named), b"y", None)])
        except Exception as error:
            witness.log.append(repr(error))
    middle = witness.log.index("by hand")
    assert witness.log[:middle] == witness.log[middle + 1 :]
    assert (("pwrite", b"x", 7) in witness.log) is not cut
