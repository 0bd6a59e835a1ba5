"""Notices of a death: monitors, links, exit signals, kills, on both schedulers."""

import itertools
import time

import pykka
import pytest

from tests.support.schedulers import LIMIT, Trapper, Worker, busy, crash, do, drained, end_of, take, until
from warrenmq.errors import Fenced
from warrenmq.runtime import CallFailed, Down, Exit, Stop
from warrenmq.runtime.closable import Closable


def test_a_monitor_tells_of_the_death_and_its_reason(runtime):
    notes = runtime.channel()
    watcher, watched = runtime.start(Worker, notes), runtime.start(Worker)
    key = runtime.call(watcher, do(lambda server: server.monitor(watched)))
    runtime.cast(watched, crash)
    (down,) = take(notes, "info")
    assert down == Down(key, watched, watched.actor_inbox.reason)
    assert isinstance(down.reason, RuntimeError)


def test_a_monitor_that_fired_keeps_no_reference_to_the_dead_process(runtime):
    notes = runtime.channel()
    watcher, watched = runtime.start(Worker, notes), runtime.start(Worker)
    runtime.call(watcher, do(lambda server: server.monitor(watched)))
    runtime.stop_actor(watched, timeout=LIMIT)
    take(notes, "info")
    assert runtime.call(watcher, do(lambda server: dict(server._monitors))) == {}


def test_a_monitor_of_the_dead_tells_at_once(runtime):
    notes = runtime.channel()
    watcher, watched = runtime.start(Worker, notes), runtime.start(Worker, name="w")
    runtime.stop_actor(watched, timeout=LIMIT)
    by_ref, by_name = runtime.call(watcher, do(lambda server: (server.monitor(watched), server.monitor("w"))))
    downs = sorted((take(notes, "info")[0] for _ in range(2)), key=lambda down: down.monitor)
    assert downs == [Down(by_ref, watched, "shutdown"), Down(by_name, None, "noproc")]


def test_demonitor_ends_a_monitor_and_leaves_nothing_behind(runtime):
    notes = runtime.channel()
    watcher, watched = runtime.start(Worker, notes), runtime.start(Worker)
    before = len(watched.actor_inbox._callbacks), len(watcher.actor_inbox._callbacks)
    runtime.call(watcher, do(lambda server: server.demonitor(server.monitor(watched))))
    assert (len(watched.actor_inbox._callbacks), len(watcher.actor_inbox._callbacks)) == before
    runtime.stop_actor(watched, timeout=LIMIT)
    runtime.call(watcher, "settle")
    assert [note for note in drained(notes) if note[0] == "info"] == []


def test_a_watcher_that_dies_leaves_nothing_with_the_watched(runtime):
    watcher, watched = runtime.start(Worker), runtime.start(Worker)
    before = len(watched.actor_inbox._callbacks)
    runtime.call(watcher, do(lambda server: server.monitor(watched)))
    runtime.call(watcher, do(lambda server: server.link(watched)))
    runtime.stop_actor(watcher, "normal", timeout=LIMIT)
    assert len(watched.actor_inbox._callbacks) == before


REASONS = [("normal", True), ("shutdown", False), ("bad luck", False)]


@pytest.mark.parametrize(("reason", "survives"), REASONS)
def test_a_link_ends_the_other_unless_the_end_was_normal(runtime, reason, survives):
    one, other = runtime.start(Worker), runtime.start(Worker)
    runtime.call(one, do(lambda server: server.link(other)))

    def stop(_server):
        raise Stop(reason)

    runtime.cast(one, stop)
    if survives:
        end_of(runtime, one)
        assert runtime.call(other, "still here") == []
    else:
        assert end_of(runtime, other) == reason


def test_a_crash_goes_through_a_chain_of_links_with_its_reason(runtime, logs):
    chain = [runtime.start(Worker) for _ in range(4)]
    for one, other in itertools.pairwise(chain):
        runtime.call(one, do(lambda server, other=other: server.link(other)))
    runtime.cast(chain[-1], crash)
    reason = end_of(runtime, chain[0])
    assert isinstance(reason, RuntimeError)
    assert [line["event"] for line in logs] == ["actor crashed"], "said once, where it happened"


