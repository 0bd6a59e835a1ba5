"""The client application of a simulated run: carries out a script step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from warrenmq.errors import Blocked, Error, Nacked
from warrenmq.settings import Settings
from warrenmq.simulate.administering import Administering
from warrenmq.simulate.auditing import Auditing
from warrenmq.simulate.competing import Competing
from warrenmq.simulate.ends import Ends
from warrenmq.simulate.exchanging import Exchanging
from warrenmq.simulate.lifetimes import Lifetimes
from warrenmq.simulate.publishing import Publishing
from warrenmq.simulate.receiving import Receiving
from warrenmq.simulate.script import VERBS, Script, Step
from warrenmq.simulate.session import Session
from warrenmq.simulate.topology import EXPIRING
from warrenmq.simulate.wide import Wide
from warrenmq.testing import SimulatedMachine

_ARRIVED = 0.3
"""Seconds after which a dead letter is where it goes, unless the disk is full."""
_ENDS = ("crash", "crash_at", "restart", "flip")


class Application:
    """A client application with one main thread, extra publisher threads where the script asks for them, and
    a client over AMQP.

    session  what it knows of its broker
    ends     of its broker, and what they cost
    """

    def __init__(self, machine: SimulatedMachine, settings: Mapping[str, Settings]) -> None:
        self._machine = machine
        self.session = Session(machine)
        self._faults = self.session.faults
        self._publishing = Publishing(self.session)
        self.ends = Ends(machine, settings, self.session, self._publishing)
        receiving = Receiving(self.session, self._publishing.look)
        parts = (
            self._publishing, receiving, Administering(self.session), self.ends,
            Wide(self.session, self._publishing, receiving),
            Exchanging(self.session, self._publishing),
            Auditing(self.session, self._publishing),
            Competing(self.session, self._publishing, receiving, self.ends),
            Lifetimes(self.session, self._publishing, receiving),
            self,
        )  # fmt: skip
        self._do_step: dict[str, Callable[[Step], None]] = {
            verb: next((getattr(part, verb) for part in parts if hasattr(part, verb)), self.fault)
            for verb in VERBS
        }

    def do(self, script: Script) -> None:
        """Carry out every step, then stop cleanly, restart and check all queues.  Raises PromiseBroken."""
        place = 0
        while place < len(script):
            place = self._do_until_an_end(script, place)
        self.ends.finish()

    def _do_until_an_end(self, script: Script, place: int) -> int:
        """Carry out one step, or a `crash_at` with the steps up to the next end of the broker.  Returns the
        index of the next step.
        """
        step = script[place]
        if step.verb != "crash_at":
            self._do(step)
            return place + 1
        end = next((n for n in range(place + 1, len(script)) if script[n].verb in _ENDS), len(script))
        reached = place
        of = step.word("of")
        self.session.may_be_torn |= bool(step.number("cut"))
        with self._machine.crash_at(
            step.number("operation"),
            power_cut=bool(step.number("cut")),
            reads=of != "any",
            counts=self._faults.aim(of),
        ) as outage:
            for reached in range(place + 1, end):
                self._do(script[reached])
        if outage.came:
            self.ends.open_again()
            return reached + 1
        return end

    def _do(self, step: Step) -> None:
        self._publishing.raise_from_threads()
        try:
            self._do_step[step.verb](step)
        except Blocked:
            if not self._faults.may_block:
                raise
        except (Nacked, TimeoutError, OSError, Error):
            if not self._faults.may_refuse:
                raise
        if any(value == EXPIRING for _, value in step.arguments):
            self.session.lease.used(self.session.now())

    # -- steps

    def sleep(self, step: Step) -> None:
        seconds = step.number("ms") / 1000
        self._machine.sleep(min(seconds, _ARRIVED))
        self._publishing.look()
        if seconds >= _ARRIVED:
            self.session.dead_letters_arrived()
            self._machine.sleep(seconds - _ARRIVED)

    def fault(self, step: Step) -> None:
        self._faults.do(step)
        self.session.disturbed()
        if self._faults.may_refuse:
            self.session.may_nack = True  # what the queue has not taken in, too
            for model in self.session.models.values():
                model.may_refuse()
