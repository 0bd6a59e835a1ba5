"""The client application of a simulated run: carries out a script, and has each end of its broker checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.errors import Blocked, Error, Nacked
from warrenmq.simulate.after_end import check_queues, check_reopened
from warrenmq.simulate.publishing import Publishing
from warrenmq.simulate.receiving import Receiving
from warrenmq.simulate.script import QUEUES, VERBS
from warrenmq.simulate.session import Session
from warrenmq.simulate.topology import POLICIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warrenmq.settings import Settings
    from warrenmq.simulate.script import Script, Step
    from warrenmq.testing import SimulatedMachine

_ARRIVED = 0.3
"""Seconds after which a dead letter is where it goes, unless the disk is full."""
_ACKED = 1.5
"""Seconds after which an ack is on disk: 200 ms, and what a slow disk takes."""
_RELEASED = 3.0
"""Seconds after which a delayed message that is due is where it goes."""
_WITHOUT_CHECKSUM = (".qi", ".jif", ".idx")
_ENDS = ("crash", "crash_at", "restart", "flip")


class Application:
    """A client application with one main thread, extra publisher threads where the script asks for them, and a client over AMQP.

    session  what it knows of its broker
    lost     messages that damage cost, and that the broker told of
    """

    def __init__(self, machine: SimulatedMachine, settings: Mapping[str, Settings]) -> None:
        self._machine = machine
        self._settings = settings
        self.session = Session(machine)
        self._faults = self.session.faults
        self._publishing = Publishing(self.session)
        self._receiving = Receiving(self.session, self._publishing.look)
        self.lost = 0
        self._do_step: dict[str, Callable[[Step], None]] = {
            verb: next((getattr(each, verb) for each in (self._publishing, self._receiving, self) if hasattr(each, verb)), self.fault)
            for verb in VERBS
        }  # fmt: skip

    def do(self, script: Script) -> None:
        """Carry out every step, then stop cleanly, restart and check all queues.  Raises PromiseBroken."""
        place = 0
        while place < len(script):
            place = self._do_until_an_end(script, place)
        self._finish()

    def _do_until_an_end(self, script: Script, place: int) -> int:
        """Carry out one step, or a `crash_at` with the steps up to the next end of the broker.  Returns the index of the next step."""
        step = script[place]
        if step.verb != "crash_at":
            self._do(step)
            return place + 1
        end = next((n for n in range(place + 1, len(script)) if script[n].verb in _ENDS), len(script))
        reached = place
        with self._machine.crash_at(step.number("operation"), power_cut=bool(step.number("cut"))) as outage:
            for reached in range(place + 1, end):
                self._do(script[reached])
        if outage.came:
            self._open_again()
            return reached + 1
        return end

    def _do(self, step: Step) -> None:
        self._raise()
        try:
            self._do_step[step.verb](step)
        except Blocked:
            if not self._faults.may_block:
                raise
        except (Nacked, TimeoutError, OSError, Error):
            if not self._faults.may_refuse:
                raise

    def _raise(self) -> None:
        """Raise what another thread of the application raised."""
        if self._publishing.raised:
            raise self._publishing.raised[0]

    # -- what an application does

    def policy(self, step: Step) -> None:
        name, key = step.word("queue"), step.word("is")
        if key == self.session.policies.get(name, "none"):
            return
        queue = self.session.queue(name)
        model = self.session.models[name]
        if key == "dead":
            if model.may_drop:
                return  # what expires or is dropped later would be dead-lettered, too
            self.session.queue("dead")
        self.session.changing = name
        model.policy(key)
        self.session.may_nack |= model.rejects
        if key == "none":
            self.session.broker.clear_policy(f"of {name}")
            self.session.policies.pop(name)
        else:
            self.session.broker.set_policy(f"of {name}", f"^{name}$", POLICIES[key], apply_to="queues")
            self.session.policies[name] = key
        self.session.changing = ""
        model.check_length(queue.info().ready)

    def purge(self, step: Step) -> None:
        name = step.word("queue")
        queue = self.session.queue(name)
        self.session.models[name].asked()
        self.session.models[name].purging()
        queue.purge()
        self.session.models[name].purged()

    def delete(self, step: Step) -> None:
        name = step.word("queue")
        self.session.queue(name)
        self.session.deleting(name)
        self.session.broker.delete_queue(name)
        self.session.being_deleted = ""
        self.session.gone(name)
        self.session.deleted.add(name)
        self.session.may_nack = True
        self.session.held = [each for each in self.session.held if each.queue != name]

    def sleep(self, step: Step) -> None:
        seconds = step.number("ms") / 1000
        self._machine.sleep(min(seconds, _ARRIVED))
        self._publishing.look()
        if seconds >= _ARRIVED:
            self.session.dead_letters_arrived()
            self._machine.sleep(seconds - _ARRIVED)

    def fault(self, step: Step) -> None:
        self._faults.do(step)
        if self._faults.may_refuse:
            for model in self.session.models.values():
                model.may_refuse()

    # -- ends of processes

    def restart(self, step: Step) -> None:
        if not self._faults.may_refuse:
            self._publishing.settle()
            self._wait_for_threads()
            self._close()
            clean = True
        else:
            self._machine.crash(power_cut=False)
            clean = False
        profile = step.word("profile")
        if profile != "same":
            self._machine.settings = self._settings[profile]
        self._open_again(clean=clean)

    def _close(self) -> None:
        """Stop the broker cleanly, and its connection before it."""
        if self.session.amqp is not None:
            self.session.amqp.hang_up("connection")
        self.session.broker.close()

    def crash(self, step: Step) -> None:
        if not self._faults.ever_refused:
            for model in self.session.models.values():
                model.acks_are_safe(self.session.now() - _ACKED)
        self._machine.crash(power_cut=bool(step.number("cut")))
        self._open_again()

    def kill(self, step: Step) -> None:
        victim = step.word("victim")
        if self._faults.may_refuse:
            return  # a broker cannot start on a disk that refuses writes
        one_queue = victim in QUEUES
        if one_queue and victim not in self.session.models:
            return
        name = queue_name(victim) if one_queue else victim
        last = name if one_queue else "vhost_process"
        sim = self._machine.sim
        if not sim.is_registered(name) or not sim.is_registered(last):
            return  # it is being restarted already
        names = (victim,) if one_queue else tuple(self.session.models)
        sent = {each: self.session.models[each].surely_sent() for each in names}
        self.session.may_nack = True
        before = sim.whereis(last)
        self._publishing.look()
        sim.kill(sim.whereis(name))
        asleep = self.session.broker.vhost.asleep
        self._machine.wait_until(
            lambda: (sim.is_registered(last) and sim.whereis(last) is not before) or victim in asleep
        )
        self._publishing.killed(names)
        self._faults.after_kill()
        self._publishing.look()
        self.lost += check_queues(self.session, sent, clean=False, is_safe=not one_queue)

    def flip(self, step: Step) -> None:
        self._machine.crash(power_cut=False)
        if (path := self._faults.flip(step.word("file"), step.number("bit"))) is not None:
            self.session.damaged(silently=path.endswith(_WITHOUT_CHECKSUM))
        self._open_again()

    def _wait_for_threads(self) -> None:
        """Let other publishers of the application come to their end, and dead letters to their queue."""
        self._machine.sleep(1.0)
        self.session.dead_letters_arrived()

    def _open_again(self, *, clean: bool = False) -> None:
        self._publishing.ended()
        self.session.amqp = None
        self._faults.after_end()
        self.session.broker = self._machine.open()
        self.lost += check_reopened(self.session, clean=clean)

    def _finish(self) -> None:
        self._faults.end_all()
        if self._faults.may_refuse:
            raise AssertionError("a fault outlived the script")
        self._raise()
        self._wait_for_threads()
        self._publishing.settle()
        self._wait_for_dues()
        self._close()
        self._open_again(clean=True)

    def _wait_for_dues(self) -> None:
        """Let every delayed message come."""
        if self.session.later and not self._faults.ever_refused and not self._faults.clock_jumped:
            due_at = max(due_at for _, _, due_at in self.session.later)
            self._machine.sleep(max(0.0, due_at - self.session.now()) + _RELEASED)
            for model in self.session.models.values():
                if not model.rejects:
                    model.dues_came()
