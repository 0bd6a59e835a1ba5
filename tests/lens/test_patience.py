"""The bound of processor time for a scenario: what it raises late hurts nobody."""

import sys
import threading

import pytest

from tests.support.limits import LIMIT
from warrenmq.errors import CallerError
from warrenmq.lens import patience


@pytest.mark.parametrize("late", [False, True])
def test_a_traced_thread_runs_after_a_time_limit_that_was_met_at_the_last_moment_or_not_at_all(
    late, monkeypatch
):
    """CPython 3.11 lets it spin at the entry of a function once an asynchronous exception has been taken back."""
    asked, ended, times = threading.Event(), threading.Event(), [0.0]

    def clock():
        if times:
            return times.pop()
        asked.set()
        ended.wait(LIMIT)
        return patience.MOST_SECONDS + 1

    if late:
        monkeypatch.setattr(patience, "_processor_time", lambda: clock)
        with pytest.raises(CallerError, match="did not end"):
            patience.run_code("x", lambda: (asked.wait(LIMIT), ended.set()))
    else:
        patience.run_code("x", lambda: None)
    traced = threading.Thread(target=lambda: sys.settrace(lambda *_: None), daemon=True)
    traced.start()
    traced.join(10)  # it enters functions of threading to its end
    assert not traced.is_alive()
