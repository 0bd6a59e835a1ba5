"""A store in simulation whose queues know what they hold, so that their successors can claim it.

The model is what each queue believes to hold; a queue that is started again claims that, and what was confirmed to its
predecessor must be there.  Every disk operation is a point where another actor may run.
"""

import random
from collections import Counter

from tests.message_store.actors_kit import STORE, StoreHost, StoreQueue, Watched
from tests.message_store.kit import SMALL, body_of, check_at_rest, msg_id, new_disk
from warrenmq.message_store.gc_plan import CHECK_INTERVAL
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.runtime import Simulation
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.sink import MemorySink

OWNERS = ("q1", "q2", "q3")
POOL = range(120)
QUEUES_RULES = {"S1", "C1", "C2", "Q1"}
"""Rules that need the rows of real queues."""


class Believer(StoreQueue):
    """A queue that keeps its belief where its successor finds it."""

    def init(self, owner, world):
        self.owner, self.world = owner, world
        claims = list(world.held[owner].elements())
        super().init(owner, claims)
        present = {int.from_bytes(m[8:], "big") for m in self.present}
        assert world.confirmed[owner] & set(claims) <= present
        world.held[owner] = Counter(n for n in claims if n in present)
        world.confirmed[owner] &= present

    def on_disk(self, msg_ids, reason):
        held, stored = self.world.held[self.owner], Watched.newest._state.owners
        safe = [m for m in msg_ids if stored.holds(self.owner, m)]
        self.world.confirmed[self.owner] |= {n for m in safe if held[n := int.from_bytes(m[8:], "big")]}

    def store(self, numbers):
        self.world.held[self.owner].update(numbers)
        self.write(*numbers)

    def settle(self, numbers):
        held, confirmed = self.world.held[self.owner], self.world.confirmed[self.owner]
        numbers = [n for n in numbers if held[n] > 0]
        held.subtract(numbers)
        confirmed.difference_update(n for n in numbers if not held[n])
        self.remove(*numbers)

    def check(self, numbers):
        held = self.world.held[self.owner]
        wanted = [n for n in numbers if held[n] > 0]
        if len(wanted) == 1:
            assert self.client.read(msg_id(wanted[0])) == body_of(wanted[0])
        else:
            found = self.client.read_many([msg_id(n) for n in wanted])
            assert found == {msg_id(n): body_of(n) for n in wanted}


class World(StoreHost):
    """The store, its queues, and a die."""

    def __init__(self, seed, settings=SMALL):
        self.rng = random.Random(seed)
        self.sim = Simulation(seed)
        super().__init__(self.sim, new_disk(seed), settings)
        self.sink = MemorySink()
        self.runs = 0
        self.held = {owner: Counter() for owner in OWNERS}
        self.confirmed = {owner: set() for owner in OWNERS}
        self.queues = {}

    def references(self):
        for owner in OWNERS:
            yield owner, [[msg_id(n) for n in self.held[owner].elements()]]

    def boot(self):
        """One process: one run in the trace."""
        self.runs += 1
        self.disk.before_op = lambda _op, _path: self.sim.checkpoint()
        self.sim.recorder = Recorder(self.sink, run=f"{self.runs:06d}", boot=self.runs, clock=self.sim)
        self.raise_all()

    def raise_all(self):
        self.start()
        for owner in OWNERS:
            self.raise_queue(owner)

    def raise_queue(self, owner):
        self.queues[owner] = self.sim.start(Believer, owner, self, name=owner)

    def some(self, most=20):
        return sorted(self.rng.sample(POOL, self.rng.randint(1, most)))

    def step(self):
        """Mostly casts, so that mail piles up; what dies is started again."""
        rng, owner = self.rng, self.rng.choice(OWNERS)
        queue, numbers = self.queues[owner], self.some()
        match rng.choices(range(8), (40, 10, 15, 12, 3, 1, 1, 8))[0]:
            case 0:
                self.sim.cast(queue, lambda q: q.store([n for n in numbers if not self.held[owner][n]]))
            case 1:
                self.sim.cast(queue, lambda q: q.settle(numbers))
            case 2:
                self.sim.cast(queue, lambda q: q.check(numbers))
            case 3:
                self.sim.cast(queue, lambda q: q.settle([n for n in POOL if n % 7]))
            case 4:
                self.sim.kill(queue)
                self.raise_queue(owner)
            case 5:
                victim = rng.choice((STORE, f"{STORE}_gc"))
                self.sim.kill(self.sim.whereis(victim))
                self.until(lambda: not self.sim.is_registered(STORE))  # it goes when its collector goes
                for each in self.queues.values():  # as the supervisor does
                    self.sim.stop_actor(each)
                self.raise_all()
            case 6:
                for each in self.queues.values():
                    self.sim.stop_actor(each)
                self.sim.stop_actor(self.store)
                self.raise_all()
            case 7:
                self.sim.event().wait(rng.choice((0.0001, 0.01, 0.1, 16.0)))

    def at_rest(self):
        for queue in self.queues.values():
            self.ask(queue, lambda q: None)
        state = self.rest()
        check_at_rest(state, self.disk)
        for owner in OWNERS:
            believed = Counter({msg_id(n): count for n, count in self.held[owner].items() if count})
            assert Counter(state.owners.held(owner)) == believed
            assert self.confirmed[owner] <= {n for n, count in self.held[owner].items() if count}

    def raise_again(self, owner):
        """Restart a dead actor as its supervisor does."""
        if not self.sim.is_registered(owner):
            self.raise_queue(owner)

    def state(self):
        return Watched.newest._state

    def idle(self):
        """Wait some intervals of garbage collection; True if at most half of the store is garbage then."""
        self.sim.event().wait(4 * CHECK_INTERVAL)
        self.at_rest()
        files = self.state().tables.files
        assert files.sum_file_size <= 2 * files.sum_valid_data
        assert not self.state().gc.wants_a_look

    def stop(self):
        """A clean stop after a quiet minute: the replay looks at the garbage, too."""
        self.sim.event().wait(60.0)
        for each in self.queues.values():
            self.sim.stop_actor(each)
        self.sim.stop_actor(self.store)

    def live(self, steps):
        self.boot()
        for _ in range(steps):
            self.step()
        self.at_rest()
        for owner in OWNERS:
            self.ask(self.queues[owner], lambda q: q.check(POOL))


def check_trace(world):
    result = replay_memory(world.sink.files())
    wrong = [finding for finding in result.violations if finding.rule not in QUEUES_RULES]
    assert not wrong, "\n".join(map(str, wrong))
