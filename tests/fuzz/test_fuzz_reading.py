"""`check --json` on RabbitMQ's directories and on ours with any damage: it ends, writes nothing, and gives back what is whole.

How long this runs: tests/support/damage.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.readable import GOLDEN, OURS, readable
from tests.support.damage import (
    Damage,
    Files,
    Message,
    Place,
    apply,
    changed,
    damages,
    examples,
    missing,
    named,
    no_hanging,
    undamaged,
    untouched,
)
from tests.support.directories import check, glance, write


class OnDisk:
    """Each directory once on disk; a damaged copy of it is it for a while."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._there: set[str] = set()

    @contextmanager
    def damaged(self, name: str, files: Files) -> Iterator[Path]:
        """The directory with these files instead of its own."""
        folder, own = self._root / name, readable(name).files
        if name not in self._there:
            write(folder, own)
            self._there.add(name)
        different = {path for path in {*own, *files} if own.get(path) != files.get(path)}
        _have(folder, different, files)
        yield folder
        _have(folder, different, own)


def _have(folder: Path, paths: set[str], files: Files) -> None:
    for path in paths:
        if path in files:
            (folder / path).write_bytes(files[path])
        else:
            (folder / path).unlink()


def may_have_another_body(message: Message, before: Files, after: Files) -> bool:
    """True if damage can have changed a message without a trace of it: only bodies in .qs have a checksum."""
    return any(
        not untouched(before, after, place) and (not place.path.endswith(".qs") or _sound(after, place))
        for place in message.places
    )


def _sound(files: Files, place: Place) -> bool:
    """True if a place in a .qs file has an entry of that length with a right checksum, or one without any."""
    data = files.get(place.path, b"")[place.start : place.end]
    if len(data) < place.end - place.start or int.from_bytes(data[:4], "big") != len(data) - 8:
        return False
    body = data[8:]
    return not data[4] or int.from_bytes(data[5:7], "big") in {
        crc32(body) & 0xFFFF,
        crc32(body.rstrip(b"\0")) & 0xFFFF,
    }


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
        whole = [(message.seq_id, message.sha256) for message in undamaged(queue, made.files, files)]
        assert missing(whole, rows) == [], f"not all of {len(whole)} are given back in order"
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


@pytest.mark.parametrize("names", [OURS, GOLDEN], ids=["ours", "RabbitMQ's"])
@examples(45)
@given(data=st.data())
def test_everything_whole_is_given_back(disk: OnDisk, data: st.DataObject, names: list[str]) -> None:
    name = data.draw(st.sampled_from(names))
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
