"""The power goes at every operation of a short life of a store: nothing confirmed is lost, and nothing raises."""

from random import Random

import pytest

from tests.message_store.kit import SMALL, SMALL_IN_PLACE, check_tables, msg_id, new_disk
from tests.message_store.store_world import StoreWorld
from tests.support.logged import LoggedSimulation
from warrenmq.commit_log import disk as logged_disk

OWNERS = ["q", "p"]


pytestmark = pytest.mark.usefixtures("logs")


def life(world):
    """Rolls over, deletes, combines or compacts, stops and starts; 0 to 9 are shared by two queues."""
    world.write("q", range(24))
    world.write("p", range(10))
    world.deliver_all()
    world.sync()
    world.remove("q", [msg_id(n) for n in range(24) if n % 3])
    world.deliver_all()
    world.write("p", range(30, 34))
    world.deliver_all()
    while world.jobs:
        world.run_job()
    world.idle()
    world.stop()
    world.open()
    world.write("q", range(40, 44))
    world.remove("p", [msg_id(n) for n in range(8)])
    world.idle()


def run_until(world, operation):
    """Live until this operation begins; False if life ended before."""
    with world.disk.power_fails_at(operation, reads=False) as outage:
        life(world)
    return outage.came


def operations(settings):
    world, count = StoreWorld(new_disk(), OWNERS, settings), [0]

    def before_op(op, _path):
        count[0] += op != "pread"

    world.disk.before_op = before_op
    life(world)
    return count[0]


COLLECTORS = {"combine": SMALL, "compact": SMALL_IN_PLACE}
EVERY_OPERATION = [
    (name, n) for name, settings in COLLECTORS.items() for n in range(1, operations(settings) + 1)
]


@pytest.mark.parametrize(("collector", "operation"), EVERY_OPERATION)
@pytest.mark.parametrize("power", [True, False])
def test_power_cut_before(collector, operation, power):
    """`StoreWorld.register` checks that what was confirmed is there, byte by byte."""
    for seed in range(3):
        world = StoreWorld(new_disk(seed), OWNERS, COLLECTORS[collector])
        assert run_until(world, operation)
        if power:
            world.disk.power_cut()
        world.settings = SMALL_IN_PLACE if seed else SMALL
        world.open()
        assert power or not world.damaged, "what is half done is not damaged"
        check_tables(world.state, world.disk)
        world.rest()


@pytest.mark.parametrize("operation", range(1, 26))
@pytest.mark.parametrize("collector", COLLECTORS)
def test_a_second_power_cut_during_the_recovery_from_the_first(collector, operation):
    for seed in range(6):
        world = StoreWorld(new_disk(seed), OWNERS, COLLECTORS[collector])
        run_until(world, 38)
        world.disk.power_cut()
        with world.disk.power_fails_at(operation, reads=False):
            world.open()
        world.disk.power_cut()
        world.open()
        world.rest()


@pytest.mark.parametrize("collector", COLLECTORS)
@pytest.mark.parametrize("power", [True, False])
def test_with_a_commit_log_nothing_confirmed_is_lost_either(collector, power, monkeypatch):
    """Without a power cut the store's process is killed, and its successor goes on with the same log."""
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 8192)
    chance = Random(collector)
    operation = 1
    while True:
        world = StoreWorld(LoggedSimulation(new_disk(operation), "/store"), OWNERS, COLLECTORS[collector])
        if not run_until(world, operation):
            break
        if power:
            world.disk.power_cut()
        world.settings = chance.choice([SMALL_IN_PLACE, SMALL])
        world.open()
        assert power or not world.damaged, "what is half done is not damaged"
        check_tables(world.state, world.disk)
        world.rest()
        operation += 1
    assert operation > 60
