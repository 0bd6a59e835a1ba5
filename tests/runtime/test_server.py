"""Erlang's callbacks on both schedulers: the life of a server, casts, calls, timers, priorities."""

import queue
import threading
from types import MappingProxyType

import pykka
import pytest

from tests.support.schedulers import LIMIT, Worker, busy, crash, do, drained, end_of, take, until
from warrenmq.errors import CallerError, NotFound
from warrenmq.runtime import NO_REPLY, CallFailed, Server, Stop, Threads


def test_casts_are_handled_in_the_order_they_were_sent(runtime):
    worker = runtime.start(Worker)
    for number in range(1000):
        assert runtime.cast(worker, number)
    assert runtime.call(worker, "what came") == list(range(1000))


def test_start_returns_when_init_has_returned(runtime):
    notes = runtime.channel()
    runtime.start(Worker, notes)
    assert drained(notes) == [("init", None)]


def test_an_error_in_init_is_raised_by_start_and_leaves_nothing_behind(runtime, logs):
    notes = runtime.channel()
    with pytest.raises(RuntimeError, match="as told"):
        runtime.start(Worker, notes, on_init=crash, name="w")
    assert runtime.living() == []
    assert not runtime.is_registered("w")
    assert drained(notes) == [("init", "w")], "terminate is for those who lived"
    assert logs == []
    runtime.start(Worker, name="w")


@pytest.mark.parametrize("error", [SystemExit(3), Stop("not today")])
def test_init_may_raise_anything(runtime, error):
    def refuse(_server):
        raise error

    with pytest.raises(type(error)):
        runtime.start(Worker, on_init=refuse)


def test_a_name_is_for_one_at_a_time_and_free_after_its_end(runtime):
    first = runtime.start(Worker, name=("queue", "a"))
    assert runtime.whereis(("queue", "a")) is first
    assert runtime.whereis(first) is first
    with pytest.raises(ValueError, match="already taken"):
        runtime.start(Worker, name=("queue", "a"))
    assert runtime.whereis(("queue", "a")) is first
    assert runtime.stop_actor(first, timeout=LIMIT)
    with pytest.raises(pykka.ActorDeadError, match="no actor is called"):
        runtime.whereis(("queue", "a"))
    second = runtime.start(Worker, name=("queue", "a"))
    assert runtime.cast(("queue", "a"), 1)
    assert runtime.call(second, "what came") == [1]


def test_names_are_per_runtime(runtime):
    runtime.start(Worker, name="w")
    other = Threads()
    assert not other.is_registered("w")
    other.start(Worker, name="w")
    other.shutdown()
    assert runtime.is_registered("w")


def test_a_cast_to_a_dead_actor_is_reported(runtime):
    worker = runtime.start(Worker)
    runtime.stop_actor(worker, timeout=LIMIT)
    assert runtime.cast(worker, 1) is False
    assert runtime.cast("nobody", 1) is False


def test_a_reply_may_come_later_and_from_another_actor(runtime):
    helper = runtime.start(Worker)
    worker = runtime.start(Worker)

    def later(server, sender):
        server.cast(helper, lambda _helper: sender.reply("from the helper"))
        return NO_REPLY

    assert runtime.call(worker, later) == "from the helper"


def test_only_the_first_reply_counts(runtime):
    worker = runtime.start(Worker)

    def twice(_server, sender):
        sender.reply("first")
        return "second"

    assert runtime.call(worker, twice) == "first"


def test_a_call_of_a_server_that_crashes_fails_at_once_with_the_cause(runtime):
    worker = runtime.start(Worker)
    with pytest.raises(CallFailed) as failure:
        runtime.call(worker, do(crash), timeout=None)
    assert isinstance(failure.value.__cause__, RuntimeError)
    with pytest.raises(CallFailed):
        runtime.call(worker, "again", timeout=None)


class Careful(Worker):
    """Checks its requests before it handles them: functions are called with the server in either phase."""

    def check_call(self, request):
        check, handle = request
        check(self)
        return handle


