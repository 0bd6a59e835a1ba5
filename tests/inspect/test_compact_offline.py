"""`compact` of directories that no broker has open, cut at each operation of the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import warrenmq
from tests.inspect.mortal_disk import Cut, Full, Mortal
from tests.support import golden
from tests.support.directories import contents, given_back
from tests.support.golden import CASES
from warrenmq.cli import main
from warrenmq.errors import PreconditionFailed
from warrenmq.mend.compact import compact


def ours(where: Path) -> Path:
    """Two of three messages were acked."""
    settings = {"msg_store_file_size_limit": 65_536}
    with warrenmq.open(where, settings=settings) as broker:
        jobs = broker.declare_queue("jobs")
        jobs.publish_many([b"%d" % number + b"." * 6000 for number in range(60)]).result()
        for number, delivery in enumerate([each for _ in range(60) if (each := jobs.get()) is not None]):
            if number % 3:
                delivery.ack()
    return where


@pytest.mark.parametrize("case", CASES)
def test_every_message_of_a_golden_directory_is_still_there(case: str, tmp_path: Path) -> None:
    node = golden.lay_out(case, tmp_path / "node")
    had = given_back(node)
    done = compact(str(node))
    assert given_back(node) == had
    assert all(store.after <= store.before for store in done.stores)
    before = contents(node)
    again = compact(str(node))
    assert [store.after for store in again.stores] == [store.before for store in again.stores]
    assert contents(node) == before


def test_garbage_goes_away_and_the_broker_gives_the_rest(tmp_path: Path) -> None:
    data = ours(tmp_path / "data")
    (store,) = compact(str(data)).stores
    assert 20 * 6000 < store.after < 20 * 6200
    with warrenmq.open(data) as broker:
        found = [int(each.body.rstrip(b".")) for each in iter(broker.queue("jobs").get, None)]
    assert found == [*range(0, 60, 3)]


@pytest.mark.parametrize("which", ["golden", "ours"])
def test_a_crash_at_any_operation_loses_nothing_and_the_next_run_does_the_rest(
    which: str, tmp_path: Path
) -> None:
    source = (
        golden.lay_out("c07-gc-v1-a", tmp_path / "source") if which == "golden" else ours(tmp_path / "source")
    )
    had = given_back(source)
    for operation in range(10_000):
        node = tmp_path / "node"
        shutil.rmtree(node, ignore_errors=True)
        shutil.copytree(source, node)
        try:
            compact(str(node), Mortal(operation))
        except Cut:
            assert given_back(node) == had
        else:
            assert operation > 5
            return
        compact(str(node))
        assert given_back(node) == had
        assert not list(node.rglob("*.mending"))
    pytest.fail("it never ends")


def test_a_full_disk_loses_nothing_and_no_half_file_takes_the_room_that_is_left(tmp_path: Path) -> None:
    node = ours(tmp_path / "node")
    had = given_back(node)
    for appends in range(3):
        with pytest.raises(OSError, match="No space left on device"):
            compact(str(node), Full(appends))
        assert given_back(node) == had
        assert not list(node.rglob("*.mending"))
    compact(str(node))
    assert given_back(node) == had


def test_what_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = golden.lay_out("c02-v1-store-a", tmp_path / "node")
    (queue,) = node.glob("msg_stores/vhosts/*/queues/*")
    with pytest.raises(PreconditionFailed, match="one queue's directory"):
        compact(str(queue))
    (queue / "journal.jif").write_bytes((queue / "journal.jif").read_bytes()[:-3])
    before = contents(node)
    assert main(["compact", str(node)]) == 2
    assert "mend it first with: warrenmq repair" in capsys.readouterr().err
    shutil.rmtree(queue.parent)
    with pytest.raises(PreconditionFailed, match="has no queues"):
        compact(str(node))
    with warrenmq.open(tmp_path / "data"), pytest.raises(warrenmq.DirectoryInUse):
        compact(str(tmp_path / "data"))
    assert {path: data for path, data in before.items() if "/queues/" not in path} == contents(node)


def test_it_says_how_much_it_was_and_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = golden.lay_out("c02-v1-store-a", tmp_path / "node")
    assert main(["compact", str(node)]) == 0
    out = capsys.readouterr().out
    assert "msg_store_persistent: " in out
    assert out.splitlines()[-1].endswith(" bytes after")
