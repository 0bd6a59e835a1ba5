"""The store's state without actors: mail in a queue, jobs in another, and what the queues believe beside it.

Mail is handled in the order in which it was sent, as a mailbox does; the collector takes a job when it is told.
"""

from collections import Counter, deque

from tests.message_store.kit import FOLDER, QUARANTINE, SMALL, body_of, check_at_rest, held_by, msg_id, reads
from warrenmq.message_store import combine, compact
from warrenmq.message_store.dump import save
from warrenmq.message_store.effects import Confirm, Reply
from warrenmq.message_store.gc_jobs import Combine, Compact, Delete, Phase, Truncate
from warrenmq.message_store.rdq import file_name
from warrenmq.message_store.recovery import recover
from warrenmq.message_store.state import MsgStoreState
from warrenmq.message_store.tables import Client
from warrenmq.trace.events import Trigger


class StoreWorld:
    """A store on a disk and its queues; `held` is the model: owner -> how often it holds which message."""

    def __init__(self, disk, owners, settings=SMALL):
        self.disk = disk
        self.settings = settings
        self.owners = owners
        self.held = {owner: Counter() for owner in owners}
        self.confirmed = {owner: set() for owner in owners}  # safe, as far as the publisher knows
        self.awaited = {owner: set() for owner in owners}  # written by the living incarnation of the queue
        self.births = 0
        self.damaged = 0
        self.open()

    def open(self):
        """Recover from what the disk has and the queues claim; every queue registers."""
        claims = {owner: [*held.elements()] for owner, held in self.held.items()}
        recovered = recover(self.disk, FOLDER, held_by(**claims), QUARANTINE, "store")
        self.damaged = len(recovered.damage)
        self.state = MsgStoreState(self.disk, FOLDER, self.settings, recovered, None, reads(self.disk))
        self.mail, self.jobs, self.crefs = deque(), deque(), {}
        self.carry_out()
        for owner in self.owners:
            self.new_client(owner, claims[owner])
        self.deliver_all()

    # clients

    def new_client(self, owner, claimed):
        self.births += 1
        cref = self.births.to_bytes(16, "big")
        self.crefs[owner] = cref
        self.awaited[owner] = set()
        client = Client(cref, owner, wants_confirms=True)
        self.mail.append(lambda: self.register(client, claimed))

    def register(self, client, claimed):
        """A queue registers after a start: all confirmed messages are there, unchanged; it forgets the others."""
        present, unread = self.state.register(client, claimed)
        assert not unread
        assert self.confirmed[client.owner] & set(claimed) <= present
        self.held[client.owner] = Counter(m for m in claimed if m in present)
        self.confirmed[client.owner] &= present
        for found in sorted(present):
            assert self.read(found) == body_of(int.from_bytes(found[8:], "big"))

    def read(self, wanted):
        replies = []
        self.state.read(wanted, replies)
        while True:
            self.carry_out()
            if replies:
                return replies[0]
            self.run_job()

    def write(self, owner, numbers):
        batch = [(msg_id(number), body_of(number)) for number in numbers]
        cref, state = self.crefs[owner], self.state
        state.tables.flying.written(cref, [m for m, _ in batch])
        state.tables.cache.enter(cref, batch)
        self.held[owner].update(m for m, _ in batch)
        self.awaited[owner].update(m for m, _ in batch)
        self.mail.append(lambda: state.write(cref, batch))

    def remove(self, owner, gone):
        """Give up one reference to each of these message ids."""
        cref, state = self.crefs[owner], self.state
        state.tables.flying.removed(cref, gone)
        self.held[owner] -= Counter(gone)
        still = self.held[owner]
        self.confirmed[owner] -= {m for m in gone if not still[m]}
        self.awaited[owner] -= {m for m in gone if not still[m]}
        self.mail.append(lambda: state.remove(cref, gone))

    def kill(self, owner, forgotten, *, while_sending):
        """A queue process dies, perhaps in the middle of sending; the next one claims most of what it held."""
        dead, state = self.crefs[owner], self.state
        if while_sending:
            state.tables.cache.enter(dead, [(msg_id(99), b"never sent")])
            state.tables.flying.written(dead, [msg_id(99)])
        self.mail.append(lambda: state.forget(dead))
        claimed = self.held[owner] - Counter(forgotten)
        self.confirmed[owner] &= set(claimed)
        self.held[owner] = claimed
        self.new_client(owner, [*claimed.elements(), msg_id(77)])
        self.deliver_all()

    def delete(self, owner):
        """A queue is deleted and declared anew."""
        cref, state = self.crefs[owner], self.state
        self.mail.appendleft(lambda: state.dying(cref))
        self.mail.append(lambda: state.delete(cref))
        self.held[owner] = Counter()
        self.confirmed[owner] = set()
        self.new_client(owner, [])
        self.deliver_all()

    # the store

    def deliver(self, count):
        for _ in range(min(count, len(self.mail))):
            self.mail.popleft()()
            self.carry_out()

    def deliver_all(self):
        self.deliver(len(self.mail))

    def sync(self):
        self.state.writer.sync(Trigger.TIMER)
        self.carry_out()

    def carry_out(self):
        """Carry out effects as actors/store/process.py does."""
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

    def run_job(self):
        """Run a collector's job as actors/store/collector.py does."""
        job = self.jobs.popleft()
        path = f"{FOLDER}/{file_name(job.files[0])}"
        job.phase = Phase.RUNNING
        try:
            match job:
                case Combine():
                    combine.prepare(self.disk, FOLDER, job.destination, job.survivors)
                    combine.commit(self.disk, FOLDER, job.destination)
                    if job.source is not None:
                        self.disk.unlink(f"{FOLDER}/{file_name(job.source)}")
                case Compact():
                    job.plan = compact.plan([(offset, total) for _, offset, total in job.survivors])
                    compact.fill_holes(self.disk, path, job.plan)
                case Truncate():
                    compact.truncate(self.disk, path, job.size, job.vacated)
                case Delete():
                    self.disk.unlink(path)
            job.phase = Phase.DONE
        except OSError:
            job.phase = Phase.FAILED
        self.state.completed(job)
        self.carry_out()

    def make_room(self):
        """The disk is full no more."""
        self.disk.free_bytes = None
        if self.state.writer.disk_full:
            assert self.state.retry()
        self.state.resume_gc()
        self.carry_out()

    def idle(self):
        """Two intervals pass in which nothing else happens; every interval ends, as there is no other clock."""
        self.rest()
        for _ in range(2):
            self.state.interval_begins()
            self.state.interval_ended()
            self.carry_out()
            self.rest()

    def rest(self):
        """Handle all messages, then check the strict invariants."""
        self.make_room()
        self.deliver_all()
        while self.jobs:
            self.run_job()
        self.sync()
        check_at_rest(self.state, self.disk)
        for owner, held in self.held.items():
            assert Counter(self.state.owners.held(owner)) == held
            assert self.awaited[owner] & set(held) <= self.confirmed[owner]

    # ends

    def stop(self):
        """Stop as MsgStore.terminate does on a clean stop."""
        self.deliver_all()
        assert self.state.settle()
        assert self.state.writer.close()
        self.carry_out()
        save(self.disk, FOLDER, self.state.tables.index, self.state.tables.files, self.state.owners)