def test_an_actor_that_traps_exits_gets_them_as_messages(runtime):
    notes = runtime.channel()
    trapper, other = runtime.start(Trapper, notes), runtime.start(Worker)
    runtime.call(trapper, do(lambda server: server.link(other)))
    runtime.stop_actor(other, "normal", timeout=LIMIT)
    assert take(notes, "info") == (Exit(other, "normal"),)
    assert runtime.call(trapper, "still here") == [Exit(other, "normal")]


@pytest.mark.parametrize("kind", [Worker, Trapper])
@pytest.mark.parametrize("reason", ["normal", "shutdown"])
def test_a_parents_end_ends_its_child_whatever_it_traps(runtime, kind, reason):
    parent = runtime.start(Worker)
    child = runtime.start(kind, parent=parent)
    runtime.stop_actor(parent, reason, timeout=LIMIT)
    assert end_of(runtime, child) == reason


def test_a_child_of_the_dead_ends_at_once(runtime):
    parent = runtime.start(Worker)
    runtime.stop_actor(parent, timeout=LIMIT)
    assert end_of(runtime, runtime.start(Worker, parent=parent)) == "shutdown"


def test_links_leave_nothing_behind(runtime):
    hub = runtime.start(Trapper)
    before = len(hub.actor_inbox._callbacks)
    for _ in range(20):
        end_of(runtime, _linked_and_gone(runtime, hub))
    assert len(hub.actor_inbox._callbacks) == before


def _linked_and_gone(runtime, hub):
    other = runtime.start(Worker)
    runtime.call(hub, do(lambda server: server.link(other)))
    runtime.cast(other, crash)
    return other


def test_stop_actor_says_whether_the_end_came_in_time(runtime):
    worker = runtime.start(Worker)
    gate = busy(runtime, worker)
    assert runtime.stop_actor(worker, timeout=0.01) is False
    gate.set()
    assert end_of(runtime, worker) == "shutdown"
    assert runtime.stop_actor(worker, timeout=0.01) is True


def test_a_killed_actor_has_no_terminate_and_its_name_is_free_at_once(runtime):
    notes = runtime.channel()
    victim, watcher = runtime.start(Worker, notes, name="w"), runtime.start(Worker)
    runtime.call(watcher, do(lambda server: server.monitor(victim)))
    runtime.kill(victim)
    assert not victim.is_alive()
    runtime.start(Worker, name="w")
    until(runtime, lambda: runtime.call(watcher, "downs"))
    assert runtime.call(watcher, "downs")[0].reason == "killed"
    assert drained(notes) == [("init", "w")]
    runtime.kill(victim)


def test_a_call_of_the_killed_fails(runtime):
    victim = runtime.start(Worker)
    gate = busy(runtime, victim)
    killer = runtime.start(Worker)
    runtime.cast(killer, lambda server: server.runtime.kill(victim))
    with pytest.raises(CallFailed, match="killed"):
        runtime.call(victim, "hello", timeout=None)
    gate.set()


def test_a_disowned_actor_that_wakes_can_neither_write_nor_send_nor_take_mail(runtime):
    """A thread cannot be killed: it goes on with its current work, whose effects reach no other actor."""
    notes, witness = runtime.channel(), runtime.start(Worker)
    zombie = runtime.start(Worker, notes)
    inside, gate = runtime.event(), runtime.event()

    def work(server):
        inside.set()
        gate.wait(LIMIT)
        try:
            with server.fence.guard():
                notes.put(("wrote",))
        except Fenced:
            notes.put(("fenced",))
        try:
            server.cast(witness, "from the grave")
        except BaseException as error:
            notes.put(("refused", type(error).__name__))
            raise

    runtime.cast(zombie, work)
    assert inside.wait(LIMIT)
    runtime.cast(zombie, lambda _server: notes.put(("handled",)))
    runtime.disown(zombie)
    gate.set()
    assert take(notes, "fenced") == ()
    assert take(notes, "refused") == ("Killed",)
    runtime.shutdown()
    assert drained(notes) == []
    assert witness.actor_inbox.reason == "shutdown"


