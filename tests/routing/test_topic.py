"""Topic exchanges' tries against regular expressions, and against what is left when all is unbound."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.routing import Destination
from warrenmq.routing.topic import Node, TopicTrie, split

words = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=5)
patterns = words.map(".".join)
keys = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=6).map(".".join)
destinations = st.sampled_from([Destination(kind, name) for kind in ("queue", "exchange") for name in "xyz"])


def regular_expression(pattern: str) -> re.Pattern[str]:
    """The same pattern for `re`; each word of the key is followed by a line feed."""
    parts = {"*": "[^\n]*\n", "#": "([^\n]*\n)*"}
    return re.compile("".join(parts.get(word, re.escape(word) + "\n") for word in split(pattern)))


def fits(pattern: str, key: str) -> bool:
    return bool(regular_expression(pattern).fullmatch("".join(word + "\n" for word in split(key))))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", []),
        ("a", ["a"]),
        ("a.b", ["a", "b"]),
        ("a.", ["a", ""]),
        (".", ["", ""]),
        ("a..b", ["a", "", "b"]),
    ],
)
def test_a_key_is_words_between_dots(key: str, words: list[str]) -> None:
    assert split(key) == words


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("#", ["", "a", "a.b.c", ".", "#"], []),
        ("*", ["a", "*", "#"], ["", "a.b", "."]),
        ("*.*", ["a.b", "a.", "."], ["a", "a.b.c"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["", "b.a"]),
        ("#.a.#", ["a", "x.a.y", "a.a"], ["", "xa"]),
        ("a.*.#", ["a.b", "a..c"], ["a"]),
        ("", [""], ["a", "."]),
        ("#.#", ["", "a", "a.b"], []),
        ("a*.b", ["a*.b"], ["ab.b"]),
        ("a.b", ["a.b"], ["a.*", "a.#", "a"]),
    ],
)
def test_patterns_match_as_in_rabbitmq(pattern: str, matches: list[str], others: list[str]) -> None:
    trie = TopicTrie()
    destination = Destination("queue", "q")
    trie.add(pattern, destination)
    assert [key for key in matches + others if trie.match(key)] == matches


@given(st.lists(st.tuples(patterns, destinations), max_size=12), keys)
def test_matches_equal_those_of_regular_expressions(
    bindings: list[tuple[str, Destination]], key: str
) -> None:
    trie = TopicTrie()
    for pattern, destination in bindings:
        trie.add(pattern, destination)
    assert set(trie.match(key)) == {destination for pattern, destination in bindings if fits(pattern, key)}


@given(st.data())
def test_unbinding_leaves_what_was_not_unbound_and_nothing_else(data: st.DataObject) -> None:
    trie = TopicTrie()
    bound: list[tuple[str, Destination]] = []
    for _ in range(data.draw(st.integers(0, 25))):
        if bound and data.draw(st.booleans()):
            binding = bound.pop(data.draw(st.integers(0, len(bound) - 1)))
            trie.remove(*binding)
        else:
            bound.append(data.draw(st.tuples(patterns, destinations)))
            trie.add(*bound[-1])
    fresh = TopicTrie()
    for binding in bound:
        fresh.add(*binding)
    assert as_dict(trie.root) == as_dict(fresh.root)
    for binding in bound:
        trie.remove(*binding)
    assert as_dict(trie.root) == ([], {})


def as_dict(node: Node) -> tuple[list[Destination], dict[str, object]]:
    return sorted(node.destinations), {word: as_dict(child) for word, child in node.children.items()}


def test_many_hashes_and_a_long_key_take_no_time() -> None:
    trie = TopicTrie()
    trie.add(".".join(["#", "a"] * 12 + ["b"]), Destination("queue", "never"))
    trie.add(".".join(["#", "*"] * 12), Destination("queue", "always"))
    assert list(trie.match(".".join(["a"] * 120))) == [Destination("queue", "always")]
