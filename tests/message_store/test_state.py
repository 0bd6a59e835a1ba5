"""Single steps of the store's state: what it does to the disk, whom it tells, and what it writes into the trace."""

from __future__ import annotations

import pytest

from tests.message_store.kit import FOLDER, SMALL, body_of, msg_id, new_disk, reads, record
from tests.message_store.store_world import StoreWorld
from tests.support.kept_rows import KeptRows
from warrenmq.message.stored import checksum_of
from warrenmq.message_store.combine import placed, runs
from warrenmq.message_store.effects import Confirm, Reply
from warrenmq.message_store.gc_jobs import Combine, Survivor
from warrenmq.message_store.owner_refs import OwnerRefs
from warrenmq.message_store.recovery import wipe
from warrenmq.message_store.state import MsgStoreState
from warrenmq.message_store.tables import Client
from warrenmq.settings import Settings
from warrenmq.trace import events as e
from warrenmq.trace.events import BodyReport, Decision, Recovery, Trigger


class Bench:
    """One state, two clients of two queues, and a list of what reached the disk."""

    def __init__(self, settings=SMALL, trace=None):
        self.disk = new_disk()
        recovered = wipe(self.disk, FOLDER)
        self.state = MsgStoreState(self.disk, FOLDER, settings, recovered, trace, reads(self.disk))
        self.operations = []
        self.disk.before_op = lambda op, path: self.operations.append((op, path.rpartition("/")[2]))
        for trace_id, owner in ((7, "q"), (8, "p")):
            self.state.register(Client(owner.encode(), owner, wants_confirms=True, trace_id=trace_id), [])

    def write(self, owner, *numbers, body=None):
        cref, tables = owner.encode(), self.state.tables
        batch = [(msg_id(n), body_of(n) if body is None else body) for n in numbers]
        tables.flying.written(cref, [m for m, _ in batch])
        tables.cache.enter(cref, batch)
        self.state.write(cref, batch)

    def remove(self, owner, *numbers):
        gone = [msg_id(n) for n in numbers]
        self.state.tables.flying.removed(owner.encode(), gone)
        self.state.remove(owner.encode(), gone)

    def told(self):
        """The confirms and replies since the last time; jobs stay."""
        effects = self.state.effects[:]
        self.state.effects[:] = [e for e in effects if not isinstance(e, Confirm | Reply)]
        return [
            (e.client.owner, e.reason, [int.from_bytes(m[8:], "big") for m in e.msg_ids])
            if isinstance(e, Confirm)
            else e.body
            for e in effects
            if isinstance(e, Confirm | Reply)
        ]

    def on_disk(self):
        taken, self.operations[:] = self.operations[:], []
        return taken


# when what is written


def test_nothing_reaches_the_disk_before_a_flush_and_a_sync_confirms_each_client_once():
    bench = Bench()
    bench.write("q", 1, 2)
    bench.write("p", 2, 3)
    assert bench.on_disk() == []
    assert bench.told() == []
    bench.state.writer.sync(Trigger.MAILBOX_EMPTY)
    assert bench.on_disk() == [("append", "0.rdq"), ("datasync", "0.rdq")]
    assert bench.told() == [("q", "written", [1, 2]), ("p", "written", [2, 3])]
    assert bench.disk.read(f"{FOLDER}/0.rdq") == b"".join(record(n, body_of(n)) for n in (1, 2, 3))
    bench.on_disk()
    bench.state.writer.sync(Trigger.TIMER)
    assert bench.on_disk() == []


def test_a_full_buffer_is_flushed_and_not_synced():
    bench = Bench(Settings(msg_store_file_size_limit=1 << 20, msg_store_write_buffer=4096))
    bench.write("q", 1, body=b"x" * 4071)
    assert bench.on_disk() == []  # exactly full: the limit has to be exceeded
    bench.write("q", 2, body=b"")
    assert bench.on_disk() == [("append", "0.rdq")]
    assert bench.told() == []


def test_a_file_is_left_when_it_reaches_the_limit_and_is_safe_then():
    bench = Bench()
    bench.write("q", 1, body=b"x" * (4096 - 25 - 26))
    assert bench.state.writer.file.number == 0
    bench.write("q", 2, body=b"y")
    assert bench.on_disk() == [
        ("append", "0.rdq"), ("datasync", "0.rdq"), ("create", "1.rdq"), ("sync_dir", "store"),
    ]  # fmt: skip
    assert bench.told() == [("q", "written", [1, 2])]
    assert bench.state.writer.file.number == 1
    assert len(bench.state.tables.cache) == 0


