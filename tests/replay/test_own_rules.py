"""Rules of users: what a query finds is a violation beside ours, a case counts as exercised, what rests on missing rows is undecided."""

import pytest

from tests.support.simulated_trace import consistent_trace
from tests.support.trace_union import with_a_gap, write_directory
from warrenmq.errors import ArgumentTypeError, ArgumentValueError, CallerError
from warrenmq.replay import SqlRule, replay

ACKED = SqlRule(
    "mine",
    "a message was acked",
    "SELECT run, actor, seq FROM ack_rows",
    "SELECT run, actor, seq FROM ack_rows",
)
NEVER = SqlRule(
    "never",
    "a store was deaf",
    "SELECT run, actor, seq FROM stored WHERE event = 255",
    "SELECT run, actor, seq FROM ram_target_rows",
)


def replayed(folder, runs, rules):
    return replay(write_directory(folder / "trace", runs), engine="python", picture=False, rules=rules)


def test_a_query_finds_violations_and_says_whether_it_was_exercised(tmp_path):
    found = replayed(tmp_path, consistent_trace(1), [ACKED, NEVER])
    counts = {rule.id: rule for rule in found.rules}
    assert found.verdict == "violated"
    assert counts["mine"].violated == counts["mine"].checked > 0
    assert (counts["never"].checked, counts["never"].violated) == (0, 0)
    assert {each.rule for each in found.violations} == {"mine"}


def test_a_query_may_end_as_one_in_a_shell_and_one_that_sqlite_refuses_is_a_sentence(tmp_path):
    asked = [
        SqlRule(name, "", f"SELECT run, actor, seq FROM ack_rows{end}")
        for name, end in (("plain", ""), ("semicolon", ";\n"), ("comment", " -- every ack"))
    ]
    counts = [rule.violated for rule in replayed(tmp_path, consistent_trace(1), asked).rules[-3:]]
    assert counts[0] > 0
    assert counts == [counts[0]] * 3
    with pytest.raises(CallerError, match=r"SELECT a FROM nope.*no such table: nope"):
        replay(tmp_path / "trace", engine="python", rules=[SqlRule("mine", "", "SELECT a\n  FROM nope")])


def test_findings_that_rest_on_missing_rows_are_undecided(tmp_path):
    found = replayed(tmp_path, with_a_gap(1), [ACKED])
    counts = {rule.id: rule for rule in found.rules}
    assert counts["mine"].indeterminate > 0


def test_neither_another_engine_nor_what_is_no_rule_is_taken_for_one():
    with pytest.raises(ArgumentValueError, match="engine is 'Spark'; give 'spark' or 'python'"):
        replay("trace/", engine="Spark")
    with pytest.raises(ArgumentTypeError, match="a rule is of type str"):
        replay("trace/", engine="python", rules=["Q1"])


def test_an_id_is_given_once(tmp_path):
    with pytest.raises(CallerError):
        replayed(tmp_path, consistent_trace(1), [SqlRule("Q1", "", "SELECT 1, 1, 1")])
