"""docs/invariants.md has every invariant of both references, names rules that exist, and every rule is on it."""

import os
import re

import pytest

from tests.support.source_tree import ROOT, text_of
from warrenmq.replay.rules.registry import RULES

PAGE = text_of("docs/invariants.md")
LISTS = {"MS": 28, "CQ": 31}
INVARIANT = re.compile(r"(message-store\.md#i|classic-queue\.md#p)(\d+)$")
LINE = re.compile(r"^\| (MS|CQ) (\d+) \| ([^|]+) \| ([^|]*)\| ([^|]*)\|$", re.MULTILINE)
RULE = re.compile(r"\b[A-Z]\d\b")


@pytest.mark.parametrize("which", LISTS)
def test_every_number_of_a_list_is_there_once(which):
    assert [int(number) for list_, number, *_ in LINE.findall(PAGE) if list_ == which] == list(
        range(1, LISTS[which] + 1)
    )


def test_every_invariant_has_a_rule_or_says_who_holds_it_instead():
    assert [
        (which, number)
        for which, number, _, rules, otherwise in LINE.findall(PAGE)
        if not (rules + otherwise).strip()
    ] == []


def test_an_invariant_that_a_rule_decides_in_part_is_held_by_something_else_as_well():
    assert [
        (which, number)
        for which, number, _, rules, otherwise in LINE.findall(PAGE)
        if "[" in rules and not otherwise.strip()
    ] == []


def test_the_rules_on_the_page_are_the_rules():
    assert set(RULE.findall(PAGE)) == set(RULES)


def test_a_rule_names_the_invariants_that_the_page_says_it_decides():
    """By the sources of the rules: docs/reference/message-store.md#i3, docs/reference/classic-queue.md#p8."""
    said = {
        (which, int(number), rule)
        for which, number, _, rules, _ in LINE.findall(PAGE)
        for rule in RULE.findall(rules)
    }
    named = {
        ("MS" if match[1].startswith("message") else "CQ", int(match[2]), rule.id)
        for rule in RULES.values()
        for source in rule.sources
        if (match := INVARIANT.search(source))
    }
    assert named == said


def test_every_test_on_the_page_exists():
    paths = re.findall(r"`((?:tests|warrenmq)/[\w/.]+)`", PAGE)
    assert len(paths) > 30
    assert [path for path in paths if not os.path.exists(os.path.join(ROOT, path))] == []
