"""The runtime of threads: what the interpreter has to have for it."""

import sys

import pytest

import warrenmq
from warrenmq.errors import CallerError
from warrenmq.runtime import Pool, Threads


@pytest.mark.parametrize("start", [Threads, Pool, warrenmq.open])
def test_an_interpreter_without_a_gil_is_refused_before_anything_starts(start, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    arguments = [tmp_path / "data"] if start is warrenmq.open else []
    with pytest.raises(CallerError, match=r"needs the GIL, .* PYTHON_GIL=1 or python -X gil=1"):
        start(*arguments)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    if start is warrenmq.open:
        start(*arguments).close()
