"""Supervisors on both schedulers: order, strategies, restarts, escalation, shutdown, fencing."""

import errno

import pytest

from tests.support.schedulers import LIMIT, Worker, busy, crash, do, drained, end_of, take, until
from warrenmq.errors import Blocked, CallerError, Fenced
from warrenmq.runtime import CallFailed, Runtime, Stop, Threads
from warrenmq.runtime.life import inbox_of
from warrenmq.supervisors import (
    ChildSpec,
    Supervisor,
    delete_child,
    restart_child,
    start_child,
    stop_child,
    supervisor,
    which_children,
)


class Tree:
    """Workers a, b, c ... under one supervisor, and the notes they take."""

    def __init__(self, runtime: Runtime, names="abc", *, on_init=None, specs=None, **options):
        self.runtime, self.notes = runtime, runtime.channel()
        children = specs or [self.spec(name, on_init=on_init) for name in names]
        options.setdefault("intensity", 3)
        self.ref = Supervisor.start_link(children=children, runtime=runtime, **options)
        self.first = {name: runtime.whereis(name) for name in names if runtime.is_registered(name)}
        drained(self.notes)

    def spec(self, name, on_init=None, **options):
        return ChildSpec(name, Worker, (self.notes, on_init), name=name, **options)

    def settle(self):
        """After this the supervisor has dealt with every death before it."""
        which_children(self.runtime, self.ref)

    def fell(self, name, how=crash):
        """Crash a child, and wait until its supervisor has dealt with it."""
        ref = self.runtime.whereis(name)
        self.runtime.cast(ref, how)
        end_of(self.runtime, ref)
        until(self.runtime, lambda: not self._waits())
        self.settle()

    def _waits(self):
        return self.ref.is_alive() and any(
            ref is not None and not ref.is_alive() for _id, ref, _spec in self.children()
        )

    def children(self):
        return which_children(self.runtime, self.ref)

    def told(self):
        return [note[:2] for note in drained(self.notes)]


def stop_normally(_server):
    raise Stop


def test_children_start_in_order_and_stop_in_reverse(runtime):
    tree = Tree(runtime, "")
    for name in "abc":
        start_child(runtime, tree.ref, tree.spec(name))
    assert tree.told() == [("init", "a"), ("init", "b"), ("init", "c")]
    assert runtime.stop_actor(tree.ref, timeout=LIMIT)
    assert tree.told() == [("terminate", "c"), ("terminate", "b"), ("terminate", "a")]
    assert runtime.living() == []


STRATEGIES = [
    ("one_for_one", "terminate b, init b"),
    ("rest_for_one", "terminate b, terminate c, init b, init c"),
    ("one_for_all", "terminate b, terminate c, terminate a, init a, init b, init c"),
]


@pytest.mark.parametrize(("strategy", "story"), STRATEGIES)
def test_each_strategy_stops_and_starts_whom_it_must_in_order(runtime, strategy, story):
    tree = Tree(runtime, strategy=strategy)
    tree.fell("b")
    assert ", ".join(f"{what} {name}" for what, name in tree.told()) == story
    restarted = {part[-1] for part in story.split(", ")}
    for name, first in tree.first.items():
        assert (runtime.whereis(name) is not first) == (name in restarted)
        assert runtime.call(name, "are you there") == []


@pytest.mark.parametrize(
    ("restart", "how", "comes_back", "stays_listed"),
    [
        ("permanent", crash, True, True),
        ("permanent", stop_normally, True, True),
        ("transient", crash, True, True),
        ("transient", stop_normally, False, True),
        ("temporary", crash, False, False),
        ("temporary", stop_normally, False, False),
    ],
)
def test_restart_types(runtime, restart, how, comes_back, stays_listed):
    tree = Tree(runtime, "")
    start_child(runtime, tree.ref, tree.spec("w", restart=restart))
    tree.fell("w", how)
    assert runtime.is_registered("w") == comes_back
    assert [child.id for child in tree.children()] == (["w"] if stays_listed else [])


