"""rabbit_alarm: registered processes receive every change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pykka import ActorRef

from warrenmq.actors.node.alarm import ClearAlarm, GetAlarms, RabbitAlarm, Register, ResourceAlert, SetAlarm
from warrenmq.node.alarms import Alarms
from warrenmq.runtime import Server, Simulation


class Connection(Server):
    """Notes each message it receives."""

    def init(self, told: list[Any]) -> None:
        self._told = told

    def handle_cast(self, message: Any) -> None:
        self._told.append(message)


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(4) as made:
        yield made


def start(sim: Simulation) -> tuple[ActorRef[RabbitAlarm], Alarms]:
    alarms = Alarms()
    return sim.start(RabbitAlarm, alarms), alarms


def sources(sim: Simulation, alarm: ActorRef[RabbitAlarm]) -> list[str]:
    return [each.source for each in sim.call(alarm, GetAlarms())]


def test_a_new_listener_gets_the_alarms_that_are_set_and_then_every_change(sim: Simulation) -> None:
    alarm, _ = start(sim)
    sim.cast(alarm, SetAlarm("disk", 1, 2))
    told: list[Any] = []
    (known,) = sim.call(alarm, Register(sim.start(Connection, told)))
    assert (known.source, known.measured, known.limit, known.since_ns) == ("disk", 1, 2, known.since_ns)
    for message in (SetAlarm("memory", 3, 2), ClearAlarm("disk", 2, 2), ClearAlarm("memory", 1, 2)):
        sim.cast(alarm, message)
    sim.event().wait(1)
    assert told == [
        ResourceAlert("memory", is_set=True),
        ResourceAlert("disk", is_set=False),
        ResourceAlert("memory", is_set=False),
    ]


def test_asking_twice_changes_and_tells_nothing(sim: Simulation) -> None:
    alarm, _ = start(sim)
    told: list[Any] = []
    sim.call(alarm, Register(sim.start(Connection, told)))
    sim.cast(alarm, ClearAlarm("disk", 5, 2))
    for _ in range(3):
        sim.cast(alarm, SetAlarm("disk", 1, 2))
    sim.event().wait(1)
    assert told == [ResourceAlert("disk", is_set=True)]
    assert sources(sim, alarm) == ["disk"]


def test_dead_processes_get_no_alarm(sim: Simulation) -> None:
    alarm, _ = start(sim)
    told: list[Any] = []
    dead, living = sim.start(Connection, []), sim.start(Connection, told)
    sim.call(alarm, Register(dead))
    sim.call(alarm, Register(living))
    sim.kill(dead)
    sim.cast(alarm, SetAlarm("memory", 3, 2))
    sim.event().wait(1)
    assert told == [ResourceAlert("memory", is_set=True)]


def test_a_successor_knows_what_is_set(sim: Simulation) -> None:
    alarm, alarms = start(sim)
    sim.cast(alarm, SetAlarm("memory", 3, 2))
    assert sources(sim, alarm) == ["memory"]
    sim.kill(alarm)
    assert sources(sim, sim.start(RabbitAlarm, alarms)) == ["memory"]