def test_a_message_larger_than_a_file_has_one_of_its_own():
    bench = Bench()
    bench.write("q", 1, body=b"x" * 10_000)
    assert bench.state.writer.file.number == 1
    assert bench.disk.size(f"{FOLDER}/0.rdq") == 10_025


def test_a_full_file_is_synced_even_without_waiting_confirms():
    bench = Bench()
    bench.state.clients[b"q"].wants_confirms = False
    bench.write("q", *range(20))
    assert bench.told() == []
    left = bench.state.writer.file.number
    assert [path for op, path in bench.on_disk() if op == "datasync"] == [f"{n}.rdq" for n in range(left)]
    assert not bench.state.writer.confirms_wait


def test_a_message_in_an_older_file_is_confirmed_at_once_and_one_in_the_current_file_after_its_sync():
    bench = Bench()
    bench.write("q", *range(20))
    bench.told()
    current = [n for n in range(20) if bench.state._in_current_file(msg_id(n))]
    bench.write("p", 0, *current)
    assert bench.told() == [("p", "written", [0])]
    bench.state.writer.sync(Trigger.TIMER)
    assert bench.told() == [("q", "written", current), ("p", "written", current)]


def test_a_message_without_references_is_revived_without_writing_it_again():
    bench = Bench()
    bench.write("q", *range(20))
    bench.remove("q", 0)
    offset = bench.state.writer.file.offset
    bench.on_disk()
    bench.told()
    bench.write("p", 0)
    assert bench.told() == [("p", "written", [0])]
    assert bench.state.writer.file.offset == offset
    bench.state.read(msg_id(0), None)
    assert bench.told() == [body_of(0)]


def test_a_message_that_is_twice_in_a_queue_is_not_confirmed_by_the_remove_of_one():
    bench = Bench()
    bench.write("q", 1, 1)
    bench.remove("q", 1)
    assert bench.told() == []
    bench.state.writer.sync(Trigger.TIMER)
    assert bench.told() == [("q", "written", [1])]


# clients


def test_a_queue_that_claims_a_message_twice_gets_the_reference_it_lacks():
    bench = Bench()
    bench.write("q", 1)
    present, _ = bench.state.register(
        Client(b"new", "q", wants_confirms=True), [msg_id(1), msg_id(1), msg_id(2)]
    )
    assert present == {msg_id(1)}
    assert bench.state.owners.all_of("q") == [msg_id(1), msg_id(1)]
    assert bench.state.tables.index.lookup(msg_id(1))[0] == 2


def test_mail_of_a_client_that_has_a_successor_is_ignored():
    bench = Bench()
    bench.state.register(Client(b"new", "q", wants_confirms=True), [])
    bench.write("q", 1)
    bench.remove("q", 1)
    bench.state.writer.sync(Trigger.TIMER)
    assert bench.told() == []
    assert len(bench.state.tables.index) == 0
    assert len(bench.state.tables.cache) == len(bench.state.tables.flying) == 0


def test_a_dying_client_writes_nothing_new_but_its_references_are_given_up():
    bench = Bench()
    bench.write("q", 1)
    bench.write("p", 2)
    bench.state.dying(b"q")
    bench.write("q", 2, 3)
    bench.remove("q", 3)
    bench.state.writer.sync(Trigger.TIMER)
    assert bench.told() == [("p", "written", [2])]
    assert bench.state.tables.index.lookup(msg_id(3)) is None
    assert bench.state.owners.all_of("q") == [msg_id(1), msg_id(2)]
    bench.state.delete(b"q")
    assert {m: e[0] for m, e in bench.state.tables.index.items()} == {msg_id(1): 0, msg_id(2): 1}
    assert list(bench.state.owners.owners()) == ["p"]


@pytest.mark.parametrize("known", [True, False])
def test_a_queue_that_is_deleted_without_a_process_leaves_nothing(known):
    bench = Bench()
    bench.write("q", 1, 2)
    bench.write("p", 2)
    if not known:
        bench.state.forget(b"q")
    bench.state.delete_owner("q", 9)
    assert {m: e[0] for m, e in bench.state.tables.index.items()} == {msg_id(1): 0, msg_id(2): 1}
    assert list(bench.state.owners.owners()) == ["p"]
    assert not bench.state.owners.doubtful
    bench.write("q", 1)
    assert len(bench.state.tables.flying) == 0
    assert bench.state.owners.all_of("q") == []


# the collector