@pytest.mark.parametrize(
    ("strategy", "gone"), [("one_for_one", ""), ("rest_for_one", "c"), ("one_for_all", "ac")]
)
def test_a_temporary_child_is_not_restarted_with_its_siblings(runtime, strategy, gone):
    tree = Tree(runtime, "", strategy=strategy)
    for name in "abc":
        restart = "permanent" if name == "b" else "temporary"
        start_child(runtime, tree.ref, tree.spec(name, restart=restart))
    tree.fell("b")
    assert [child.id for child in tree.children()] == [name for name in "abc" if name not in gone]
    assert all(runtime.is_registered(name) == (name not in gone) for name in "abc")


STAYS, LEAVES = True, False


@pytest.mark.parametrize(
    ("auto_shutdown", "restart", "ends", "supervisor_stays"),
    [
        ("any_significant", "transient", [("b", stop_normally)], LEAVES),
        ("any_significant", "transient", [("b", crash), ("b", crash)], STAYS),
        ("any_significant", "temporary", [("b", crash)], LEAVES),
        ("any_significant", "transient", [("a", stop_normally), ("a", crash)], STAYS),
        ("all_significant", "transient", [("b", stop_normally)], STAYS),
        ("all_significant", "transient", [("b", stop_normally), ("c", crash), ("c", stop_normally)], LEAVES),
        ("all_significant", "temporary", [("c", crash), ("b", stop_normally)], LEAVES),
    ],
)
def test_the_end_of_significant_children_ends_their_supervisor(
    runtime, auto_shutdown, restart, ends, supervisor_stays
):
    tree = Tree(runtime, "a", auto_shutdown=auto_shutdown)
    for name in "bc":
        start_child(runtime, tree.ref, tree.spec(name, restart=restart, significant=True))
    for name, how in ends[:-1]:
        tree.fell(name, how)
    last, how = ends[-1]
    runtime.cast(last, how)
    if supervisor_stays:
        tree.settle()
        assert tree.ref.is_alive()
    else:
        assert end_of(runtime, tree.ref) == "shutdown"
        assert runtime.living() == []


def test_a_significant_child_that_is_stopped_by_request_ends_nothing(runtime):
    tree = Tree(runtime, "", auto_shutdown="any_significant")
    start_child(runtime, tree.ref, tree.spec("w", restart="transient", significant=True))
    stop_child(runtime, tree.ref, "w")
    assert tree.ref.is_alive()
    assert restart_child(runtime, tree.ref, "w").is_alive()


def test_a_significant_child_is_refused_where_nobody_takes_notice_of_its_end(runtime):
    tree = Tree(runtime, "")
    with pytest.raises(ValueError, match="child 'w' is significant; give its supervisor auto_shutdown"):
        start_child(runtime, tree.ref, tree.spec("w", restart="transient", significant=True))
    assert tree.children() == []


def test_peers_that_know_the_name_keep_working(runtime):
    tree = Tree(runtime, "ab")
    tree.fell("a")
    runtime.call("b", do(lambda server: server.cast("a", "by name")))
    assert runtime.call("a", "what came") == ["by name"]


def test_more_restarts_than_intensity_end_the_supervisor_and_its_children(runtime, logs):
    tree = Tree(runtime, intensity=2, period=60.0)
    tree.fell("a")
    tree.fell("b")
    assert tree.ref.is_alive()
    runtime.cast("a", crash)
    assert end_of(runtime, tree.ref) == "shutdown"
    assert runtime.living() == []
    story = [line["event"] for line in logs if line["event"] != "actor crashed"]
    assert story == ["child is restarted"] * 2 + ["too many restarts: giving up"]
    assert logs[-1]["child"] == "a"
    assert logs[-1]["restarts"] == 3


def test_restarts_are_forgotten_after_the_period(runtime):
    tree = Tree(runtime, intensity=1, period=0.02)
    for _ in range(4):
        tree.fell("a")
        runtime.event().wait(0.05)
    assert tree.ref.is_alive()