def nothing(_server):
    pass


def refuse(_server):
    raise NotFound("it is not there")


@pytest.mark.parametrize(
    ("request_", "error", "lives"),
    [
        ((crash, nothing), RuntimeError, True),
        ((refuse, nothing), NotFound, True),
        ((lambda _server: {}["x"], nothing), KeyError, True),
        ((nothing, do(refuse)), NotFound, True),
        ((nothing, do(crash)), CallFailed, False),
        ((nothing, lambda _server, _sender: {}["x"]), CallFailed, False),
    ],
)
def test_errors_of_a_check_and_refusals_of_a_handler_reach_the_caller(runtime, request_, error, lives):
    worker = runtime.start(Careful)
    with pytest.raises(error) as raised:
        runtime.call(worker, request_, timeout=LIMIT)
    assert raised.type is error
    if lives:
        assert runtime.call(worker, (nothing, "alive"), timeout=LIMIT) == []
    else:
        assert raised.value.handling
        assert not worker.is_alive()


def test_a_call_knows_whether_the_server_died_while_it_handled_it(runtime):
    worker, callers = runtime.start(Worker), [runtime.start(Worker) for _ in range(3)]
    notes = runtime.channel()

    def asking(what, request):
        def ask(server):
            notes.put(("asks", what))
            try:
                server.call(worker, request, timeout=None)
            except CallFailed as failure:
                notes.put(("failed", what, failure.handling))

        return ask

    runtime.cast(callers[0], asking("parked", lambda _server, _sender: NO_REPLY))
    take(notes, "asks")
    until(runtime, lambda: worker.actor_inbox.length() == 0)
    gate = busy(runtime, worker)
    runtime.cast(callers[1], asking("handled", do(crash)))
    take(notes, "asks")
    until(runtime, lambda: worker.actor_inbox.length() == 1)
    runtime.cast(callers[2], asking("in line", "too late"))
    take(notes, "asks")
    until(runtime, lambda: worker.actor_inbox.length() == 2)
    gate.set()
    assert {take(notes, "failed") for _ in callers} == {
        ("parked", False),
        ("handled", True),
        ("in line", False),
    }


def test_a_call_that_waits_in_line_fails_with_the_server(runtime):
    worker, caller = runtime.start(Worker), runtime.start(Worker)
    notes = runtime.channel()
    gate = busy(runtime, worker)
    runtime.cast(worker, crash)

    def ask(server):
        try:
            server.call(worker, "too late", timeout=None)
        except CallFailed as failure:
            notes.put(("failed", failure.reason))

    runtime.cast(caller, ask)
    gate.set()
    assert isinstance(take(notes, "failed")[0], RuntimeError)


def test_a_call_to_a_missing_actor_fails(runtime):
    with pytest.raises(CallFailed, match="noproc"):
        runtime.call("nobody", "hello")


def test_a_call_can_time_out(runtime):
    worker = runtime.start(Worker)
    with pytest.raises(pykka.Timeout):
        runtime.call(worker, lambda _server, _sender: NO_REPLY, timeout=0.01)


@pytest.mark.parametrize("seconds", [1e10, float("inf"), 10**400], ids=["long", "endless", "no float"])
def test_a_wait_that_is_longer_than_any_may_be_is_as_long_as_can_be(runtime, seconds):
    notes = runtime.channel()
    worker = runtime.start(Worker, notes)
    runtime.call(worker, do(lambda server: server.send_after(seconds, "never") and None))
    runtime.call(worker, do(lambda server: server.send_after(-seconds, "now") and None), timeout=seconds)
    assert take(notes, "info") == ("now",)
    assert runtime.stop_actor(worker, timeout=seconds)


def test_a_timeout_below_0_is_over_at_once(runtime):
    worker = runtime.start(Worker)
    with pytest.raises(pykka.Timeout):
        runtime.call(worker, lambda _server, _sender: NO_REPLY, timeout=-1)


