"""`ls`, `peek`, `check` and `stats` as people use them, on a golden directory."""

import json
import os

import pytest

import warrenmq
from tests.support import golden
from tests.support.directories import check, say
from warrenmq.cli import main

CASE = "c08-types-vhosts-a"


@pytest.fixture
def directory(tmp_path):
    return golden.lay_out(CASE, tmp_path)


@pytest.mark.parametrize("verb", ["ls", "check", "stats"])
def test_a_table_has_a_line_a_queue_and_fits_80_columns(verb, directory):
    status, out = say(verb, str(directory))
    assert status == 0
    assert all(len(line) <= 80 for line in out.splitlines())
    for queue in golden.manifest(CASE)["queues"]:
        assert queue["name"] in out


def test_ls_counts_what_is_ready(directory):
    ended = golden.manifest(CASE)["ended_us"] + 60_000_000
    status, found = check(directory, verb="ls", now_us=ended)
    assert status == 0
    for queue in golden.manifest(CASE)["queues"]:
        lines = [
            each
            for each in found["queues"]
            if (each["vhost"], each["name"]) == (queue["vhost"], queue["name"])
        ]
        assert sum(line["ready"] for line in lines) == queue["recovered"]


def test_stats_has_numbers_of_stores_and_queues(directory):
    status, found = check(directory, verb="stats")
    assert status == 0
    assert sum(each["records"] for each in found["stores"]) == 34 + 8
    assert sum(each["in_store"] + each["in_index"] + each["in_qs"] for each in found["queues"]) == sum(
        each["ready"] for each in found["queues"]
    )


def test_peek_prints_one_queue_with_all_its_priorities_in_order(directory):
    [queue] = [each for each in golden.manifest(CASE)["queues"] if each["name"].endswith(".prio")]
    status, found = check(directory, verb="peek", more=(queue["name"],))
    assert status == 0
    assert (found["vhost"], found["name"], len(found["directories"])) == ("/", queue["name"], 4)
    assert [row["sha256"] for row in found["messages"]] == [row["body_sha256"] for row in queue["messages"]]
    _, some = check(directory, verb="peek", more=(queue["name"], "--limit", "9"))
    assert some["messages"] == found["messages"][:9]


def test_peek_asks_which_vhost_and_says_what_queues_there_are(directory, capsys):
    name = "9sicqd.types"
    assert say("peek", str(directory), name)[0] == 2
    assert "--vhost" in capsys.readouterr().err
    assert say("peek", str(directory), name, "--vhost", "second")[0] == 0
    assert say("peek", str(directory), "nobody")[0] == 2
    assert name in capsys.readouterr().err


def test_check_names_damage_and_why_messages_are_not_given_back(tmp_path):
    directory = golden.lay_out_variant("c09-torn-v1-a", "variants/rdq-missing.tar.gz", tmp_path)
    status, out = say("check", str(directory))
    assert status == 1
    assert "not given back 5: no message record" in out
    assert "Nothing is wrong" not in out


@pytest.mark.parametrize(
    ("now", "ready"), [("1795182556", 10), ("1795182558", 8), ("2026-11-20T13:49:16Z", 10), ("1900000000", 2)]
)
def test_messages_expire_by_the_time_that_is_given(now, ready, directory):
    _, out = say("peek", str(directory), "9sicqd.expiring", "--json", "--now", now)
    assert len(json.loads(out)["messages"]) == ready


def test_an_invalid_time_is_a_usage_error(directory, capsys):
    with pytest.raises(SystemExit) as stop:
        say("ls", str(directory), "--now", "tomorrow")
    assert stop.value.code == 2
    assert "tomorrow" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["ls", "peek", "check", "stats"])
def test_of_a_broker_that_runs_the_next_start_is_shown_and_that_is_said(verb, tmp_path, capsys):
    more = ["jobs"] if verb == "peek" else []
    with warrenmq.open(tmp_path) as broker:
        broker.declare_queue("jobs").publish(b"x").result(5)
        for form in ([], ["--json"]):
            assert main([verb, str(tmp_path), *more, *form]) == 0
            out, err = capsys.readouterr()
            [line] = err.splitlines()
            assert f"{tmp_path} is in use by process {os.getpid()}" in line
            assert "what the next start would give back" in line
        assert json.loads(out)["in_use"] is True
    assert main([verb, str(tmp_path), *more, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["in_use"] is False
