"""Simulation: same seed, same run; virtual time; deadlocks, kills and crashes of the whole process."""

import gc
import sys
import threading

import greenlet
import pykka
import pytest

from tests.support.schedulers import LIMIT, Trapper, Worker, busy, crash, do, drained, end_of, take
from warrenmq.errors import CallerError
from warrenmq.runtime import CallFailed, Deadlock, Server, Simulation, SimulationCrashed
from warrenmq.runtime.life import inbox_of
from warrenmq.supervisors import ChildSpec, Supervisor
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.sink import MemorySink

SEEDS = 200


class Juggler(Server):
    """Throws what it gets to the next one, one less each time; drops some by crashing."""

    def init(self, log, to):
        self.log, self.to = log, to
        self.send_after(0.025, "tick")

    def tell(self, what, detail=None):
        self.log.append((self.runtime.monotonic_ns(), self.name, what, detail))

    def handle_cast(self, message):
        self.tell("caught", message)
        if message == 13:
            msg = "unlucky"
            raise RuntimeError(msg)
        if message > 0:
            self.cast(self.to, message - 1)

    def handle_call(self, request, _sender):
        self.tell("asked", request)
        return self.runtime.token_bytes(4)

    def handle_info(self, message):
        self.tell("info", message)
        self.send_after(0.025, "tick")

    def mailbox_empty(self):
        self.tell("dry")

    def undelivered(self, message):
        self.tell("undelivered", message)

    def terminate(self, reason):
        self.tell("terminate", repr(reason))


def juggle(seed):
    """A small supervised system that works, crashes, is restarted and stopped: its events and its trace."""
    log, sink = [], MemorySink()
    with Simulation(seed) as sim:
        sim.recorder = Recorder(sink, run=sim.token_bytes(4).hex(), clock=sim)

        def application():
            ring = [("a", "b"), ("b", "c"), ("c", "a")]
            children = [ChildSpec(name, Juggler, (log, to), name=name) for name, to in ring]
            tree = Supervisor.start_link(children=children, strategy="one_for_one", intensity=2, runtime=sim)
            for number in (4, 14, 5):
                sim.cast("a", number)
                sim.cast("c", number)
            sim.event().wait(0.03)
            log.append(sim.call("b", "token"))
            assert sim.stop_actor(tree, timeout=5.0)
            return log

        events = list(sim.run(application))
        sim.recorder.close()
    return events, sink.files()


def test_the_same_seed_is_the_same_run_event_for_event_and_its_trace_byte_for_byte(logs):
    runs = set()
    for seed in range(SEEDS):
        first, second = juggle(seed), juggle(seed)
        assert first == second, f"seed {seed}"
        runs.add(tuple(event[1:] for event in first[0] if isinstance(event, tuple)))
        logs.clear()  # the crashes in it hold on to their frames
    assert len(runs) > SEEDS // 2, "and different seeds are different interleavings"


@pytest.mark.parametrize("act", ["call", "start", "cast"])
def test_another_thread_is_told_that_a_simulation_has_one(act):
    told = []
    with Simulation(7) as sim:
        worker = sim.start(Worker)

        def other():
            acts = {
                "call": lambda: sim.call(worker, "what came"),
                "start": lambda: sim.start(Worker),
                "cast": lambda: [sim.cast(worker, "a word") for _ in range(1_000)],
            }
            try:
                acts[act]()
            except CallerError as error:
                told.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert told == [
            "a simulation runs in the thread that made it, and this is another one; "
            "in place of a thread give it a task, with `sim.spawn(function)`"
        ]
        assert set(sim.call(worker, "what came")) <= {"a word"}


def test_time_is_virtual():
    with Simulation(1) as sim:
        before = sim.monotonic_ns()
        sim.run(lambda: sim.event().wait(3600.0))
        assert 3600 <= (sim.monotonic_ns() - before) / 1e9 < 3601
        assert sim.wall_ns() - sim.monotonic_ns() > 0


def test_run_returns_what_its_function_returns_and_raises_what_it_raises():
    with Simulation(1) as sim:
        assert sim.run(lambda: 7) == 7
        with pytest.raises(LookupError):
            sim.run(lambda: {}["missing"])
        assert sim.run(lambda: 8) == 8


