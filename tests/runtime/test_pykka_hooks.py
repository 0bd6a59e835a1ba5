"""Behaviour of Pykka that the runtime relies on, beyond its documented API; if one of these fails, see docs/runtime.md."""

import inspect
import threading

import pykka
import pytest
from pykka import messages

from tests.support.limits import LIMIT


class Letter:
    def __init__(self, message, reply_to=None):
        self.message, self.reply_to = message, reply_to


class Script:
    """An inbox that plays a list, then stops the actor."""

    def __init__(self, *letters):
        self.letters = list(letters)
        self.looks = 0

    def put(self, envelope):
        self.letters.append(envelope)

    def get(self):
        return self.letters.pop(0)

    def empty(self):
        self.looks += 1
        return True


class Actor(pykka.ThreadingActor):
    def __init__(self, inbox, launched):
        self.script, self.launched, self.log = inbox, launched, []
        super().__init__()

    def _create_actor_inbox(self):
        return self.script

    def _start_actor_loop(self):
        self.launched.append(self)

    def on_start(self):
        self.log.append("start")

    def on_receive(self, message):
        self.log.append(message)
        if message == "halt":
            pykka.ActorRegistry.unregister(self.actor_ref)
            self.actor_stopped.set()
        return message

    def on_stop(self):
        self.log.append("stop")

    def on_failure(self, kind, error, traceback):
        self.log.append(error)


def actor_with(*letters):
    launched = []
    ref = Actor.start(Script(*letters), launched)
    return ref, launched[0]


def test_the_inbox_factory_and_the_start_of_the_loop_are_called_on_the_instance():
    ref, actor = actor_with(Letter("halt"))
    assert ref.actor_inbox is actor.script
    actor._actor_loop()
    assert actor.log == ["start", "halt"], "and the loop ends once actor_stopped is set, without on_stop"
    assert actor.script.looks == 1, "the inbox is asked whether it is empty after the end"
    assert ref not in pykka.ActorRegistry.get_all()


def test_the_loop_needs_of_a_letter_its_message_and_where_to_reply_only():
    future = pykka.ThreadingFuture()
    _ref, actor = actor_with(Letter("word", future), Letter("halt"))
    actor._actor_loop()
    assert future.get(timeout=LIMIT) == "word"


def test_put_gets_an_envelope_with_the_same_two():
    ref, actor = actor_with(Letter("halt"))
    ref.tell("told")
    future = ref.ask("asked", block=False)
    _halt, told, asked = actor.script.letters
    assert (told.message, told.reply_to) == ("told", None)
    assert (asked.message, asked.reply_to) == ("asked", future)
    actor._actor_loop()


def test_the_stop_message_lives_beside_the_proxy_messages():
    ref, actor = actor_with()
    future = ref.stop(block=False)
    (stop,) = actor.script.letters
    assert type(stop.message).__module__ == messages.ProxyCall.__module__
    assert not isinstance(stop.message, (messages.ProxyCall, messages.ProxyGetAttr, messages.ProxySetAttr))
    actor._actor_loop()
    assert actor.log == ["start", "stop"]
    assert future.get(timeout=LIMIT) is True


def test_a_crash_calls_on_failure_and_a_handler_is_reached_through_one_method(caplog):
    class Crashing(Actor):
        def _handle_receive(self, message):
            self.log.append(("seen", message))
            raise LookupError(message)

    launched = []
    Crashing.start(Script(Letter("word")), launched)
    launched[0]._actor_loop()
    start, seen, error = launched[0].log
    assert (start, seen, type(error)) == ("start", ("seen", "word"), LookupError)
    assert [record.levelname for record in caplog.records] == ["ERROR"], (
        "a plain actor's crash is logged by Pykka"
    )


def test_futures_come_from_the_class_and_are_made_without_arguments():
    assert inspect.isfunction(inspect.getattr_static(pykka.ThreadingActor, "_create_future").__func__)
    assert isinstance(pykka.ThreadingActor._create_future(), pykka.ThreadingFuture)
    assert type(pykka.ThreadingFuture())()._get_hook is None


@pytest.mark.parametrize("name", ["actor_inbox", "actor_stopped", "actor_class"])
def test_a_reference_has_what_we_read_of_it(name):
    ref, actor = actor_with(Letter("halt"))
    assert hasattr(ref, name)
    assert isinstance(ref.actor_stopped, threading.Event)
    actor._actor_loop()


def test_the_registry_has_one_lock_which_a_forked_child_replaces():
    assert type(pykka.ActorRegistry._actor_refs_lock) is type(threading.RLock())
