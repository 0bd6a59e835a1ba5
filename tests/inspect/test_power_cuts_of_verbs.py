"""The power fails while `repair` or `compact` works: nothing that could be read is lost, and the next run comes to the same end."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.inspect.mortal_disk import Cut
from tests.inspect.test_compact_offline import ours
from tests.inspect.test_mended_directories import salvaged, variant
from tests.inspect.unsafe_disk import Unsafe, copied
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
