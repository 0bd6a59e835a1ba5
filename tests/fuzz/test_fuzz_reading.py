"""`check --json` on RabbitMQ's directories and on ours with any damage: it ends, writes nothing, and gives back what is whole.

How long this runs: tests/support/fuzzing.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.damage import Damage, apply, changed, damages
from tests.support.directories import check
from tests.support.fuzzing import examples, no_hanging
from tests.support.message_places import named, undamaged
from tests.support.read_directories import GOLDEN, OURS, OnDisk, glance, may_have_another_body, readable


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnDisk]:
    return OnDisk(tmp_path_factory.mktemp("fuzz"))


def check_damaged(disk: OnDisk, name: str, damaged: list[Damage]) -> None:
    made = readable(name)
    files = apply(made.files, damaged)
    with disk.damaged(name, files) as folder:
        before = glance(folder)
        with no_hanging():
            status, found = check(folder, now_us=made.now_us)
        assert glance(folder) == before
    assert status in {0, 1}
    given_back = {each["directory"]: each["messages"] for each in found["queues"]}
    for queue in made.queues:
        rows = [(row["seq_id"], row["sha256"]) for row in given_back.get(queue.folder, [])]
        rest = iter(rows)
        whole = [(message.seq_id, message.sha256) for message in undamaged(queue, made.files, files)]
        missing = [each for each in whole if each not in rest]  # a subsequence: this keeps the order
        assert missing == [], f"{len(missing)} of {len(whole)} are not given back, or not in order"
        assert len({seq_id for seq_id, _ in rows}) == len(rows), "nothing is given back twice"
        vhost = queue.folder.partition("/queues/")[0]
        if made.files[f"{vhost}/.config"] != files.get(f"{vhost}/.config"):
            continue
        new = list(changed(made.files, files))
        anything = named(files, new, queue)
        truth = {message.seq_id: message for message in queue.messages}
        for seq_id, sha256 in rows:
            if (
                seq_id in truth
                and seq_id not in anything
                and not may_have_another_body(truth[seq_id], made.files, files)
            ):
                assert sha256 == truth[seq_id].sha256, f"{seq_id} has another body"


@pytest.mark.parametrize("name", [*GOLDEN, *OURS])
def test_the_directories_are_healthy_to_begin_with(name: str, disk: OnDisk) -> None:
    made = readable(name)
    assert all(undamaged(queue, made.files, made.files) == queue.messages for queue in made.queues)
    check_damaged(disk, name, [])


@examples(60)
@given(data=st.data(), name=st.sampled_from(OURS))
def test_of_our_directories_everything_whole_is_given_back(
    disk: OnDisk, data: st.DataObject, name: str
) -> None:
    made = readable(name)
    check_damaged(disk, name, data.draw(damages(made.files, made.edges)))


@examples(30)
@given(data=st.data(), name=st.sampled_from(GOLDEN))
def test_of_rabbitmqs_directories_everything_whole_is_given_back(
    disk: OnDisk, data: st.DataObject, name: str
) -> None:
    made = readable(name)
    check_damaged(disk, name, data.draw(damages(made.files, made.edges)))


@examples(30)
@given(data=st.data(), name=st.sampled_from([*GOLDEN, *OURS]))
def test_one_damaged_place_costs_what_it_hit(disk: OnDisk, data: st.DataObject, name: str) -> None:
    made = readable(name)
    files = {path: bytes_ for path, bytes_ in made.files.items() if path in made.edges}
    check_damaged(
        disk, name, data.draw(damages(files, made.edges, most=1, kinds=("cut", "flip", "zero", "noise")))
    )
