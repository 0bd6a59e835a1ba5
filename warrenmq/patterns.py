"""Regular expressions that users give, matched in a time that has a bound: policies, permissions, filters of names.

Python's `re` tries all ways to divide a text among the repeats of a pattern: "(a+)+$" takes minutes for forty
letters, and no other thread runs meanwhile.  RabbitMQ's PCRE gives up after some steps; `re` has no such
limit.  So the ways are counted first:

    few (".*", "^orders[.]", "a.*b")      `re` itself
    many ("(a+)+$", ".*a.*b.*c")          a program of single characters, where no step is taken twice at one position of the text
    many, and with a back-reference or
    an atomic group, or very large        refused

They match names and routing keys, of at most 255 characters.
"""

from __future__ import annotations

import re
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]  # the only parser of what `re` understands
from typing import Any

LONGEST = 256
"""Characters of a text, and one."""
FEW = 1 << 18
"""Ways that `re` may try: some milliseconds."""
_MANY = 1 << 62
_STEPS = 1 << 18
"""Steps of a program for the longest text: a quarter of a second at worst, in which other threads run."""
_MATCH = -1
CANNOT_BE_MATCHED = (
    "it may take exponential time to match, because repeats stand within repeats or follow one another; "
    "write it with fewer of * + ? {}"
)


class Pattern:
    """A compiled regular expression; ValueError, in one sentence, for a text that is invalid or that cannot
    be matched soon enough.
    """

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern = pattern
        self._program: _Program | None = None
        try:
            self._re = re.compile(pattern, flags)
            parsed = _parser.parse(pattern, flags)
            self.ways = _ways(parsed, last=True) * (1 if _anchored(parsed) else LONGEST)
            if self.ways > FEW:
                self._program = _Program(parsed)
        except (re.error, OverflowError, RecursionError) as why:
            raise ValueError(str(why)) from why

    def found_in(self, text: str) -> bool:
        """True if the pattern matches somewhere in the text."""
        if self._program is None:
            return self._re.search(text) is not None
        return self._program.found_in(text[: LONGEST - 1])


def _anchored(nodes: Any) -> bool:
    return bool(nodes) and nodes[0][0] is _constants.AT and nodes[0][1] in (
        _constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING,
    )  # fmt: skip


def _ways(nodes: Any, *, last: bool = False) -> int:
    """An upper bound of the ways to match the nodes from one position; of a repeat at the end (`last`) only
    the first is tried.

    >>> [Pattern(each).ways // LONGEST for each in ("abc", "a.*", "a.*b", "a?b", "a|bc", "(a+)+b")]
    [1, 1, 257, 2, 2, 4611686018427387904]
    """
    found: int = 1
    for number, (kind, value) in enumerate(nodes):
        found = min(found * _ways_of(kind, value, last=last and number == len(nodes) - 1), _MANY)
    return found


def _ways_of(kind: Any, value: Any, *, last: bool) -> int:
    if kind in _REPEATS:
        least, most, inner = value
        least, most, ways = int(least), min(int(most), LONGEST), _ways(inner)
        if most <= 1:
            return ways + int(least != most)
        if ways > 1 or len(set(inner.getwidth())) > 1:
            return int(min(ways**most, _MANY)) if least == most and ways < LONGEST else _MANY
        return 1 if last else max(1, most - least + 1)
    if kind is _constants.BRANCH:
        return sum(_ways(each) for each in value[1])
    if kind is _constants.SUBPATTERN:
        return _ways(value[3], last=last)
    if kind in _LOOKS:
        return _ways(value[1], last=True)
    if kind is _constants.ATOMIC_GROUP:
        return _ways(value)
    if kind is _constants.GROUPREF_EXISTS:
        return sum(_ways(each) for each in value[1:] if each is not None)
    return 1


_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_LOOKS = (_constants.ASSERT, _constants.ASSERT_NOT)


class _Program:
    """A pattern as steps, each of which knows the ones that may follow.

    ("one", match, width, next)                 one character, or a place like ^ and $
    ("either", next, next)
    ("look", first, behind, wanted, next)       what begins at the step `first` is (not) here, or ends here
    """

    def __init__(self, parsed: Any) -> None:
        self._steps: list[Any] = []
        self._looks = 0
        self._first = self._sequence(parsed, parsed.state.flags, _MATCH)

    def _add(self, step: Any) -> int:
        self._steps.append(step)
        if len(self._steps) * LONGEST * (LONGEST if self._looks else 1) > _STEPS * (16 if self._looks else 1):
            raise ValueError(CANNOT_BE_MATCHED)
        return len(self._steps) - 1

    def _sequence(self, nodes: Any, flags: int, follows: int) -> int:
        for kind, value in reversed(list(nodes)):
            follows = self._node(kind, value, flags, follows)
        return follows

    def _node(self, kind: Any, value: Any, flags: int, follows: int) -> int:
        if kind is _constants.SUBPATTERN:
            _, more, fewer, inner = value
            return self._sequence(inner, (flags | more) & ~fewer, follows)
        if kind is _constants.BRANCH:
            first, *others = [self._sequence(each, flags, follows) for each in value[1]]
            for each in others:
                first = self._add(("either", first, each))
            return first
        if kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            least, most, inner = value
            return self._repeat(int(least), int(most), inner, flags, follows)
        if kind in _LOOKS:
            direction, inner = value
            self._looks += 1
            behind = inner.getwidth()[0] if direction < 0 else 0
            first = self._sequence(inner, flags, _MATCH)
            return self._add(("look", first, behind, kind is _constants.ASSERT, follows))
        if kind in _SINGLE:
            return self._add(("one", _single(kind, value, flags), kind is not _constants.AT, follows))
        raise ValueError(CANNOT_BE_MATCHED)

    def _repeat(self, least: int, most: int, inner: Any, flags: int, follows: int) -> int:
        if most >= LONGEST:
            start = self._add(None)
            again = self._sequence(inner, flags, start)
            self._steps[start] = ("either", again, follows)
            follows = start
        else:
            end = follows
            for _ in range(most - least):
                follows = self._add(("either", self._sequence(inner, flags, follows), end))
        for _ in range(min(least, LONGEST)):
            follows = self._sequence(inner, flags, follows)
        return follows

    def found_in(self, text: str) -> bool:
        """True if the program matches somewhere in the text."""
        seen: set[tuple[int, int]] = set()
        looked: dict[tuple[int, int], bool] = {}
        return any(self._matches(self._first, at, text, seen, looked) for at in range(len(text) + 1))

    def _matches(
        self, first: int, at: int, text: str, seen: set[tuple[int, int]], looked: dict[tuple[int, int], bool]
    ) -> bool:
        waiting = [(first, at)]
        while waiting:
            place = number, at = waiting.pop()
            if number == _MATCH:
                return True
            if place in seen:
                continue
            seen.add(place)
            step = self._steps[number]
            if step[0] == "one":
                if step[1](text, at) is not None:
                    waiting.append((step[3], at + step[2]))
            elif step[0] == "either":
                waiting += ((step[1], at), (step[2], at))
            else:
                _, inner, behind, wanted, follows = step
                if place not in looked:
                    looked[place] = at >= behind and self._matches(inner, at - behind, text, set(), looked)
                if looked[place] is wanted:
                    waiting.append((follows, at))
        return False


_SINGLE = (
    _constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN, _constants.AT,
)  # fmt: skip


def _single(kind: Any, value: Any, flags: int) -> Any:
    """The `match` of a pattern of one node."""
    state = _parser.State()
    state.flags = flags
    return _compiler.compile(_parser.SubPattern(state, [(kind, value)]), flags).match