def test_a_handler_can_be_interrupted_at_a_cast():
    orders = set()
    for seed in range(50):
        with Simulation(seed) as sim:
            log, other = [], sim.start(Worker)

            def work(server, log=log, other=other):
                log.append("begin")
                server.cast(other, lambda _server: log.append("other"))
                log.append("end")

            worker = sim.start(Worker)
            sim.cast(worker, work)
            sim.event().wait(1.0)
            orders.add(tuple(log))
    assert orders == {("begin", "other", "end"), ("begin", "end", "other")}


def test_a_checkpoint_lets_others_run():
    with Simulation(1) as sim:
        log = []
        sim.spawn(lambda: log.append("other"))

        def application():
            while not log:
                sim.checkpoint()

        sim.run(application)
        assert log == ["other"]


def test_a_deadlock_names_each_waiting_task_and_its_cause():
    class Caller(Worker):
        def handle_cast(self, other):
            self.call(other, "give me", timeout=None)

    with Simulation(1) as sim:
        one, other = sim.start(Caller, name="one"), sim.start(Caller, name="other")
        never = sim.event()

        def application():
            sim.cast(one, "other")
            sim.cast(other, "one")
            never.wait()

        with pytest.raises(Deadlock) as deadlock:
            sim.run(application)
    text = str(deadlock.value)
    assert "one waits for the reply of other to str" in text
    assert "other waits for the reply of one to str" in text
    assert "application waits for an event" in text


def test_idle_actors_are_no_deadlock_until_the_application_waits_for_them():
    with Simulation(1) as sim:
        sim.start(Worker, name="idle")
        sim.run(lambda: sim.event().wait(1.0))
        with pytest.raises(Deadlock, match="idle waits for mail"):
            sim.run(lambda: sim.channel().get())
        assert sim.call("idle", "still here") == []


class Looker(Server):
    """Looks at something every second, and does nothing else."""

    background = True

    def init(self, looks):
        self.looks = looks
        self.send_after(1.0, "look")

    def handle_info(self, _look):
        self.looks.append(self.runtime.monotonic_ns())
        self.send_after(1.0, "look")


def test_timers_of_background_actors_alone_do_not_keep_a_simulation_going():
    with Simulation(1) as sim:
        looks = []
        sim.start(Looker, looks, name="looker")
        with pytest.raises(Deadlock, match="outside waits for an event"):
            sim.event().wait()
        seen = len(looks)
        sim.event().wait(20_000.0)  # but somebody's patience does, for as long as it lasts
        assert len(looks) - seen == pytest.approx(20_000, rel=0.1)


def test_the_run_waits_for_work_that_a_background_actor_found():
    class Finder(Looker):
        def handle_info(self, message):
            super().handle_info(message)
            if len(self.looks) == 500:
                found.set()

    with Simulation(1) as sim:
        found = sim.event()
        sim.start(Finder, [], name="finder")
        sim.run(found.wait)


def test_a_killed_actor_never_runs_again_not_even_its_finally():
    with Simulation(3) as sim:
        log, notes = [], sim.channel()

        def work(server):
            try:
                server.note("begun")
                server.runtime.event().wait()
            finally:
                log.append("finally")

        victim, watcher = sim.start(Worker, name="victim"), sim.start(Trapper, notes)
        sim.call(watcher, do(lambda server: server.link(victim)))
        sim.cast(victim, work)
        sim.event().wait(0.1)
        sim.kill(victim)
        (signal,) = take(notes, "info")
        assert signal.reason == "killed"
        assert log == []
        assert not sim.is_registered("victim")


def test_a_name_is_no_actor_to_kill():
    with Simulation() as sim:
        sim.start(Worker, name="victim")
        with pytest.raises(CallerError, match="give an ActorRef"):
            sim.kill("victim")


def test_an_actor_can_kill_itself():
    with Simulation(1) as sim:
        log, victim = [], sim.start(Worker)

        def work(server):
            server.runtime.kill(server.actor_ref)
            log.append("after death")

        sim.cast(victim, work)
        assert end_of(sim, victim) == "killed"
        sim.event().wait(1.0)
        assert log == []


def test_a_kill_in_the_middle_of_a_write_frees_the_fence_and_the_write_never_happens():
    with Simulation(1) as sim:
        log, inside = [], sim.event()

        def work(server):
            with server.fence.guard():
                inside.set()
                server.runtime.event().wait(1.0)
                log.append("written")

        victim = sim.start(Worker)
        sim.cast(victim, work)
        inside.wait()
        sim.kill(victim)
        sim.event().wait(2.0)
        assert log == []


