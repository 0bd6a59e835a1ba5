"""Threads that have no memory for their first steps, and threads that have."""

from __future__ import annotations

import threading

import pytest

from tests.support.limits import LIMIT
from warrenmq.runtime.thread_start import start_thread


class Stillborn(threading.Thread):
    """It runs into the limit of the address space before it can say that it runs."""

    def _bootstrap_inner(self) -> None:
        raise MemoryError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_thread_that_dies_before_it_runs_is_refused_to_its_starter() -> None:
    """`Thread.start` waits for ever."""
    told: list[str] = []

    def starter() -> None:
        with pytest.raises(RuntimeError, match="can't start new thread") as refused:
            start_thread(Stillborn(daemon=True))
        told.append(str(refused.value))

    thread = threading.Thread(target=starter, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert told


def test_a_thread_that_starts_is_an_ordinary_one() -> None:
    ran = threading.Event()
    thread = threading.Thread(target=ran.set, name="ordinary")
    start_thread(thread)
    thread.join(LIMIT)
    assert ran.is_set()
    assert thread.ident is not None
    assert thread not in threading.enumerate()
