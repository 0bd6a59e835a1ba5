"""repair and recover on directories with any damage: nothing whole is lost, and what is mended stays mended.

How long this runs: tests/support/damage.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.readable import GOLDEN, OURS, Readable, readable
from tests.support.damage import Files, apply, damages, examples, missing, no_hanging, undamaged
from tests.support.directories import check, glance, write
from warrenmq.mend.recover import recover
from warrenmq.mend.repair import repair

SMALL_GOLDEN = [name for name in GOLDEN if name[:3] in {"c04", "c05", "c07", "c09", "c11", "rdt"}]
names = st.one_of(st.sampled_from(OURS), st.sampled_from(SMALL_GOLDEN))


def given_back(folder: Path, made: Readable) -> dict[str, list[tuple[int, str]]]:
    _, found = check(folder, now_us=made.now_us)
    return {
        each["directory"]: [(row["seq_id"], row["sha256"]) for row in each["messages"]]
        for each in found["queues"]
    }


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mending")


def lay_out(scratch: Path, files: Files) -> Path:
    folder = scratch / "data"
    shutil.rmtree(folder, ignore_errors=True)
    write(folder, files)
    return folder


@examples(30)
@given(data=st.data(), name=names)
def test_a_repaired_directory_has_everything_that_was_whole_and_needs_no_repair(
    scratch: Path, data: st.DataObject, name: str
) -> None:
    made = readable(name)
    files = apply(made.files, data.draw(damages(made.files, made.edges)))
    folder = lay_out(scratch, files)
    before = glance(folder)
    with no_hanging():
        would = repair(str(folder), dry_run=True)
        assert glance(folder) == before, "a dry run writes nothing"
        readable_before = given_back(folder, made)
        done = repair(str(folder), dry_run=False)
        assert would.changes == done.changes
        after = given_back(folder, made)
        again = repair(str(folder), dry_run=False)
    assert again.changes == [], "the second run finds nothing to do"
    for queue in made.queues:
        whole = [message.sha256 for message in undamaged(queue, made.files, files)]
        assert missing(whole, [sha256 for _, sha256 in after.get(queue.folder, [])]) == []
        listed = [sha256 for _, sha256 in readable_before.get(queue.folder, [])]
        assert missing(listed, [sha256 for _, sha256 in after.get(queue.folder, [])]) == [], (
            "repair loses nothing readable"
        )


@examples(12)
@given(data=st.data(), name=names)
def test_everything_that_check_lists_is_recovered_missing(
    scratch: Path, data: st.DataObject, name: str
) -> None:
    made = readable(name)
    folder = lay_out(scratch, apply(made.files, data.draw(damages(made.files, made.edges))))
    target = scratch / "target"
    shutil.rmtree(target, ignore_errors=True)
    now_us = made.now_us or 0
    with no_hanging():
        _, source = check(folder, now_us=now_us)
        report = recover(str(folder), str(target), now_us)
        _, moved = check(target, now_us=now_us)
        again = recover(str(folder), str(target), now_us)
    assert sum(queue.moved for queue in report.queues) == sum(
        len(each["messages"]) for each in source["queues"]
    )
    assert sum(queue.moved for queue in again.queues) == 0, "nothing is given twice"
    there = sorted(row["sha256"] for each in moved["queues"] for row in each["messages"])
    assert there == sorted(row["sha256"] for each in source["queues"] for row in each["messages"])
    where = {
        (each["vhost"], each["name"]): [row["sha256"] for row in each["messages"]] for each in moved["queues"]
    }
    for each in source["queues"]:
        name_of = each["vhost"], each["name"]
        if name_of in where and each["priority"] is None:
            assert missing([row["sha256"] for row in each["messages"]], where[name_of]) == []