def test_intensity_0_passes_the_first_crash_on_to_the_parent(runtime):
    notes = runtime.channel()
    inner = ChildSpec(
        "inner",
        Supervisor,
        kwargs={"children": [ChildSpec("w", Worker, (notes,), name="w")], "intensity": 0},
        shutdown=None,
        name="inner",
    )
    outer = Supervisor.start_link(children=[inner], intensity=1, runtime=runtime)
    first = runtime.whereis("inner")
    take(notes, "init")
    runtime.cast("w", crash)
    take(notes, "init")
    assert runtime.call("w", "are you there") == []
    assert runtime.whereis("inner") is not first
    assert outer.is_alive()
    runtime.cast("w", crash)
    assert end_of(runtime, outer) == "shutdown"
    assert runtime.living() == []


def test_a_failed_start_undoes_the_earlier_ones_and_is_raised_at_the_starter(runtime):
    notes = runtime.channel()

    def refuse(server):
        if server.name == "b":
            msg = "not b"
            raise LookupError(msg)

    children = [ChildSpec(name, Worker, (notes, refuse), name=name) for name in "abc"]
    with pytest.raises(LookupError, match="not b"):
        Supervisor.start_link(children=children, runtime=runtime)
    assert [note[:2] for note in drained(notes)] == [("init", "a"), ("init", "b"), ("terminate", "a")]
    assert runtime.living() == []


class Flaky:
    """Refuses init when told to, as often as told."""

    def __init__(self):
        self.refusals, self.tries = 0, 0

    def __call__(self, _server):
        self.tries += 1
        if self.refusals > 0:
            self.refusals -= 1
            msg = "not yet"
            raise LookupError(msg)


def test_a_failed_restart_is_tried_again_and_counts(runtime):
    flaky = Flaky()
    tree = Tree(runtime, "a", on_init=flaky, intensity=4, period=60.0)
    flaky.refusals = 3
    tree.fell("a")
    until(runtime, lambda: flaky.tries == 1 + 4 and all(child.ref for child in tree.children()))
    assert tree.ref.is_alive()
    flaky.refusals = 1
    runtime.cast("a", crash)
    assert end_of(runtime, tree.ref) == "shutdown"


class Full:
    """An on_init that meets a full disk until there is room."""

    def __init__(self, error):
        self.room, self.tried, self.error = True, 0, error

    def __call__(self, _server):
        self.tried += 1
        if not self.room:
            raise self.error


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), Blocked("the disk is full")],
    ids=["its own", "a broker's"],
)
def test_a_restart_that_meets_a_full_disk_waits_for_room_and_does_not_count(runtime, monkeypatch, error):
    monkeypatch.setattr(supervisor, "SHORTAGE_RETRY", 0.01)
    disk = Full(error)
    tree = Tree(runtime, "ab", on_init=disk, intensity=1)
    disk.room = False
    tree.runtime.cast("a", crash)
    until(runtime, lambda: disk.tried > 10)
    assert runtime.is_registered("b")
    disk.room = True
    until(runtime, lambda: runtime.is_registered("a"))
    assert tree.ref.is_alive()


@pytest.fixture
def waiting(runtime, monkeypatch):
    """A tree whose child a fell, and waits for room on the disk to be restarted."""
    monkeypatch.setattr(supervisor, "SHORTAGE_RETRY", 0.01)
    disk = Full(OSError(errno.ENOSPC, "No space left on device"))
    tree = Tree(runtime, "", intensity=1, auto_shutdown="all_significant")
    start_child(runtime, tree.ref, tree.spec("a", on_init=disk, restart="transient", significant=True))
    disk.room = False
    runtime.cast("a", crash)
    until(runtime, lambda: disk.tried > 2)
    return tree, disk


def let_it_try(runtime, disk):
    """After this the supervisor has had the time to try again."""
    disk.room, tried = True, disk.tried
    runtime.event().wait(0.05)
    return disk.tried - tried


@pytest.mark.parametrize("then", [restart_child, delete_child])
def test_a_child_that_is_stopped_while_it_waits_to_be_restarted_is_not(runtime, waiting, then):
    tree, disk = waiting
    with pytest.raises(ValueError, match="child 'a' is about to be restarted; stop it first"):
        delete_child(runtime, tree.ref, "a")
    stop_child(runtime, tree.ref, "a")
    assert let_it_try(runtime, disk) == 0
    assert [child.ref for child in tree.children()] == [None]
    then(runtime, tree.ref, "a")
    assert runtime.is_registered("a") == (then is restart_child)


