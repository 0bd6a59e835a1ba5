"""x-death, as rabbit_dead_letter of 3.10.8 writes it."""

from __future__ import annotations

from typing import Any

import pytest

from warrenmq.queue.x_death import Death, is_cycle, lookup, with_death, without_cc


def death(
    reason: str = "expired", queue: str = "q", time: int = 7, key: str = "k", expiration: Any = None
) -> Death:
    return Death(reason, queue, time, "e", key, expiration)


def told(headers: list[Any]) -> list[tuple[Any, Any, Any]]:
    found = lookup(headers, "x-death")
    return [tuple(lookup(table, name)[1] for name in ("queue", "reason", "count")) for _, table in found[1]]  # type: ignore[index]


def entry(queue: str, reason: str, *more: list[Any]) -> list[Any]:
    return ["F", [["queue", "S", queue], ["reason", "S", reason], *more]]


def test_the_first_death_is_in_x_death_and_in_the_x_first_death_headers() -> None:
    assert with_death([["z", "I", 1], ["a", "t", True]], death(expiration="100")) == [
        ["a", "t", True],
        ["x-death", "A", [["F", [
            ["count", "l", 1], ["reason", "S", "expired"], ["queue", "S", "q"], ["time", "T", 7], ["exchange", "S", "e"],
            ["routing-keys", "A", [["S", "k"]]], ["original-expiration", "S", "100"]]]]],
        ["x-first-death-exchange", "S", "e"],
        ["x-first-death-queue", "S", "q"],
        ["x-first-death-reason", "S", "expired"],
        ["z", "I", 1],
    ]  # fmt: skip


def test_x_death_lists_all_routing_keys() -> None:
    headers: list[Any] = [["CC", "A", [["S", "c"], ["I", 5]]], ["BCC", "A", [["S", "b"]]]]
    _, deaths = lookup(with_death(headers, death()), "x-death") or ("", [])
    assert lookup(deaths[0][1], "routing-keys") == ("A", [["S", "k"], ["S", "c"], ["S", "b"]])


def test_a_second_death_in_the_same_queue_for_the_same_reason_is_counted() -> None:
    headers = with_death(with_death([], death(time=1)), death(time=2))
    assert told(headers) == [("q", "expired", 2)]
    _, deaths = lookup(headers, "x-death") or ("", [])
    assert [each[0] for each in deaths[0][1]] == sorted(each[0] for each in deaths[0][1])
    assert lookup(deaths[0][1], "time") == ("T", 1)


def test_the_latest_death_is_the_first_and_the_first_stays_the_first_death() -> None:
    headers: list[Any] = []
    for queue, reason in [("a", "expired"), ("b", "maxlen"), ("a", "rejected")]:
        headers = with_death(headers, death(reason, queue))
    assert told(headers) == [("a", "rejected", 1), ("a", "expired", 1), ("b", "maxlen", 1)]
    assert lookup(headers, "x-first-death-reason") == ("S", "expired")
    assert lookup(headers, "x-first-death-queue") == ("S", "a")
    assert told(with_death(headers, death("expired", "a"))) == [
        ("a", "expired", 2),
        ("b", "maxlen", 1),
        ("a", "rejected", 1),
    ]


def test_tables_of_old_releases_are_counted_together() -> None:
    old = [["x-death", "A", [entry("q", "expired"), entry("r", "expired"), entry("q", "expired")]]]
    assert told(with_death(old, death("expired", "q"))) == [("q", "expired", 3), ("r", "expired", 1)]
    assert told(with_death([["x-death", "A", [entry("q", "expired")]]], death("expired", "q"))) == [
        ("q", "expired", 1)
    ]


@pytest.mark.parametrize("strange", [["S", "x"], ["F", []], ["I", 1]])
def test_a_header_that_is_no_array_is_replaced(strange: list[Any]) -> None:
    assert told(with_death([["x-death", *strange]], death())) == [("q", "expired", 1)]


def test_elements_that_are_no_tables_are_left_out() -> None:
    assert told(with_death([["x-death", "A", [["I", 1], entry("r", "maxlen", ["count", "l", 1])]]], death()))[
        0
    ] == ("q", "expired", 1)


def test_only_the_first_cc_goes() -> None:
    assert without_cc([["a", "I", 1], ["CC", "A", []], ["CC", "A", []]]) == [["a", "I", 1], ["CC", "A", []]]
    assert without_cc([["a", "I", 1]]) == [["a", "I", 1]]


@pytest.mark.parametrize(
    ("deaths", "cycle"),
    [
        ([], False),
        ([("b", "expired")], False),
        ([("a", "expired")], True),
        ([("b", "expired"), ("a", "expired")], True),
        ([("b", "rejected"), ("a", "expired")], False),
        ([("b", "expired"), ("a", "rejected")], False),
        ([("b", "expired"), ("a", "expired"), ("c", "rejected")], True),
    ],
)
def test_the_table_of_cycles(deaths: list[tuple[str, str]], cycle: bool) -> None:
    assert is_cycle("a", [["x-death", "A", [entry(*each) for each in deaths]]]) is cycle


def test_a_malformed_x_death_is_no_cycle() -> None:
    assert not is_cycle("a", [["x-death", "A", [["I", 1], entry("a", "expired")]]])
    assert not is_cycle("a", [["x-death", "S", "a"]])
    assert not is_cycle("a", [])