def test_an_idle_actor_that_is_disowned_ends(runtime):
    ref = runtime.start(Worker)
    runtime.call(ref, "settle")
    runtime.disown(ref)
    runtime.shutdown()
    assert not getattr(runtime, "_threads", None)


def test_a_death_notice_that_fails_does_not_stop_the_others(runtime, logs):
    worker, told = runtime.start(Worker), runtime.channel()
    worker.actor_inbox.on_close(lambda _reason: 1 / 0)
    worker.actor_inbox.on_close(told.put)
    runtime.stop_actor(worker, timeout=LIMIT)
    assert told.get(timeout=LIMIT) == "shutdown"
    assert [line["event"] for line in logs] == ["a callback of on_close failed"]


def test_when_an_end_is_reported_it_is_complete(runtime):
    """Also who asks while the end is under way: here, while mail that was left is being returned."""
    found = runtime.channel()

    def look(_reason=None):
        found.put((worker.is_alive(), runtime.is_registered("w")))

    class Keeper(Worker):
        def undelivered(self, message):
            self.actor_inbox.on_close(look)

    worker = runtime.start(Keeper, name="w")
    worker.actor_inbox.on_close(lambda _reason: worker.actor_inbox.on_close(look))
    gate = busy(runtime, worker)
    runtime.cast(worker, crash)
    runtime.cast(worker, "left")
    gate.set()
    end_of(runtime, worker)
    assert [found.get(timeout=LIMIT) for _ in range(2)] == [(False, False)] * 2


def test_whereis_of_an_actor_that_died_is_refused(runtime):
    runtime.kill(runtime.start(Worker, name="w"))
    with pytest.raises(pykka.ActorDeadError):
        runtime.whereis("w")


def test_a_killed_actors_children_end_before_its_end_is_reported(runtime):
    """A successor must find the names free and the files unwritten."""
    parent = runtime.start(Worker, name="parent")
    child = runtime.start(Trapper, parent=parent, name="child")
    runtime.start(Worker, parent=child, name="grandchild")
    seen = []
    parent.actor_inbox.on_close(lambda _reason: seen.extend(info.label for info in runtime.living()))
    runtime.kill(parent)
    assert seen == []
    assert child.actor_inbox.reason == "killed"
    assert child.actor_inbox.fence.cut
    for name in ("parent", "child", "grandchild"):
        runtime.start(Worker, name=name)


def test_a_wait_for_the_start_of_an_actor_ends_when_it_is_killed(runtime):
    notes, inside, gate = runtime.channel(), runtime.event(), runtime.event()

    def slow(server):
        notes.put(("slow", server.actor_ref))
        inside.set()
        gate.wait(LIMIT)

    starter = runtime.start(Worker)

    def start(server):
        try:
            server.runtime.start(Worker, None, slow)
        except CallFailed as failure:
            notes.put(("failed", failure.reason))

    runtime.cast(starter, start)
    assert inside.wait(LIMIT)
    (slow_one,) = take(notes, "slow")
    runtime.kill(slow_one)
    assert take(notes, "failed") == ("killed",)
    gate.set()


def test_the_callbacks_of_a_close_take_linear_time():
    """A thousandth of a second each 10,000; looking for the first one anew each time took half a second for 40,000."""
    thing = Closable(iter(range(1, 40_001)).__next__)
    told = []
    for number in range(40_000):
        thing.on_close(lambda _reason, number=number: told.append(number))
    thing.begin_close("over")
    begin = time.process_time()
    thing.notify_closed()
    assert time.process_time() - begin < 0.2
    assert told == list(range(40_000))
