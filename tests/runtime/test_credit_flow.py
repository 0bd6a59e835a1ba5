"""credit_flow: the table of its rules walked row by row, and batches against a message-by-message model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.runtime import CreditFlow, CreditSpec

SPEC = CreditSpec(4, 2)


def flow():
    return CreditFlow(SPEC)


def test_the_last_credit_blocks_and_more_goes_below_zero_without_waiting():
    sender = flow()
    for _ in range(3):
        sender.send("q")
        assert not sender.blocked
    sender.send("q")
    assert sender.blocked
    sender.send("q")
    sender.send("q")
    assert sender.blocked


def test_the_first_grant_comes_after_more_messages_and_then_each_more():
    receiver = flow()
    assert [receiver.ack("p") for _ in range(6)] == [0, 2, 0, 2, 0, 2]


@pytest.mark.parametrize(("overdraft", "bumps"), [(0, 1), (1, 1), (2, 2), (3, 2)])
def test_a_bump_unblocks_once_the_credit_is_above_zero(overdraft, bumps):
    sender = flow()
    sender.send("q", 4 + overdraft)
    for _ in range(bumps - 1):
        sender.handle_bump("q", 2)
        assert sender.blocked
    sender.handle_bump("q", 2)
    assert not sender.blocked


def test_a_bump_from_an_unknown_sender_starts_from_zero():
    sender = flow()
    assert sender.handle_bump("q", 2) == []
    sender.send("q")
    assert not sender.blocked
    sender.send("q")
    assert sender.blocked, "2 credits, not initial + 2"


def test_grants_are_deferred_while_blocked_and_due_when_the_last_blocker_goes():
    middle = flow()
    middle.send("store", 4)
    middle.send("other", 4)
    assert middle.ack("publisher", 2) == 0
    assert middle.ack("second", 5) == 0
    assert middle.handle_bump("store", 2) == []
    assert middle.handle_bump("other", 2) == [("publisher", 2), ("second", 4)]
    assert middle.ack("publisher", 2) == 2


def test_the_death_of_a_blocker_unblocks_and_its_counters_start_anew():
    middle = flow()
    middle.send("store", 6)
    assert middle.ack("publisher", 2) == 0
    assert middle.peer_down("store") == [("publisher", 2)]
    assert not middle.blocked
    middle.send("store", 3)
    assert not middle.blocked
    assert middle.ack("publisher") == 0


def test_grants_for_the_dead_are_dropped():
    middle = flow()
    middle.send("store", 4)
    middle.ack("publisher", 2)
    assert middle.peer_down("publisher") == []
    assert middle.handle_bump("store", 2) == []
    assert middle.ack("publisher") == 0, "whoever has its name next starts from the beginning"


def test_a_call_may_name_another_spec_than_the_process_has():
    middle = flow()
    store = CreditSpec(10, 5)
    middle.send("store", 9, store)
    assert not middle.blocked
    middle.send("store", 1, store)
    assert middle.blocked
    assert CreditFlow(SPEC).ack("q", 5, store) == 5


class Model:
    """The reference's table, one message at a time."""

    def __init__(self, initial, more):
        self.initial, self.more = initial, more
        self.credit_from, self.credit_to, self.blockers, self.deferred = {}, {}, set(), []

    def send(self, peer, n):
        for _ in range(n):
            value = self.credit_from.get(peer, self.initial)
            if value == 1:
                self.blockers.add(peer)
            self.credit_from[peer] = value - 1

    def ack(self, peer, n):
        granted = 0
        for _ in range(n):
            value = self.credit_to.get(peer, self.more)
            if value == 1:
                granted += self.more
                value = self.more + 1
            self.credit_to[peer] = value - 1
        if granted and self.blockers:
            self.deferred.append((peer, granted))
            return 0
        return granted

    def bump(self, peer, n):
        value = self.credit_from.get(peer, 0)
        self.credit_from[peer] = value + n
        return self.unblock(peer) if value <= 0 < value + n else []

    def unblock(self, peer):
        self.blockers.discard(peer)
        if self.blockers:
            return []
        due, self.deferred = self.deferred, []
        return due

    def down(self, peer):
        self.deferred = [grant for grant in self.deferred if grant[0] != peer]
        self.credit_from.pop(peer, None)
        self.credit_to.pop(peer, None)
        return self.unblock(peer)


STEPS = st.tuples(
    st.sampled_from(["send", "ack", "bump", "down"]), st.sampled_from("abc"), st.integers(1, 12)
)


@given(st.integers(1, 8), st.integers(1, 8), st.lists(STEPS, max_size=60))
def test_batches_are_counted_as_single_messages_are(initial, more, steps):
    real, model = CreditFlow(CreditSpec(initial, more)), Model(initial, more)
    for what, peer, n in steps:
        if what == "send":
            real.send(peer, n)
            model.send(peer, n)
        elif what == "ack":
            assert real.ack(peer, n) == model.ack(peer, n)
        elif what == "bump":
            assert real.handle_bump(peer, n) == model.bump(peer, n)
        else:
            assert real.peer_down(peer) == model.down(peer)
        assert real.blocked == bool(model.blockers)


@given(st.integers(1, 50), st.integers(1, 50), st.lists(st.integers(1, 40), max_size=200))
def test_a_receiver_that_takes_all_in_never_leaves_its_sender_blocked(one, other, batches):
    spec = CreditSpec(initial=max(one, other), more_after=min(one, other))
    sender, receiver = CreditFlow(spec), CreditFlow(spec)
    for batch in batches:
        sender.send("receiver", batch)
        if granted := receiver.ack("sender", batch):
            sender.handle_bump("receiver", granted)
        assert not sender.blocked
