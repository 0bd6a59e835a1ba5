"""Users' regular expressions: as `re` finds them, and never for longer than a moment."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq import patterns
from warrenmq.errors import PreconditionFailed
from warrenmq.patterns import FEW, Pattern
from warrenmq.vhost.policies import check_parameter

SLOW = [
    ("(a+)+$", "a" * 254 + "b"),
    ("^(a|a)*$", "a" * 254 + "b"),
    ("(a|aa)+$", "a" * 254 + "b"),
    ("(.*a){20}", "a" * 19 + "b" * 236),
    ("^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 255),
    (".*.*.*=.*", "x" * 255),
    ("(?:a?){50}a{50}", "a" * 49),
    ("(?=(a+)+$)b", "a" * 255),
    ("(?i)(X+x+)+y", "x" * 255),
    ("((a*)*)*b", "a" * 255),
]


@pytest.mark.parametrize(("pattern", "text"), SLOW)
def test_a_pattern_that_re_would_try_for_ever_is_matched_in_a_moment(pattern: str, text: str) -> None:
    before = time.process_time()
    assert not Pattern(pattern).found_in(text)
    assert time.process_time() - before < 2


@pytest.mark.parametrize(
    "pattern", [".*", "^amq[.]", "^(?!amq[.]).*", "a.*b", ".*-queue$", "^(a|b|c)-[0-9]+$", "^.*foo.*bar$"]
)
def test_ordinary_patterns_are_left_to_re(pattern: str) -> None:
    assert Pattern(pattern).ways <= FEW


@pytest.mark.parametrize("pattern", [r"(a*)*\1b", "(?>a+)+(b+)+c", "((a{200}b?){200})*", "(?=((a{0,99})*))b"])
def test_what_cannot_be_matched_soon_is_refused_with_one_sentence(pattern: str) -> None:
    with pytest.raises(ValueError, match="exponential time"):
        Pattern(pattern)
    with pytest.raises(PreconditionFailed, match="exponential time"):
        check_parameter("policy", "p", {"pattern": pattern, "definition": {"max-length": 1}})


atoms = st.sampled_from(["a", "b", "[ab]", ".", "^", "$", r"\b", r"\w", "(?i:A)", "[^a]", r"\Z"])
expressions = st.recursive(
    atoms,
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map("|".join).map("({})".format)
        | st.tuples(inner, st.sampled_from(["*", "+", "?", "{2,3}", "*?", "{0,2}"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        )
        | st.tuples(st.sampled_from(["(?=", "(?!", "(?<=a)(?:", "(?<!b)(?:"]), inner).map(
            lambda two: f"{two[0]}{two[1]})"
        )
    ),
    max_leaves=8,
)


@given(expressions, st.lists(st.text("abA.\n", max_size=7), min_size=1, max_size=5))
def test_a_program_finds_what_re_finds(expression: str, texts: list[str]) -> None:
    few, patterns.FEW = patterns.FEW, -1
    try:
        pattern = Pattern(expression)
    finally:
        patterns.FEW = few
    for text in texts:
        assert pattern.found_in(text) is (re.search(expression, text) is not None)