def test_a_restart_by_request_that_fails_leaves_the_child_waiting(runtime, waiting):
    tree, disk = waiting
    with pytest.raises(OSError, match="No space left"):
        restart_child(runtime, tree.ref, "a")
    assert let_it_try(runtime, disk) == 1
    assert runtime.is_registered("a")


def test_a_significant_child_that_waits_to_be_restarted_has_not_ended_for_good(runtime, waiting):
    tree, disk = waiting
    start_child(runtime, tree.ref, tree.spec("b", restart="transient", significant=True))
    tree.runtime.cast("b", stop_normally)
    until(runtime, lambda: not runtime.is_registered("b"))
    tree.settle()
    assert let_it_try(runtime, disk) == 1
    assert runtime.is_registered("a")


@pytest.mark.parametrize(("raised", "reason"), [(Stop("no config"), "no config"), (SystemExit(3), None)])
def test_whatever_a_childs_init_raises_its_supervisor_lives_on(runtime, raised, reason):
    tree, starts = Tree(runtime, "a"), []

    def second_start(_server):
        starts.append(raised)
        if len(starts) == 2:
            raise raised

    def first_start(_server):
        raise raised

    with pytest.raises(CallFailed) as failure:
        start_child(runtime, tree.ref, tree.spec("b", on_init=first_start))
    assert failure.value.reason == (reason or raised)
    start_child(runtime, tree.ref, tree.spec("c", on_init=second_start))
    runtime.cast("c", crash)
    until(runtime, lambda: len(starts) == 3 and runtime.is_registered("c"))
    assert [child.id for child in tree.children()] == ["a", "c"]
    assert runtime.whereis("a") is tree.first["a"]


def test_a_child_cannot_wait_for_its_own_end(runtime):
    tree = Tree(runtime, "ab")
    suicide = do(lambda server: stop_child(server, tree.ref, "a"))
    with pytest.raises(CallerError, match="child 'a' cannot wait for its own end; let it raise Stop"):
        runtime.call("a", suicide)
    runtime.call("b", suicide)
    assert [(child.id, child.ref is None) for child in tree.children()] == [("a", True), ("b", False)]


def test_a_failed_restart_of_a_later_child_restarts_all_again_under_one_for_all(runtime):
    flaky = Flaky()
    notes = runtime.channel()
    children = [ChildSpec("a", Worker, (notes,), name="a"), ChildSpec("b", Worker, (notes, flaky), name="b")]
    sup = Supervisor.start_link(children=children, strategy="one_for_all", intensity=5, runtime=runtime)
    drained(notes)
    flaky.refusals = 1
    runtime.cast("a", crash)
    until(runtime, lambda: flaky.tries == 3 and all(child.ref for child in which_children(runtime, sup)))
    story = [f"{note[0]} {note[1]}" for note in drained(notes)]
    assert story == [
        "terminate a", "terminate b", "init a", "init b", "terminate a", "init a", "init b",
    ]  # fmt: skip


def test_simple_one_for_one_starts_children_from_one_template(runtime):
    notes = runtime.channel()
    template = ChildSpec("w", Worker, (notes,), restart="transient")
    sup = Supervisor.start_link(children=[template], strategy="simple_one_for_one", runtime=runtime)
    assert which_children(runtime, sup) == []
    seen = []
    named = start_child(runtime, sup, seen.append, name="named")
    nameless = [start_child(runtime, sup) for _ in range(3)]
    assert len(seen) == 1, "the child's own arguments follow the template's"
    assert [child.id for child in which_children(runtime, sup)] == ["named", ("w", 2), ("w", 3), ("w", 4)]
    runtime.cast(nameless[0], stop_normally)
    end_of(runtime, nameless[0])
    runtime.cast("named", crash)
    end_of(runtime, named)
    until(runtime, lambda: runtime.is_registered("named"))
    assert [child.id for child in which_children(runtime, sup)] == ["named", ("w", 3), ("w", 4)]
    stop_child(runtime, sup, ("w", 3))
    assert [child.id for child in which_children(runtime, sup)] == ["named", ("w", 4)]
    runtime.stop_actor(sup, timeout=LIMIT)
    assert runtime.living() == []


