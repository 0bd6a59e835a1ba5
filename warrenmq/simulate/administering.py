"""The steps of a script that change queues as a whole: policies, purges and deletions."""

from __future__ import annotations

from warrenmq.errors import Error, Nacked, Returned
from warrenmq.simulate.messages import PromiseBroken
from warrenmq.simulate.script import Step
from warrenmq.simulate.session import Session
from warrenmq.simulate.topology import POLICIES

_ANSWERED = 60.0
"""Seconds within which every publish is answered."""


class Administering:
    """Sets policies, purges and deletes queues, each with its model before the broker answers."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # -- steps

    def policy(self, step: Step) -> None:
        session, name, key = self._session, step.word("queue"), step.word("is")
        if key == session.policies.get(name, "none"):
            return
        queue = session.queue(name)
        model = session.models[name]
        if key == "dead":
            if model.may_drop:
                return  # what expires or is dropped later would be dead-lettered, too
            session.queue("dead")
        session.changing.add(name)
        sent_before = {*model.copies}
        model.policy(key)
        session.may_nack |= model.rejects
        try:
            if key == "none":
                session.broker.clear_policy(f"of {name}")
                session.policies.pop(name)
            else:
                session.broker.set_policy(f"of {name}", f"^{name}$", POLICIES[key], apply_to="queues")
                session.policies[name] = key
        except Error:  # the disk is full: the old one holds, if any
            model.limit = None
            raise
        # by a second thread: the queue may have taken it before
        for number in model.copies.keys() - sent_before:
            model.copies[number].has_ttl = False
        session.changing.discard(name)
        model.check_length(queue.info().ready)

    def purge(self, step: Step) -> None:
        session, name = self._session, step.word("queue")
        queue = session.queue(name)
        session.models[name].asked()
        session.models[name].purging()
        queue.purge()
        session.models[name].purged()

    def delete(self, step: Step) -> None:
        session, name = self._session, step.word("queue")
        session.queue(name)
        session.deleting(name)
        session.broker.delete_queue(name)
        session.being_deleted = ""
        session.gone(name)
        session.deleted.add(name)
        session.may_nack = True
        session.held = [each for each in session.held if each.queue != name]
        if not session.faults.may_block:
            self._check_unroutable(name)

    def _check_unroutable(self, name: str) -> None:
        """Check that what is sent to a queue that was deleted is returned, unless another thread has declared it again."""
        confirm = self._session.broker.publish("", name, b"to a deleted queue", mandatory=True)
        try:
            confirm.result(timeout=_ANSWERED)
        except Returned:
            return
        except (Nacked, TimeoutError):
            pass
        if name in self._session.deleted:
            raise PromiseBroken(
                "still routed", f"a publish to queue {name}, which was deleted, was not returned"
            )
