"""The store's actors in simulation: three queues share messages, and everything gets killed now and then."""

import pytest

from tests.message_store.believers import World, check_trace
from tests.message_store.kit import SMALL, SMALL_IN_PLACE

COLLECTORS = pytest.mark.parametrize("settings", [SMALL, SMALL_IN_PLACE], ids=["combine", "compact"])


pytestmark = pytest.mark.usefixtures("logs")


@COLLECTORS
@pytest.mark.parametrize("seed", range(15))
def test_queues_that_share_messages_and_die_neither_leak_nor_steal(seed, settings):
    world = World(seed, settings)
    with world.sim:
        world.sim.run(lambda: world.live(150))
        world.sim.crash()
    check_trace(world)


@COLLECTORS
@pytest.mark.parametrize("seed", range(100, 110))
def test_nothing_confirmed_is_lost_when_the_machine_goes_dark(seed, settings):
    world = World(seed, settings)
    with world.sim:
        for _ in range(4):
            world.settings = world.rng.choice((SMALL, SMALL_IN_PLACE))
            world.boot()
            world.sim.run(lambda: [world.step() for _ in range(40)])
            world.sim.crash()
            world.disk.before_op = None
            world.disk.power_cut()
        world.sim.run(lambda: world.live(20))
        world.sim.crash()


@COLLECTORS
def test_the_same_seed_gives_the_same_trace(settings):
    traces = []
    for _ in range(2):
        world = World(7, settings)
        with world.sim:
            world.sim.run(lambda world=world: world.live(60))
            world.sim.crash()
        traces.append(world.sink.files())
    assert traces[0] == traces[1]


@COLLECTORS
@pytest.mark.parametrize("seed", range(200, 208))
def test_a_store_in_which_nothing_happens_gets_below_one_half_garbage(seed, settings):
    """The history before does not matter: removes from the current file, postponed files, killed readers, restarts."""
    world = World(seed, settings)
    with world.sim:
        world.sim.run(lambda: world.live(world.rng.choice((5, 40, 150))))
        world.sim.run(world.idle)
        world.sim.run(world.stop)
        world.sim.crash()
    check_trace(world)


def steps_of_a_life(world, count):
    """Have `count` called at every point where another actor may run."""
    checkpoint = world.sim.checkpoint

    def counted():
        count()
        checkpoint()

    world.sim.checkpoint = counted
    world.boot()
    for numbers in (range(30), range(30, 60)):
        world.sim.cast(world.queues["q1"], lambda q, numbers=numbers: q.store(numbers))
    world.sim.cast(world.queues["q2"], lambda q: q.store(range(20)))
    world.sim.event().wait(0.05)
    world.sim.cast(world.queues["q1"], lambda q: q.settle([n for n in range(60) if n % 4]))
    world.sim.cast(world.queues["q1"], lambda q: q.check(range(0, 60, 4)))
    world.sim.cast(world.queues["q2"], lambda q: q.settle([n for n in range(20) if n % 4]))
    for number in range(0, 60, 8):
        world.sim.cast(world.queues["q1"], lambda q, number=number: q.check([number]))
    world.sim.event().wait(0.1)
    world.sim.checkpoint = checkpoint


@COLLECTORS
def test_a_queue_killed_at_any_step_leaves_nothing_behind(settings):
    """Writes in flight, bodies in the cache, references, direct reads that the collector waits for, confirms."""
    steps = [0]

    def count():
        steps[0] += 1

    world = World(0, settings)
    with world.sim:
        world.sim.run(lambda: steps_of_a_life(world, count))
        world.sim.crash()
    assert steps[0] > 60
    for victim in range(steps[0] + 20):
        world, left = World(victim, settings), [victim]

        def kill(world=world, left=left):
            left[0] -= 1
            if left[0] == 0 and "q1" in world.queues:
                world.sim.kill(world.queues["q1"])

        with world.sim:
            world.sim.run(lambda world=world, kill=kill: steps_of_a_life(world, kill))
            world.sim.run(lambda world=world: world.raise_again("q1"))
            world.sim.run(world.at_rest)
            state = world.state()
            assert {client.owner for client in state.clients.values()} == set(world.queues)
            assert not state.writer._waiting
            assert not any(client.unconfirmed for client in state.clients.values())
            assert state.tables.files._clients == set(state.clients)
            assert not any(row.readers or row.awaited for row in state.tables.files.rows.values())
            world.sim.run(world.idle)
            world.sim.crash()
        check_trace(world)