def test_an_actor_killed_while_it_terminates_is_still_reported_to_its_monitors():
    class Slow(Worker):
        def undelivered(self, message):
            self.runtime.event().wait(1.0)

    def crashed(sim):
        slow, told = sim.start(Slow, name="slow"), sim.channel()
        for _ in range(3):
            slow.actor_inbox.on_close(told.put)
        gate = busy(sim, slow)
        for message in (crash, "left", "left too"):
            sim.cast(slow, message)
        gate.set()
        return slow, told

    for seed in range(30):
        with Simulation(seed) as sim:
            slow, told = crashed(sim)
            sim.event().wait(0.001 * seed)
            sim.kill(slow)
            sim.event().wait(5.0)
            assert [told.get(timeout=LIMIT) for _ in range(3)] == [slow.actor_inbox.reason] * 3
            assert told.empty()
            assert not slow.is_alive()
            sim.start(Worker, name="slow")


def test_an_actor_killed_while_its_end_is_told_is_told_of_to_the_others_too():
    with Simulation() as sim:
        worker = sim.start(Worker)
        told = []
        inbox_of(worker).on_close(lambda _reason: sim.event().wait(10))
        inbox_of(worker).on_close(told.append)
        assert not sim.stop_actor(worker, timeout=1)
        sim.kill(worker)
        assert told == ["shutdown"]


def test_an_actor_can_be_killed_by_what_it_writes():
    """A simulated disk's hook does this: it runs in the middle of a guarded write."""
    with Simulation(1) as sim:
        log, victim = [], sim.start(Worker)

        def work(server):
            with server.fence.guard():
                server.runtime.kill(server.actor_ref)
                log.append("written")

        sim.cast(victim, work)
        assert end_of(sim, victim) == "killed"
        assert log == []


def test_the_wake_up_of_a_killed_task_goes_to_the_next():
    for seed in range(20):
        with Simulation(seed) as sim:
            channel, lock, log = sim.channel(), sim.lock(), []

            def work(server, channel=channel, lock=lock, log=log):
                channel.get()
                with lock:
                    log.append(server.name)

            workers = [sim.start(Worker, name=name) for name in "ab"]
            for worker in workers:
                sim.cast(worker, work)
            sim.event().wait(1.0)
            with lock:
                channel.put("one")
                channel.put("two")
                sim.event().wait(1.0)
            sim.kill(workers[0])
            sim.event().wait(1.0)
            assert "b" in log


def test_after_a_crash_nothing_of_the_old_process_runs_and_a_new_one_can_be_started():
    with Simulation(2) as sim:
        log, told = [], []

        def application():
            old = sim.start(Worker, name="w")
            old.actor_inbox.on_close(told.append)
            gate = busy(sim, old)
            sim.cast(old, lambda _server: log.append("old"))
            sim.crash()
            gate.set()
            assert sim.cast(old, 1) is False
            assert not sim.is_registered("w")
            new = sim.start(Worker, name="w")
            sim.event().wait(1.0)
            return sim.call(new, "what came")

        assert sim.run(application) == []
        assert (log, told) == ([], [])


def test_a_crash_from_beside_takes_the_application_with_it():
    with Simulation(2) as sim:
        log = []

        def bystander():
            sim.event().wait(0.5)
            sim.crash()
            log.append("unreachable")

        def application():
            sim.event().wait(10.0)
            log.append("unreachable")

        sim.spawn(bystander, "power")
        with pytest.raises(SimulationCrashed, match="power"):
            sim.run(application)
        assert sim.run(lambda: sim.event().wait(20.0)) is False
        assert log == []


class PowerCut(BaseException):
    pass


@pytest.mark.parametrize("where", ["handle_cast", "init", "terminate"])
def test_a_base_exception_ends_the_run_and_not_the_actor(where):
    """A simulated power cut must not be taken for a crash that a supervisor mends."""

    class Unlucky(Worker):
        def init(self, *args):
            if where == "init":
                raise PowerCut

        def handle_cast(self, message):
            raise PowerCut if where == "handle_cast" else LookupError

        def terminate(self, reason):
            if where == "terminate":
                raise PowerCut

    with Simulation(1) as sim:
        log = []

        def application():
            other = sim.start(Worker)
            unlucky = sim.start(Unlucky)
            sim.cast(unlucky, 1)
            sim.cast(other, lambda _server: log.append("other"))
            sim.event().wait(1.0)

        with pytest.raises(PowerCut):
            sim.run(application)
        before = list(log)
        sim.run(lambda: sim.event().wait(10.0))
        assert log == before
        assert sim.living() == []


