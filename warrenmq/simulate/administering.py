"""The steps of a script that change queues as a whole: policies, purges and deletions."""

from __future__ import annotations

from warrenmq.errors import Error, Nacked, PreconditionFailed, Returned
from warrenmq.simulate.messages import PromiseBroken
from warrenmq.simulate.script import Step
from warrenmq.simulate.session import Session
from warrenmq.simulate.topology import ALL_POLICIES, DEAD_LETTERS, GRAVES, MORE_POLICIES

_ALL = 1_000_000
"""More messages than any queue of a script holds."""
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
            if model.has_dropped:
                return  # what expires or is dropped later would be dead-lettered, too
            session.queue("dead")
        if key in MORE_POLICIES and DEAD_LETTERS in MORE_POLICIES[key]:
            session.queue("dead")
            if key == GRAVES:
                session.bind_graves()
        session.changing.add(name)
        sent_before = {*model.copies}
        model.policy(key)
        session.link_dead_letters()
        session.may_nack |= model.rejects
        try:
            if key == "none":
                session.broker.clear_policy(f"of {name}")
                session.policies.pop(name)
            else:
                session.broker.set_policy(f"of {name}", f"^{name}$", ALL_POLICIES[key], apply_to="queues")
                session.policies[name] = key
        except Error:  # the disk is full: the old one holds, if any
            model.policy_is_in_doubt()
            raise
        # by a second thread: the queue may have taken it before
        for number in model.copies.keys() - sent_before:
            model.copies[number].has_ttl = False
        model.policy_holds()
        session.disturbed()
        session.changing.discard(name)
        model.check_length(queue.info().ready)
        if model.length.bytes is not None:
            model.check_bytes(each.body for each in queue.peek(_ALL))

    def purge(self, step: Step) -> None:
        session, name = self._session, step.word("queue")
        queue = session.queue(name)
        session.models[name].asked()
        session.models[name].purging()
        session.disturbed()
        queue.purge()
        session.models[name].purged()

    def delete(self, step: Step) -> None:
        session, name = self._session, step.word("queue")
        session.queue(name)
        session.deleting(name)
        session.broker.delete_queue(name)
        self._deleted(name)

    def delete_if(self, step: Step) -> None:
        """Delete a queue if it is empty or unused; it is not while a consumer is there."""
        session, name, how = self._session, step.word("queue"), step.word("how")
        queue = session.queue(name)
        model = session.models[name]
        queue.info()  # behind earlier nacks
        if how == "used":
            with queue.consume(prefetch=1):
                self._check_refused(name)
            session.was_consumed(name)
            return
        model.asked()
        session.deleting(name)
        try:
            session.broker.delete_queue(name, if_empty=how == "empty", if_unused=how == "unused")
        except PreconditionFailed:
            if how == "unused" or not model.may_hold_something:
                raise
            session.not_deleted()
            return
        if how == "empty" and model.waiting():
            raise PromiseBroken(
                "not empty", f"queue {name} was deleted, though it held messages {model.waiting()}"
            )
        self._deleted(name)

    def _check_refused(self, name: str) -> None:
        try:
            self._session.broker.delete_queue(name, if_unused=True)
        except PreconditionFailed:
            return
        raise PromiseBroken(
            "in use", f"queue {name} was deleted, though it has a consumer and must be unused"
        )

    def _deleted(self, name: str) -> None:
        """A deletion has returned."""
        session = self._session
        session.deletion_returned(name)
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
