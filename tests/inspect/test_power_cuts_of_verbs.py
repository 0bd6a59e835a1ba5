"""The power fails while `repair` or `compact` works: nothing that could be read is lost, and the next run comes to the same end."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.inspect.mortal_disk import Cut
from tests.inspect.test_compact_offline import ours
from tests.inspect.test_mended_directories import C09, salvaged, variant
from tests.inspect.unsafe_disk import Unsafe, copied
from tests.support import golden
from tests.support.directories import contents, given_back
from warrenmq.mend.compact import compact
from warrenmq.mend.repair import repair


def bodies(where: Path) -> dict[str, bytes]:
    return {path: data for path, data in contents(where).items() if path.endswith(".rdq")}


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("name", ["idx-cut-in-embedded", "journal-flip-length", "rdq-flip-size"])
def test_a_repair_is_finished_by_the_next_one(name: str, seed: int, tmp_path: Path) -> None:
    draw = Random(f"{name} {seed}")
    source = variant(name, tmp_path / "source")
    had = given_back(source)
    whole = copied(source, tmp_path / "whole")
    counting = Unsafe(1 << 30, whole)
    repair(str(whole), dry_run=False, disk=counting)
    node = copied(source, tmp_path / "node")
    disk = Unsafe(draw.randrange((1 << 30) - counting.left), node)
    with pytest.raises(Cut):
        repair(str(node), dry_run=False, disk=disk)
    disk.power_cut(draw)
    assert given_back(node) == had
    repair(str(node), dry_run=False)
    assert given_back(node) == had
    assert salvaged(node) == []
    assert repair(str(node), dry_run=False).changes == []


@pytest.mark.parametrize("seed", range(25))
def test_a_compaction_is_finished_by_the_next_one(seed: int, tmp_path: Path) -> None:
    draw = Random(seed)
    source = ours(tmp_path / "source")
    had = given_back(source)
    counting = Unsafe(1 << 30, whole := copied(source, tmp_path / "whole"))
    compact(str(whole), counting)
    node = copied(source, tmp_path / "node")
    disk = Unsafe(draw.randrange((1 << 30) - counting.left), node)
    with pytest.raises(Cut):
        compact(str(node), disk)
    disk.power_cut(draw)
    assert given_back(node) == had
    compact(str(node))
    assert given_back(node) == had
    assert bodies(node) == bodies(whole)


class EndsBehind(Unsafe):
    """Its user dies before the folder is synced in which this file was renamed or removed."""

    file = ""
    _done = False

    def step(self) -> None:
        if self._done:
            raise Cut
        super().step()

    def rename(self, src: str, dst: str) -> None:
        super().rename(src, dst)
        self._done = dst == self.file

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._done = path == self.file

    def end_behind(self, file: str) -> None:
        """Have a new process, which ends there."""
        self.file, self._done = file, False


def test_a_repair_relies_on_nothing_that_a_killed_one_had_not_synced(tmp_path: Path) -> None:
    """The first run is killed behind the rename of a message file, the power fails when the second one has removed its source."""
    node = golden.lay_out(C09, tmp_path / "node")
    had = given_back(node)
    (store,) = node.glob("msg_stores/vhosts/*/msg_store_persistent")
    (store / "0.rdq").rename(store / "0.rdt")
    for seed in (2, 10):  # the removal reaches the disk, the rename does not
        again = copied(node, tmp_path / "again")
        disk = EndsBehind(1 << 30, again)
        for name in ("0.rdq", "0.rdt"):
            disk.end_behind(str(again / store.relative_to(node) / name))
            with pytest.raises(Cut):
                repair(str(again), dry_run=False, disk=disk)
        disk.power_cut(Random(seed))
        assert given_back(again) == had