@pytest.mark.parametrize("by_name", [True, False])
def test_a_server_that_would_wait_for_itself_is_told_so(runtime, by_name):
    worker = runtime.start(Worker, name="w")
    itself = "w" if by_name else worker
    with pytest.raises(CallerError, match="an actor that calls itself waits for ever"):
        runtime.call(worker, do(lambda server: server.call(itself, "what came", None)))
    with pytest.raises(CallerError, match="an actor cannot wait for its own end; raise Stop in it"):
        runtime.call(worker, do(lambda server: server.runtime.stop_actor(worker)))
    other = runtime.start(Worker)
    assert runtime.call(other, do(lambda server: server.call(itself, "what came", None))) == []
    assert runtime.call(other, do(lambda server: server.runtime.stop_actor(worker)))


def test_an_actor_that_shuts_its_runtime_down_is_the_last_to_end(runtime):
    worker, notes = runtime.start(Worker), runtime.channel()
    runtime.start(Worker, notes, name="other")
    runtime.cast(worker, lambda server: server.runtime.shutdown())
    assert end_of(runtime, worker) == "killed"
    assert take(notes, "terminate") == ("other", "shutdown")
    assert runtime.living() == []


@pytest.mark.parametrize("reason", ["normal", "shutdown", ("shutdown", "idle"), "whatever"])
def test_stop_ends_a_server_in_good_order(runtime, reason, logs):
    notes = runtime.channel()
    worker = runtime.start(Worker, notes)

    def stop(_server):
        raise Stop(reason)

    runtime.cast(worker, stop)
    assert end_of(runtime, worker) == reason
    assert take(notes, "terminate") == (None, reason)
    assert not worker.is_alive()
    assert logs == []


def test_a_crash_is_logged_once(runtime, logs, caplog):
    notes = runtime.channel()
    worker = runtime.start(Worker, notes, name="w")
    runtime.cast(worker, crash)
    reason = end_of(runtime, worker)
    assert take(notes, "terminate") == ("w", reason)
    (line,) = logs
    assert (line["event"], line["actor"], line["exc_info"]) == ("actor crashed", "w", reason)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_sys_exit_in_one_actor_is_a_crash_of_that_actor_only(runtime):
    leaver, stayer = runtime.start(Worker), runtime.start(Worker)

    def leave(_server):
        raise SystemExit

    runtime.cast(leaver, leave)
    assert isinstance(end_of(runtime, leaver), SystemExit)
    assert runtime.call(stayer, "are you there") == []


def test_an_error_in_terminate_becomes_the_reason(runtime):
    class Untidy(Worker):
        def terminate(self, reason):
            raise LookupError(reason)

    untidy = runtime.start(Untidy)
    runtime.stop_actor(untidy, timeout=LIMIT)
    assert isinstance(untidy.actor_inbox.reason, LookupError)


def test_mailbox_empty_is_said_once_each_time_the_mailbox_has_run_dry(runtime):
    class Flusher(Worker):
        def mailbox_empty(self):
            self.note("dry", len(self.seen))

    notes = runtime.channel()
    flusher = runtime.start(Flusher, notes)
    assert take(notes, "dry") == (0,)
    gate = busy(runtime, flusher)
    for number in range(100):
        runtime.cast(flusher, number)
    gate.set()
    assert take(notes, "dry") == (100,)
    assert runtime.call(flusher, "what came") == list(range(100))
    assert take(notes, "dry") == (100,)
    runtime.event().wait(0.01)
    assert drained(notes) == []


def test_an_error_in_mailbox_empty_crashes_the_server(runtime):
    class Bad(Server):
        def mailbox_empty(self):
            raise LookupError

    assert isinstance(end_of(runtime, runtime.start(Bad)), LookupError)


def test_timers_come_in_order_of_their_time_and_equal_times_in_order_of_asking(runtime):
    notes = runtime.channel()
    worker = runtime.start(Worker, notes)

    def ask(server):
        for delay, what in ((0.03, "d"), (0.01, "a"), (0.02, "b"), (0.02, "c")):
            server.send_after(delay, what)

    runtime.cast(worker, ask)
    assert [take(notes, "info")[0] for _ in range(4)] == ["a", "b", "c", "d"]


