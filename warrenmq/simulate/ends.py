"""The ends of a simulated broker and of its processes: what its client does before one, and has checked after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.settings import Settings
from warrenmq.simulate.after_end import check_queues, check_reopened
from warrenmq.simulate.publishing import Publishing
from warrenmq.simulate.script import MORE_QUEUES, QUEUES, Step
from warrenmq.simulate.session import Session
from warrenmq.testing import SimulatedMachine

_ACKED = 1.5
"""Seconds after which an ack is on disk: 200 ms, and what a slow disk takes."""
_MET = 1.0
"""Seconds in which a queue's process writes what it was sent, and meets the error of its disk."""
_RELEASED = 3.0
"""Seconds after which a delayed message that is due is where it goes."""
_WITHOUT_CHECKSUM = (".qi", ".jif", ".idx")


class Ends:
    """Brings the broker or one of its processes to an end, waits until it is back, and has its queues checked.

    lost  messages that damage cost, and that the broker told of
    """

    def __init__(
        self,
        machine: SimulatedMachine,
        settings: Mapping[str, Settings],
        session: Session,
        publishing: Publishing,
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._session = session
        self._faults = session.faults
        self._publishing = publishing
        self.lost = 0

    # -- steps

    def restart(self, step: Step) -> None:
        if not self._faults.may_refuse:
            if step.number("settle"):
                self._publishing.settle()
                self._wait_for_threads()
            self._close()
            if not step.number("settle"):
                self._publishing.closed()
            clean = True
        else:
            self._machine.crash(power_cut=False)
            clean = False
        profile = step.word("profile")
        if profile != "same":
            self._machine.settings = self._settings[profile]
        self.open_again(clean=clean)

    def crash(self, step: Step) -> None:
        if not self._faults.ever_refused:
            for model in self._session.models.values():
                model.acks_are_safe(self._session.now() - _ACKED)
        self._session.may_be_torn |= bool(step.number("cut"))
        self._machine.crash(power_cut=bool(step.number("cut")))
        self.open_again()

    def kill(self, step: Step, meanwhile: Callable[[], None] | None = None) -> None:
        """`meanwhile` is called when the next process is there, before the queues are checked."""
        victim = step.word("victim")
        if self._faults.may_refuse:
            return  # a broker cannot start on a disk that refuses writes
        one_queue = victim in (*QUEUES, *MORE_QUEUES)
        if one_queue and victim not in self._session.models:
            return
        name = queue_name(victim) if one_queue else victim
        last = name if one_queue else "vhost_process"
        sim = self._machine.sim
        if not sim.is_registered(name) or not sim.is_registered(last):
            return  # it is being restarted already
        names = (victim,) if one_queue else tuple(self._session.models)
        sent = {each: self._session.models[each].surely_sent() for each in names}
        self._session.may_nack = True
        before = sim.whereis(last)
        self._publishing.look()
        # An alarm holds up what has a queue write.
        how = "kill" if self._faults.may_block or not one_queue else step.word("how")
        if how != "kill" and self._machine.settings.commit_log:
            self._fail_a_sync(victim)
            return
        if how != "kill":
            self._session.may_be_torn = True
            self._faults.break_disk_of(str(name), "datasync" if how == "sync" else "")
            self._publishing.publish_one(victim)
            self._machine.sleep(_MET)
            if not self._faults.mend_disk() or (sim.is_registered(name) and sim.whereis(name) is before):
                return  # it had nothing to write, or writes again what it wrote in passing
        else:
            sim.kill(sim.whereis(name))
        asleep = self._session.broker.inside.vhost.asleep
        self._machine.wait_until(
            lambda: (sim.is_registered(last) and sim.whereis(last) is not before) or victim in asleep
        )
        self._publishing.killed(names)
        self._session.rejects_were_cut_off(names)
        self._faults.after_kill()
        self._publishing.look()
        if meanwhile is not None:
            meanwhile()
        self.lost += check_queues(self._session, sent, clean=False, is_safe=not one_queue)

    def _fail_a_sync(self, victim: str) -> None:
        """Fail a sync of the log or of a file, and end the broker: a commit log that could not sync a data
        file takes nothing more.
        """
        before = self._session.now()
        self._session.may_be_torn = True
        self._faults.break_disk_of("", "datasync")
        self._publishing.publish_one(victim)
        self._machine.sleep(_MET)
        if not self._faults.mend_disk():
            return
        self._session.may_fall = True
        for model in self._session.models.values():
            model.acks_are_safe(before - _ACKED)
        self._machine.crash(power_cut=self._machine.seed // 8 % 2 == 1)
        self.open_again()

    def flip(self, step: Step) -> None:
        self._machine.crash(power_cut=False)
        if (path := self._faults.flip(step.word("file"), step.number("bit"))) is not None:
            self._session.damaged(silently=path.endswith(_WITHOUT_CHECKSUM))
        self.open_again()

    # -- between steps

    def open_again(self, *, clean: bool = False) -> None:
        """Open the broker after an end, and check what it has."""
        self._publishing.ended()
        self._session.amqp = None
        self._faults.after_end()
        self._session.broker = self._machine.open()
        self.lost += check_reopened(self._session, clean=clean)

    def finish(self) -> None:
        """Let all that is due come, then stop cleanly, restart and check all queues."""
        self._faults.end_all()
        if self._faults.may_refuse:
            raise AssertionError("a fault outlived the script")
        self._publishing.raise_from_threads()
        self._wait_for_threads()
        self._publishing.settle()
        self._wait_for_dues()
        self._close()
        self.open_again(clean=True)

    def _close(self) -> None:
        """Stop the broker cleanly, and its connection before it."""
        if self._session.amqp is not None:
            self._session.amqp.hang_up("connection")
        self._session.may_nack = True  # what other threads are still sending
        self._session.broker.close()

    def _wait_for_threads(self) -> None:
        """Let other publishers of the application come to their end, and dead letters to their queue."""
        self._machine.sleep(1.0)
        self._session.dead_letters_arrived()

    def _wait_for_dues(self) -> None:
        """Let every delayed message come."""
        if self._session.later and not self._faults.ever_refused and not self._faults.clock_jumped:
            due_at = max(due_at for _, _, due_at in self._session.later)
            self._machine.sleep(max(0.0, due_at - self._session.now()) + _RELEASED)
            for model in self._session.models.values():
                if not model.rejects:
                    model.dues_came()
