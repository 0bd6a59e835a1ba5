"""The power goes at every operation of a short life of a store: nothing confirmed is lost, and nothing raises."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.support.store import check_tables, msg_id, new_disk
from tests.support.store_world import StoreWorld
from warrenmq.storage.sim_disk import PowerCut

OWNERS = ["q", "p"]


@pytest.fixture(autouse=True)
def logs():
    with capture_logs() as captured:
        yield captured


def life(world):
    """Rolls over, deletes, combines, stops and starts; 0 to 9 are shared by two queues."""
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
    world.rest()
    world.stop()
    world.open()
    world.write("q", range(40, 44))
    world.remove("p", [msg_id(n) for n in range(8)])
    world.rest()


def run_until(world, operation):
    """Live until this operation begins; False if life ended before."""
    left = [operation]

    def before_op(op, _path):
        if op != "pread":
            left[0] -= 1
            if left[0] < 0:
                raise PowerCut

    world.disk.before_op = before_op
    try:
        life(world)
    except PowerCut:
        return True
    finally:
        world.disk.before_op = None
    return False


def operations():
    world, count = StoreWorld(new_disk(), OWNERS), [0]

    def before_op(op, _path):
        count[0] += op != "pread"

    world.disk.before_op = before_op
    life(world)
    return count[0]


@pytest.mark.parametrize("operation", range(operations()))
def test_power_cut_before(operation):
    """`StoreWorld.register` checks that what was confirmed is there, byte by byte."""
    for seed in range(3):
        world = StoreWorld(new_disk(seed), OWNERS)
        assert run_until(world, operation)
        world.disk.power_cut()
        world.open()
        check_tables(world.state, world.disk)
        world.rest()


@pytest.mark.parametrize("operation", range(25))
def test_a_second_power_cut_during_the_recovery_from_the_first(operation):
    for seed in range(6):
        world = StoreWorld(new_disk(seed), OWNERS)
        run_until(world, 37)
        world.disk.power_cut()
        left = [operation]

        def before_op(op, _path, left=left):
            left[0] -= op != "pread"
            if left[0] < 0:
                raise PowerCut

        world.disk.before_op = before_op
        try:
            world.open()
        except PowerCut:
            pass
        world.disk.before_op = None
        world.disk.power_cut()
        world.open()
        world.rest()