def test_a_cancelled_timer_never_comes(runtime):
    notes = runtime.channel()
    worker = runtime.start(Worker, notes)

    def ask(server):
        server.send_after(0.001, "cancelled").cancel()
        fired = server.send_after(0.0, "early")
        server.send_after(0.002, "late")
        server.fired = fired

    runtime.cast(worker, ask)
    assert take(notes, "info") == ("early",)
    assert take(notes, "info") == ("late",)
    runtime.call(worker, do(lambda server: server.fired.cancel()))


def test_a_timer_that_is_reset_for_ever_does_not_pile_up(runtime):
    worker = runtime.start(Worker)

    def reset(server):
        keep = server.send_after(0.01, "kept")
        for _ in range(10_000):
            server.send_after(1000.0, "reset").cancel()
        assert keep.info is not None
        return len(server.actor_inbox._timers)

    assert runtime.call(worker, do(reset)) < 200


def test_a_timer_comes_in_the_middle_of_mail_that_never_ends(runtime):
    class Busy(Worker):
        def handle_cast(self, message):
            self.cast(self.actor_ref, message)

    notes = runtime.channel()
    busy = runtime.start(Busy, notes, on_init=lambda server: server.send_after(0.005, "tick"))
    runtime.cast(busy, "for ever")
    assert take(notes, "info") == ("tick",)


RANKS = {rank: type(f"Rank{rank}", (tuple,), {}) for rank in (-3, -2, -1, 1, 2, 3, 8, 9)}


def of_rank(rank, word):
    return RANKS[rank]((rank, word))


class Ranked(Worker):
    ranks = MappingProxyType({kind: rank for rank, kind in RANKS.items()})

    def handle_call(self, request, sender):
        if isinstance(request, tuple):
            self.seen.append(request)
        return super().handle_call(request, sender)


class Prioritized(Ranked):
    @staticmethod
    def priority(message):
        return message[0] if isinstance(message, tuple) else 0


@pytest.mark.parametrize("kind", [Ranked, Prioritized])
def test_mail_is_taken_by_priority_and_in_order_inside_a_priority(runtime, kind):
    ranked = runtime.start(kind)
    gate = busy(runtime, ranked)
    sent = [0, of_rank(8, "a"), 1, of_rank(2, "b"), of_rank(8, "c"), of_rank(-1, "d"), of_rank(2, "e"), 3]
    for message in sent:
        runtime.cast(ranked, message)
    gate.set()
    runtime.cast(ranked, of_rank(-2, "last"))
    runtime.call(ranked, of_rank(-3, "very last"))
    in_order = [(8, "a"), (8, "c"), (2, "b"), (2, "e"), 0, 1, 3, (-1, "d"), (-2, "last"), (-3, "very last")]
    assert runtime.call(ranked, "what came") == in_order


@pytest.mark.parametrize("kind", [Ranked, Prioritized])
def test_calls_and_timers_have_priorities_too(runtime, kind):
    ranked, asker = runtime.start(kind), runtime.start(Worker)
    gate = busy(runtime, ranked, first=lambda server: server.send_after(0.0, of_rank(9, "timer")))
    runtime.cast(ranked, of_rank(1, "cast"))
    runtime.cast(ranked, of_rank(2, "cast"))
    runtime.cast(asker, lambda server: server.call(ranked, of_rank(3, "call"), timeout=LIMIT))
    until(runtime, lambda: ranked.actor_inbox.length() == 3)
    gate.set()
    in_order = [(9, "timer"), (3, "call"), (2, "cast"), (1, "cast")]
    assert runtime.call(ranked, "what came") == in_order


@pytest.mark.parametrize("error", [LookupError, IndexError, queue.Empty])
def test_a_priority_that_raises_crashes_the_server_as_a_handler_would(runtime, error):
    """Sorting while the thread is parked would end it in silence: Pykka guards handlers only."""

    class Bad(Worker):
        @staticmethod
        def priority(message):
            raise error(message)

    for _ in range(3):
        bad = runtime.start(Bad)
        runtime.event().wait(0.001)
        runtime.cast(bad, "word")
        assert isinstance(end_of(runtime, bad), error)


