"""Scripts: their text, random ones, changes of one, and the smallest one that still fails."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.errors import CallerError
from warrenmq.simulate.generate import SIZES, generate, mutate
from warrenmq.simulate.script import FAULTS, HONEST_FAULTS, VERBS, parse, step, write
from warrenmq.simulate.shrink import shrink

SEEDS = st.integers(0, 1 << 32)


@given(SEEDS, st.sampled_from([*SIZES]))
def test_a_script_is_read_as_it_was_written(seed, size):
    script, (shortest, longest) = generate(Random(seed), FAULTS, size), SIZES[size]
    assert parse(write(script)) == script
    assert shortest <= len(script) <= longest


@given(SEEDS, SEEDS, st.sampled_from([*SIZES]))
def test_a_changed_script_is_a_script(seed, other, size):
    changed = mutate(Random(other), generate(Random(seed), FAULTS, size), FAULTS, size)
    assert parse(write(changed)) == changed
    assert len(changed) <= 2 * SIZES[size][1]


@given(SEEDS)
def test_random_scripts_have_only_the_faults_that_were_asked_for(seed):
    assert not [each for each in generate(Random(seed), ()) if VERBS[each.verb].fault]
    assert not [each for each in generate(Random(seed), HONEST_FAULTS) if VERBS[each.verb].fault == "flip"]


@given(SEEDS, st.sampled_from(["short", "long"]))
def test_scripts_that_are_not_wide_draw_nothing_that_came_later(seed, size):
    for each in generate(Random(seed), FAULTS, size):
        assert not VERBS[each.verb].is_wide
        assert not any(value in VERBS[each.verb].arguments[name].more for name, value in each.arguments)


def test_comments_and_empty_lines_are_passed_over():
    assert parse("# a queue\n\n publish to=b  size=3\n") == (step("publish", to="b", size=3),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("publsh", "is no verb"),
        ("publish tow=a", "is no argument of publish"),
        ("publish to", "is no argument of publish"),
        ("settle now=1", "takes none"),
        ("publish to=nowhere", "must be one of"),
        ("publish size=-1", "a number from 0 to 1,000,000"),
        ("publish size=many", "a number from 0 to 1,000,000"),
        ("consume ack=0", "a number from 1 to"),
        ("rivals prefetch=0", "a number from 1 to 65,535"),
        ("slow ms=60000", "a number from 0 to 500"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(text, problem):
    with pytest.raises(CallerError, match="line 2") as refused:
        parse(f"get\n{text}\n")
    assert problem in str(refused.value)


@given(SEEDS)
def test_what_is_shrunk_to_still_fails_and_has_nothing_needless(seed):
    rng = Random(seed)
    script = (*generate(rng, ()), step("kill", victim="b"), *generate(rng, ()), step("sleep", ms=16_000))

    def fails(candidate):
        verbs = [each.verb for each in candidate]
        return "kill" in verbs and any(
            each.verb == "sleep" and each.number("ms") >= 300 for each in candidate
        )

    smallest = shrink(script, fails)
    assert [each.verb for each in smallest if each.verb not in ("kill", "sleep")] == []
    assert len(smallest) == 2
    assert fails(smallest)
