"""The store's state against a model: random clients, removes, kills, crashes, full disks and power cuts.

The model is what the queues believe: owner -> how often it holds which message.  Mail is handled in the order in
which it was sent, as a mailbox does; the collector takes a job whenever Hypothesis lets it.
"""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.store import (
    FOLDER,
    QUARANTINE,
    SMALL,
    body_of,
    check_at_rest,
    check_tables,
    msg_id,
    new_disk,
)
from warrenmq.storage.combine import Combine, Phase, commit, prepare
from warrenmq.storage.rdq import file_name
from warrenmq.storage.store_dump import save
from warrenmq.storage.store_effects import Confirm, Reply
from warrenmq.storage.store_recovery import recover
from warrenmq.storage.store_state import MsgStoreState
from warrenmq.storage.store_tables import Client
from warrenmq.trace.events import Trigger

OWNERS = ("q1", "q2", "q3")
MESSAGES = st.integers(0, 31)
EVERYBODY = st.sampled_from(OWNERS)


class Store(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 16))
    def begin(self, seed):
        self.disk = new_disk(seed)
        self.held = {owner: Counter() for owner in OWNERS}
        self.confirmed = {owner: set() for owner in OWNERS}  # safe, as far as the publisher knows
        self.awaited = {owner: set() for owner in OWNERS}  # written by the living incarnation of the queue
        self.births = 0
        self.open()

    def open(self):
        """Recover from what the disk has and the queues claim."""
        claims = {owner: list(held.elements()) for owner, held in self.held.items()}
        recovered = recover(self.disk, FOLDER, claims.items(), QUARANTINE, "store")
        self.state = MsgStoreState(self.disk, FOLDER, SMALL, recovered, None)
        self.mail, self.jobs, self.crefs = deque(), deque(), {}
        self.carry_out()
        for owner in OWNERS:
            self.new_client(owner, claims[owner])
            self.deliver_all()

    # clients

    def new_client(self, owner, claimed):
        self.births += 1
        cref = self.births.to_bytes(16, "big")
        self.crefs[owner] = cref
        self.awaited[owner] = set()
        self.mail.append(lambda: self.register(Client(cref, owner, wants_confirms=True), claimed))

    def register(self, client, claimed):
        present, unread = self.state.register(client, claimed)
        assert not unread
        assert self.confirmed[client.owner] & set(claimed) <= present
        self.held[client.owner] = Counter(m for m in claimed if m in present)
        self.confirmed[client.owner] &= present
        for found in present:
            assert self.read(found) == body_of(int.from_bytes(found[8:], "big"))

    def read(self, wanted):
        replies = []
        self.state.read(wanted, replies)
        while not replies or len(self.state.effects):
            self.carry_out()
            if replies:
                return replies[0]
            self.run_job()
        return replies[0]

    @rule(owner=EVERYBODY, numbers=st.lists(MESSAGES, min_size=1, max_size=8))
    def write(self, owner, numbers):
        """A queue stores messages; now and then one that it has already."""
        batch = [(msg_id(number), body_of(number)) for number in numbers]
        cref, tables = self.crefs[owner], self.state.tables
        tables.flying.written(cref, [m for m, _ in batch])
        tables.cache.enter(cref, batch)
        self.held[owner].update(m for m, _ in batch)
        self.awaited[owner].update(m for m, _ in batch)
        state = self.state
        self.mail.append(lambda: state.write(cref, batch))

    @rule(owner=EVERYBODY, data=st.data())
    def remove(self, owner, data):
        held = sorted(self.held[owner])
        if held:
            self.remove_these(
                owner, data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=6, unique=True))
            )

    def remove_these(self, owner, gone):
        cref, state = self.crefs[owner], self.state
        state.tables.flying.removed(cref, gone)
        self.held[owner] -= Counter(gone)
        self.confirmed[owner] -= {m for m in gone if not self.held[owner][m]}
        self.awaited[owner] -= {m for m in gone if not self.held[owner][m]}
        self.mail.append(lambda: state.remove(cref, gone))

    @rule(owner=EVERYBODY, kept=st.sets(MESSAGES, max_size=8))
    def churn(self, owner, kept):
        """Many messages come and most of them go, after they were written: garbage."""
        new = [n for n in range(32) if not self.held[owner][msg_id(n)]]
        self.write(owner, new)
        self.deliver_all()
        gone = [msg_id(n) for n in new if n not in kept]
        self.remove_these(owner, gone)

    @rule(owner=EVERYBODY, data=st.data())
    def kill(self, owner, data):
        """A queue process dies, perhaps in the middle of sending; the next one claims some of what it held."""
        tables, dead = self.state.tables, self.crefs[owner]
        if data.draw(st.booleans()):
            tables.cache.enter(dead, [(msg_id(99), b"never sent")])
            tables.flying.written(dead, [msg_id(99)])
        state = self.state
        self.mail.append(lambda: state.forget(dead))
        held = list(self.held[owner].elements())
        forgotten = data.draw(st.lists(st.sampled_from(held), max_size=4)) if held else []
        claimed = list((Counter(held) - Counter(forgotten)).elements())
        self.confirmed[owner] &= set(claimed)
        self.held[owner] = Counter(claimed)
        self.new_client(owner, [*claimed, msg_id(77)])
        self.deliver_all()

    @rule(owner=EVERYBODY)
    def delete(self, owner):
        """A queue is deleted and declared anew."""
        cref = self.crefs[owner]
        self.mail.appendleft(lambda: self.state.dying(cref))
        self.mail.append(lambda: self.state.delete(cref))
        self.held[owner] = Counter()
        self.confirmed[owner] = set()
        self.new_client(owner, [])
        self.deliver_all()

    # the store

    @rule(count=st.integers(1, 3))
    def deliver(self, count):
        for _ in range(min(count, len(self.mail))):
            self.mail.popleft()()
            self.carry_out()

    def deliver_all(self):
        self.deliver(len(self.mail))

    @precondition(lambda self: not self.state.writer.disk_full)
    @rule()
    def sync(self):
        self.state.writer.sync(Trigger.TIMER)
        self.carry_out()

    @rule(read=MESSAGES)
    def read_one(self, read):
        self.deliver_all()
        if any(held[msg_id(read)] for held in self.held.values()) and not self.state._backlog:
            assert self.read(msg_id(read)) == body_of(read)

    def carry_out(self):
        while self.state.effects:
            effects = self.state.effects[:]
            self.state.effects.clear()
            for effect in effects:
                match effect:
                    case Reply():
                        effect.sender.append(effect.body)
                    case Confirm():
                        # an ignored write of a message that the store has anyway is a confirm like any other
                        owner, stored = effect.client.owner, self.state.owners
                        self.confirmed[owner] |= {
                            m for m in effect.msg_ids if self.held[owner][m] and stored.holds(owner, m)
                        }
                    case job:
                        self.jobs.append(job)

    @precondition(lambda self: self.jobs)
    @rule()
    def run_job(self):
        """As actors/msg_store_gc.py."""
        job = self.jobs.popleft()
        job.phase = Phase.DONE
        if isinstance(job, Combine):
            try:
                prepare(self.disk, FOLDER, job.destination, job.survivors)
            except OSError:
                job.phase = Phase.FAILED
            else:
                commit(self.disk, FOLDER, job.destination)
                self.disk.unlink(f"{FOLDER}/{file_name(job.source)}")
        else:
            self.disk.unlink(f"{FOLDER}/{file_name(job.file)}")
        self.state.completed(job)
        self.carry_out()

    @rule(room=st.integers(0, 6000))
    def disk_fills(self, room):
        self.disk.free_bytes = room

    @rule()
    def disk_gets_room(self):
        self.disk.free_bytes = None
        if self.state.writer.disk_full:
            assert self.state.retry()
        self.state.resume_gc()
        self.carry_out()

    @rule()
    def rest(self):
        """Everything is handled: the strict invariants hold, and a combine is done wherever one is due."""
        self.disk_gets_room()
        self.deliver_all()
        while self.jobs:
            self.run_job()
        self.state.writer.sync(Trigger.MAILBOX_EMPTY)
        self.carry_out()
        check_at_rest(self.state, self.disk)
        for owner, held in self.held.items():
            assert Counter(self.state.owners.held(owner)) == held
            assert self.awaited[owner] & set(held) <= self.confirmed[owner]

    # ends

    @rule()
    def stop_and_start(self):
        self.disk_gets_room()
        self.deliver_all()
        if self.jobs:
            self.run_job()
        assert self.state.settle()
        assert self.state.writer.close()
        self.carry_out()
        tables = self.state.tables
        save(self.disk, FOLDER, tables.index, tables.files, self.state.owners)
        before = {owner: dict(self.state.owners.held(owner)) for owner in OWNERS}
        self.open()
        assert {owner: dict(self.state.owners.held(owner)) for owner in OWNERS} == before

    @rule(power=st.booleans())
    def crash_and_start(self, power):
        """What was sent and not handled is lost, and with the power what was not safe."""
        self.disk.free_bytes = None
        if power:
            self.disk.power_cut()
        self.open()

    @invariant()
    def tables_are_consistent(self):
        if hasattr(self, "state"):
            check_tables(self.state, self.disk)


Store.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestStore = Store.TestCase
