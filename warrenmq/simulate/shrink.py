"""Shrink a failing run: the shortest script that fails in the same way, with the same seed and profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from warrenmq.simulate.script import VERBS, Script, Step, step


def shrink(script: Script, fails: Callable[[Script], bool], most: int = 500) -> Script:
    """Remove steps, then reset arguments to their defaults, as long as `fails` is true; calls it at most `most` times.

    Zeller's delta debugging: first halves, then quarters, and so on down to single steps, until nothing more can go.
    """
    left = most
    smaller: Script | None = script
    while smaller is not None:
        script, smaller = smaller, None
        for candidate in _smaller(script):
            if left == 0:
                return script
            left -= 1
            if fails(candidate):
                smaller = candidate
                break
    return script


def _smaller(script: Script) -> Iterator[Script]:
    """Candidate scripts a little simpler than this one, the simplest first."""
    size = len(script) // 2
    while size:
        for start in range(0, len(script), size):
            yield script[:start] + script[start + size :]
        size //= 2
    for place, each in enumerate(script):
        for simpler in _simpler(each):
            yield (*script[:place], simpler, *script[place + 1 :])


def _simpler(each: Step) -> Iterator[Step]:
    """Variants of a step with one argument reset to its default, or a number halved."""
    known = VERBS[each.verb].arguments
    given = dict(each.arguments)
    for name, value in each.arguments:
        default = known[name].default
        if value == default:
            continue
        yield step(each.verb, **{**given, name: default})
        if isinstance(value, int) and isinstance(default, int) and abs(value - default) > 1:
            yield step(each.verb, **{**given, name: (value + default) // 2})