def test_survivors_are_copied_in_runs_of_neighbours():
    survivors: list[Survivor] = [(b"a", 0, 30), (b"b", 30, 40), (b"c", 100, 50), (b"d", 150, 50)]
    assert list(runs(survivors)) == [(0, 70), (100, 100)]
    assert list(runs([])) == []
    large = [(b"a", 0, 900_000), (b"b", 900_000, 900_000), (b"c", 1_800_000, 2_000_000)]
    assert list(runs(large)) == [(0, 900_000), (900_000, 900_000), (1_800_000, 2_000_000)]
    assert placed([(4, survivors[2:]), (5, survivors[:1])]) == [
        (b"c", 0, 50),
        (b"d", 50, 50),
        (b"a", 100, 30),
    ]


def test_deferred_removes_are_done_in_order_sources_before_destinations():
    world = StoreWorld(new_disk(), ["q"])
    world.write("q", range(60))
    world.deliver_all()
    world.remove("q", [msg_id(n) for n in range(60) if n % 4])
    world.deliver_all()
    while not isinstance(world.jobs[0], Combine):
        world.run_job()
    job = world.jobs[0]
    in_left, in_right = ([m for m, _, _ in survivors] for _, survivors in job.survivors)
    answered = []

    class Sender(list):
        def append(self, body):
            answered.append(body)

    wanted = [in_left[0], in_right[0], in_left[-1], in_right[-1]]
    for each in wanted:
        world.state.read(each, Sender())
    assert answered == []
    world.run_job()
    expected = [in_right[0], in_right[-1], in_left[0], in_left[-1]]
    assert answered == [body_of(int.from_bytes(m[8:], "big")) for m in expected]


# trace


def test_the_trace_of_a_short_life():
    rows = KeptRows()
    bench = Bench(trace=rows)
    assert rows.take() == [(e.StoreRecovered, {"recovery": Recovery.EMPTY, "files": 1}), (e.FileState, {})]
    bench.write("q", 1)
    size = len(record(1, body_of(1)))
    assert rows.take() == [
        (
            e.StoreWrite,
            {
                "decision": Decision.WRITE,
                "message": 1,
                "client": 7,
                "flying": 1,
                "references": 1,
                "was_flying": 1,
            },
        ),
        (e.Append, {"message": 1, "checksum": checksum_of(body_of(1)), "size": size}),
    ]
    bench.write("p", 1)
    assert rows.take() == [
        (
            e.StoreWrite,
            {
                "decision": Decision.CONFIRM,
                "message": 1,
                "client": 8,
                "flying": 1,
                "references": 2,
                "was_flying": 1,
            },
        )
    ]
    bench.state.writer.sync(Trigger.MAILBOX_EMPTY)
    assert rows.take() == [
        (e.FileWrite, {"trigger": Trigger.MAILBOX_EMPTY, "size": size}),
        (e.FileSync, {"trigger": Trigger.MAILBOX_EMPTY, "synced_to": size, "size": size}),
        (e.StoreConfirm, {"report": BodyReport.WRITTEN, "message": 1, "client": 7}),
        (e.StoreConfirm, {"report": BodyReport.WRITTEN, "message": 1, "client": 8}),
    ]
    bench.remove("q", 1)
    assert rows.take() == [
        (
            e.StoreRemove,
            {
                "decision": Decision.REMOVE,
                "message": 1,
                "client": 7,
                "flying": -1,
                "references": 1,
                "was_flying": 1,
            },
        )
    ]
    bench.state.remove(b"p", [msg_id(1)])
    assert rows.take() == [
        (e.StoreRemove, {"decision": Decision.IGNORE, "message": 1, "client": 8, "references": 1})
    ]
    bench.state.register(Client(b"new", "p", wants_confirms=True, trace_id=9), [])
    assert rows.take() == [(e.RefDropped, {"message": 1, "client": 9})]


def test_the_trace_of_a_file_that_comes_and_goes():
    rows = KeptRows()
    bench = Bench(trace=rows)
    bench.write("q", 1, body=b"x" * 5000)
    rows.take()
    bench.remove("q", 1)
    assert rows.take() == [
        (
            e.StoreRemove,
            {"decision": Decision.REMOVE, "message": 1, "client": 7, "flying": -1, "was_flying": 1},
        ),
        (e.Lock, {}),
    ]
    job = bench.state.gc.jobs[0]
    job.phase = type(job.phase).DONE
    bench.state.completed(job)
    assert rows.take() == [(e.FileDelete, {"size": 5025})]


def test_an_owner_may_not_remove_what_another_holds():
    owners = OwnerRefs()
    owners.add("q", msg_id(1))
    with pytest.raises(ValueError, match="does not hold"):
        owners.drop("p", msg_id(1))