@pytest.mark.parametrize("kind", [Worker, Ranked, Prioritized])
def test_an_exit_signal_is_first_in_line(runtime, kind):
    worker, notes = runtime.start(kind), runtime.channel()
    worker.actor_inbox.on_close(lambda reason: notes.put(("end", reason)))
    gate = busy(runtime, worker)
    for number in range(10):
        runtime.cast(worker, lambda _server, number=number: notes.put(("handled", number)))
    stopper = runtime.start(Worker)
    runtime.cast(stopper, lambda server: server.runtime.stop_actor(worker, "enough", LIMIT))
    until(runtime, lambda: worker.actor_inbox._exits)
    gate.set()
    assert notes.get(timeout=LIMIT) == ("end", "enough")
    assert drained(notes) == []


def test_living_lists_actors_with_mail_and_restarts(runtime):
    first = runtime.start(Worker, name="w")
    runtime.stop_actor(first, timeout=LIMIT)
    second = runtime.start(Worker, name="w")
    runtime.start(Worker)
    gate = busy(runtime, second)
    runtime.cast(second, 1)
    runtime.cast(second, 2)
    named, unnamed = runtime.living()
    assert (named.label, named.kind, named.restarts) == ("w", "Worker", 1)
    assert named.mailbox == 2
    assert (unnamed.label, unnamed.restarts) == ("Worker-1", 0)
    gate.set()


def test_names_that_are_retired_leave_nothing_behind(runtime):
    for number in range(3):
        name = f"visitor {number}"
        for _ in range(2):
            runtime.stop_actor(runtime.start(Worker, name=name))
        runtime.retire(name)
        runtime.start(Worker, name=name)
        assert runtime.living()[-1].restarts == 0
        runtime.stop_actor(runtime.whereis(name))
        runtime.retire(name)
    assert runtime._incarnations == runtime._retired == {}


def test_a_handler_that_interrupts_the_start_of_an_actor_may_start_another():
    """The handler of a signal runs between any two lines of the main thread."""
    runtime, started = Threads(), []

    class Counts(dict):
        def __setitem__(self, *item):
            self.interrupted()
            super().__setitem__(*item)

        def setdefault(self, *item):
            self.interrupted()
            return super().setdefault(*item)

        def interrupted(self):
            if not started:
                started.append(None)
                started[0] = runtime.start(Worker)

    runtime._counts = Counts()
    starter = threading.Thread(target=runtime.start, args=(Worker,), daemon=True)
    starter.start()
    starter.join(LIMIT)
    assert started[0] is not None
    assert sorted(line.label for line in runtime.living()) == ["Worker-1", "Worker-2"]
    runtime.shutdown()


def test_shutdown_stops_trees_from_the_root_the_youngest_first(runtime):
    notes = runtime.channel()
    root = runtime.start(Worker, notes, name="root")
    runtime.start(Worker, notes, name="child", parent=root)
    runtime.start(Worker, notes, name="loner")
    runtime.shutdown()
    ends = [note[1] for note in drained(notes) if note[0] == "terminate"]
    assert ends[:2] == ["loner", "root"]
    assert ends[2:] == ["child"]
    assert runtime.living() == []


def test_threads_end_with_their_runtime():
    runtime = Threads()
    before = threading.active_count()
    for _ in range(10):
        runtime.start(Worker)
    assert threading.active_count() == before + 10
    runtime.shutdown()
    assert threading.active_count() == before


def test_actors_do_not_keep_the_interpreter_alive():
    runtime = Threads()
    worker = runtime.start(Worker, name="w")
    daemon, name = runtime.call(worker, do(lambda _server: _this_thread()))
    assert daemon
    assert name == "w"
    runtime.shutdown()


def _this_thread():
    thread = threading.current_thread()
    return thread.daemon, thread.name