def test_a_call_fails_at_once_when_the_server_is_killed():
    with Simulation(1) as sim:
        victim = sim.start(Worker)
        gate = busy(sim, victim)
        sim.spawn(lambda: sim.kill(victim))
        with pytest.raises(CallFailed, match="killed"):
            sim.call(victim, "x", timeout=None)
        gate.set()


def test_close_frees_the_frames_of_what_was_killed():
    freed = []

    class Canary:
        def __del__(self):
            freed.append("canary")

    def work(server):
        canary = Canary()
        server.note("begun")
        server.runtime.event().wait()
        return canary

    with Simulation(1) as sim:
        notes = sim.channel()
        victim = sim.start(Worker, notes)
        sim.cast(victim, work)
        take(notes, "begun")
        sim.kill(victim)
        assert freed == []
    gc.collect()
    assert freed == ["canary"]


def test_a_greenlet_carries_one_task_after_another_whichever_way_each_ended():
    carriers = []

    def work():
        carriers.append(greenlet.getcurrent())
        match len(carriers) % 3:
            case 0:
                raise ValueError("of the task")
            case 1:
                sim.event().wait()

    for seed in range(30):
        with Simulation(seed) as sim:
            sim.spawn(work)
            if len(carriers) % 3 == 2:
                with pytest.raises(ValueError, match="of the task"):
                    sim.event().wait(1)
            else:
                sim.event().wait(1)
    assert len(set(carriers)) == 1


def test_a_task_has_as_many_frames_as_any_other_whoever_let_it_begin():
    def deep(frames, task):
        return deep(frames - 1, task) if frames else task()

    def work(generation):
        if generation:
            sim.spawn(lambda: deep(60, lambda: work(generation - 1)))
            sim.event().wait(1)

    for seed in range(3):
        with Simulation(seed) as sim:
            sim.run(lambda: work(40))


def test_closing_a_simulation_leaves_the_actors_of_another_alone():
    def cut(server):
        raise KeyboardInterrupt

    with Simulation(1) as other:
        spared = other.start(Worker, other.channel())
        with Simulation(2) as sim:
            worker = sim.start(Worker, sim.channel())
            sim.cast(worker, cut)
            with pytest.raises(KeyboardInterrupt):
                sim.run(lambda: sim.event().wait())
        assert spared.is_alive()


def test_a_crash_is_mended_by_its_supervisor_in_simulation_too(logs):
    with Simulation(5) as sim:
        notes = sim.channel()
        Supervisor.start_link(children=[ChildSpec("w", Worker, (notes,), name="w")], runtime=sim)
        sim.cast("w", crash)
        assert take(notes, "terminate")[0] == "w"
        assert take(notes, "init") == ("w",)
        assert [line["event"] for line in logs] == ["actor crashed", "child is restarted"]
        assert drained(notes) == []


def test_without_greenlet_there_is_a_clear_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "greenlet", None)
    with pytest.raises(ImportError, match=r"pip install 'warrenmq\[simulation\]'"):
        Simulation(1)


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_in_the_middle_of_a_start_leaves_nothing_in_pykkas_registry(seed):
    """Pykka knows an actor before its first turn: one that was left there made a later `stop_all` wait for ever."""
    with Simulation(seed) as sim:
        sim.spawn(lambda: sim.start(Worker), "starter")
        sim.run(sim.checkpoint)
    assert pykka.ActorRegistry.get_all() == []


def test_pykkas_futures_are_of_the_simulation_that_made_them():
    """Also where a simulation was given the classes of one that was closed, and where two are there at once."""
    with Simulation(1) as first:
        kept = first.start(Juggler, [], None).ask("kept", block=False)
        with Simulation(2) as second:
            asked = second.start(Juggler, [], None)
            assert len(second.run(lambda: asked.ask("now"))) == 4
        with Simulation(3) as third:
            asked = third.start(Juggler, [], None)
            assert len(third.run(lambda: asked.ask("now"))) == 4
            assert len(first.run(kept.get)) == 4