def test_children_of_simple_one_for_one_are_stopped_all_at_once(runtime):
    """Each takes a while; together they take no longer than one."""
    sup = Supervisor.start_link(
        children=[ChildSpec("w", Worker, shutdown=LIMIT)], strategy="simple_one_for_one", runtime=runtime
    )
    workers = [start_child(runtime, sup) for _ in range(5)]
    gates = [busy(runtime, worker) for worker in workers]
    stopper = runtime.start(Worker)
    runtime.cast(stopper, lambda server: server.runtime.stop_actor(sup, timeout=LIMIT))
    until(runtime, lambda: all(inbox_of(worker)._exits for worker in workers))
    for gate in gates:
        gate.set()
    end_of(runtime, sup)
    assert not any(worker.is_alive() for worker in workers)


def test_one_that_does_not_end_keeps_no_others_from_being_stopped(runtime):
    """A few are stopped at a time, until one overruns its time: then all others are told."""
    sup = Supervisor.start_link(
        children=[ChildSpec("w", Worker, shutdown=0.05)], strategy="simple_one_for_one", runtime=runtime
    )
    workers = [start_child(runtime, sup) for _ in range(supervisor.SIDE_BY_SIDE + 3)]
    gates = [busy(runtime, worker) for worker in workers]
    told = []
    for worker in workers[:2]:
        inbox_of(worker).on_close(
            lambda _reason: told.append(sum(bool(inbox_of(each)._exits) for each in workers[1:]))
        )
    runtime.stop_actor(sup, timeout=LIMIT)
    assert told == [supervisor.SIDE_BY_SIDE - 1, len(workers) - 1]
    for gate in gates:
        gate.set()


def test_stop_restart_and_delete_of_a_child(runtime):
    tree = Tree(runtime)
    with pytest.raises(ValueError, match="child 'b' is running; stop it first"):
        delete_child(runtime, tree.ref, "b")
    stop_child(runtime, tree.ref, "b")
    assert not runtime.is_registered("b")
    assert [(child.id, child.ref is None) for child in tree.children()] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]
    second = restart_child(runtime, tree.ref, "b")
    assert runtime.whereis("b") is second
    with pytest.raises(ValueError, match="child 'b' is running"):
        restart_child(runtime, tree.ref, "b")
    stop_child(runtime, tree.ref, "b")
    stop_child(runtime, tree.ref, "b")
    delete_child(runtime, tree.ref, "b")
    assert [child.id for child in tree.children()] == ["a", "c"]
    for ask in (stop_child, restart_child, delete_child):
        with pytest.raises(ValueError, match="no child has the id 'b'"):
            ask(runtime, tree.ref, "b")


