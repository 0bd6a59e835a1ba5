"""ThreadEvent, as threading.Event is."""

import threading

import pytest

from tests.support.limits import LIMIT
from warrenmq.runtime.thread_event import ThreadEvent


@pytest.mark.parametrize("timeout", [None, 0, -1, 0.001, float("inf")])
def test_an_event_that_is_set_is_not_waited_for(timeout):
    event = ThreadEvent()
    event.set()
    event.set()
    assert event.is_set()
    assert event.wait(timeout)


@pytest.mark.parametrize("timeout", [0, -1, 0.001])
def test_a_wait_ends_after_its_time_and_leaves_nothing(timeout):
    event = ThreadEvent()
    assert not event.wait(timeout)
    assert not event.is_set()
    assert event.bells == []


def test_all_who_wait_are_woken():
    event, woken = ThreadEvent(), []
    threads = [
        threading.Thread(target=lambda timeout=timeout: woken.append(event.wait(timeout)))
        for timeout in (None, LIMIT, 1e30)
    ]
    for thread in threads:
        thread.start()
    event.set()
    for thread in threads:
        thread.join(LIMIT)
    assert woken == [True] * 3
    assert event.bells == []
