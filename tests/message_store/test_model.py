"""The store's state against a model, with both collectors: random clients, removes, kills, crashes, full disks and power cuts."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.message_store.kit import SMALL, SMALL_IN_PLACE, body_of, check_tables, msg_id, new_disk
from tests.message_store.store_world import StoreWorld

OWNERS = ("q1", "q2", "q3")
MESSAGES = st.integers(0, 31)
EVERYBODY = st.sampled_from(OWNERS)
COLLECTORS = st.sampled_from([SMALL, SMALL_IN_PLACE])


pytestmark = pytest.mark.usefixtures("logs")


class Store(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 16), collector=COLLECTORS)
    def begin(self, seed, collector):
        self.world = StoreWorld(new_disk(seed), OWNERS, collector)

    @rule(owner=EVERYBODY, numbers=st.lists(MESSAGES, min_size=1, max_size=8))
    def write(self, owner, numbers):
        """A queue stores messages; now and then one that it has already."""
        self.world.write(owner, numbers)

    @rule(owner=EVERYBODY, data=st.data())
    def remove(self, owner, data):
        held = sorted(self.world.held[owner])
        if held:
            self.world.remove(
                owner, data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=6, unique=True))
            )

    @rule(owner=EVERYBODY, kept=st.sets(MESSAGES, max_size=8))
    def churn(self, owner, kept):
        """Many messages come, and most of them go after they were written: garbage."""
        new = [n for n in range(32) if not self.world.held[owner][msg_id(n)]]
        self.world.write(owner, new)
        self.world.deliver_all()
        self.world.remove(owner, [msg_id(n) for n in new if n not in kept])

    @rule(owner=EVERYBODY, data=st.data())
    def kill(self, owner, data):
        held = list(self.world.held[owner].elements())
        forgotten = data.draw(st.lists(st.sampled_from(held), max_size=4)) if held else []
        self.world.kill(owner, forgotten, while_sending=data.draw(st.booleans()))

    @rule(owner=EVERYBODY)
    def delete(self, owner):
        self.world.delete(owner)

    @rule(count=st.integers(1, 3))
    def deliver(self, count):
        self.world.deliver(count)

    @precondition(lambda self: not self.world.state.writer.disk_full)
    @rule()
    def sync(self):
        self.world.sync()

    @rule(number=MESSAGES)
    def read(self, number):
        world = self.world
        world.deliver_all()
        if any(held[msg_id(number)] for held in world.held.values()) and not world.state._backlog:
            assert world.read(msg_id(number)) == body_of(number)

    @precondition(lambda self: self.world.jobs)
    @rule()
    def run_job(self):
        self.world.run_job()

    @rule(room=st.integers(0, 6000))
    def disk_fills(self, room):
        self.world.disk.free_bytes = room

    @rule()
    def disk_gets_room(self):
        self.world.make_room()

    @rule()
    def rest(self):
        self.world.rest()

    @rule()
    def idle(self):
        """No more than half of a store in which nothing happens is garbage."""
        self.world.idle()
        files = self.world.state.tables.files
        assert files.sum_file_size <= 2 * files.sum_valid_data

    @rule()
    def interval(self):
        """An interval ends and the next begins while things happen."""
        if not self.world.state.gc.paused:
            self.world.state.interval_ended()
            self.world.carry_out()
        self.world.state.interval_begins()

    @rule(collector=COLLECTORS)
    def stop_and_start(self, collector):
        """Any collector takes over what the other one left."""
        world = self.world
        world.make_room()
        world.stop()
        world.settings = collector
        before = {owner: dict(world.state.owners.held(owner)) for owner in OWNERS}
        world.open()
        assert {owner: dict(world.state.owners.held(owner)) for owner in OWNERS} == before

    @rule(power=st.booleans(), collector=COLLECTORS)
    def crash_and_start(self, power, collector):
        """Crash, and lose the messages that were sent and not handled; a power cut also loses what was not synced."""
        self.world.disk.free_bytes = None
        self.world.settings = collector
        if power:
            self.world.disk.power_cut()
        self.world.open()

    @invariant()
    def tables_are_consistent(self):
        if hasattr(self, "world"):
            check_tables(self.world.state, self.world.disk)


Store.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestStore = Store.TestCase