def test_a_caller_may_be_a_server(runtime):
    tree = Tree(runtime, "a")
    asker = runtime.start(Worker)
    found = runtime.call(asker, do(lambda server: which_children(server, tree.ref)))
    assert [child.id for child in found] == ["a"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"strategy": "all_for_one"}, "strategy is 'all_for_one'"),
        ({"names": "aa"}, "two children have the id 'a'"),
        ({"names": "ab", "strategy": "simple_one_for_one"}, "takes one child as its template, not 2"),
        ({"intensity": -1}, "intensity is -1"),
    ],
)
def test_a_supervisor_that_cannot_work_is_refused_before_any_child_starts(runtime, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Tree(runtime, **options)
    assert runtime.living() == []


def test_a_bad_child_is_refused_at_the_caller_and_the_supervisor_lives_on(runtime):
    tree = Tree(runtime)

    def refuse(_server):
        msg = "no"
        raise LookupError(msg)

    with pytest.raises(ValueError, match="two children have the id 'a'"):
        start_child(runtime, tree.ref, tree.spec("a"))
    with pytest.raises(ValueError, match="starts a child from a ChildSpec"):
        start_child(runtime, tree.ref, "a")
    with pytest.raises(LookupError):
        start_child(runtime, tree.ref, tree.spec("d", on_init=refuse))
    assert [child.id for child in tree.children()] == ["a", "b", "c"]


def test_a_class_can_say_what_its_tree_is(runtime):
    class Pair(Supervisor):
        strategy = "one_for_all"
        intensity = 5
        period = 60.0

        def children(self, notes):
            return [ChildSpec(name, Worker, (notes,), name=name) for name in ("left", "right")]

    notes = runtime.channel()
    pair = Pair.start_link(notes, runtime=runtime, name="pair")
    assert runtime.whereis("pair") is pair
    first = runtime.whereis("left")
    runtime.cast("right", crash)
    until(runtime, lambda: runtime.is_registered("left") and runtime.whereis("left") is not first)


def test_a_child_that_overruns_its_shutdown_time_is_fenced_before_its_successor_starts(runtime):
    """It can wake whenever it likes: it writes nothing, sends nothing, and its name is another's."""
    tree = Tree(runtime, "")
    log = runtime.channel()
    start_child(runtime, tree.ref, tree.spec("w", shutdown=0.01))
    start_child(runtime, tree.ref, tree.spec("reason to stop w"))
    inside, gate = runtime.event(), runtime.event()

    def write_late(server):
        inside.set()
        gate.wait(LIMIT)
        try:
            with server.fence.guard():
                log.put("written")
        except Fenced:
            log.put("fenced")
            raise

    runtime.cast("w", write_late)
    assert inside.wait(LIMIT)
    overrun = runtime.whereis("w")
    stop_child(runtime, tree.ref, "w")
    successor = restart_child(runtime, tree.ref, "w")
    assert inbox_of(overrun).fence.cut
    assert not inbox_of(successor).fence.cut
    gate.set()
    assert log.get(timeout=LIMIT) == "fenced"
    assert runtime.call("w", "are you there") == []
    assert inbox_of(overrun).reason == "killed"


def test_shutdown_none_waits_as_long_as_it_takes(runtime):
    tree = Tree(runtime, "")
    start_child(runtime, tree.ref, tree.spec("w", shutdown=None))
    gate = busy(runtime, runtime.whereis("w"))
    stopper = runtime.start(Worker)
    runtime.cast(stopper, lambda server: server.runtime.stop_actor(tree.ref))
    assert runtime.stop_actor(tree.ref, timeout=0.02) is False
    gate.set()
    assert end_of(runtime, tree.ref) == "shutdown"


def test_pykkas_stop_takes_a_whole_tree_down(runtime):
    tree = Tree(runtime)
    tree.ref.stop()
    assert runtime.living() == []
    assert [name for _what, name in tree.told()] == ["c", "b", "a"]


def test_many_restarts_leave_nothing_behind(runtime, logs):
    tree = Tree(runtime, intensity=1000)
    before = len(inbox_of(tree.ref)._callbacks)
    for _ in range(30):
        tree.fell("b")
    assert len(inbox_of(tree.ref)._callbacks) == before
    logs.clear()


def test_an_app_without_a_runtime_gets_one(logs):
    sup = Supervisor.start_link(children=[ChildSpec("w", Worker, name="w")])
    runtime = inbox_of(sup).runtime
    assert isinstance(runtime, Threads)
    assert runtime.call("w", "are you there") == []
    sup.stop()
    runtime.shutdown()
    assert logs == []


def test_who_restarts_nothing_alone_passes_a_want_of_memory_or_descriptors_on(runtime):
    """Beside it there may be a process that has to begin anew with its children."""
    notes = runtime.channel()
    error = OSError(errno.EMFILE, "Too many open files")
    inner = ChildSpec(
        "inner", Supervisor, (), {"children": [ChildSpec("a", Worker, (notes,), name="a")], "intensity": 0}
    )
    Supervisor.start_link(
        runtime=runtime,
        strategy="one_for_all",
        intensity=1,
        children=[inner, ChildSpec("b", Worker, (notes,), name="b")],
    )
    before = runtime.whereis("a"), runtime.whereis("b")

    def fail(_server):
        raise error

    runtime.cast("a", fail)
    end_of(runtime, before[1])
    until(runtime, lambda: runtime.is_registered("b"))
    assert runtime.whereis("a") is not before[0]
