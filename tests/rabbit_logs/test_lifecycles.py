"""Deliveries matched to publishes in logs of RabbitMQ's tracing plugin, and the order that they show."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rabbit_logs.tracing_logs import json_log, published, received, text_log
from tests.support.source_tree import ROOT
from warrenmq.cli import main
from warrenmq.rabbit_logs.lifecycles import lifecycles
from warrenmq.rabbit_logs.log_files import open_logs
from warrenmq.rabbit_logs.order import INDETERMINATE, OK, UNDECIDED, VIOLATED
from warrenmq.rabbit_logs.traffic import SLICES, TimeLine, Traffic

GOLDEN = Path(ROOT, "tests") / "golden" / "rabbitmq-tracing-3.10"
T = 1_700_000_000_000_000
MS = 1_000


def lives(*records, **options):
    return list(lifecycles(records, **options))


def counted(*records, several=False):
    traffic = Traffic(several=several)
    for record in records:
        traffic.take(record)
    traffic.finish()
    return traffic


def order(*records, queue="q", damaged=False):
    found = counted(*records).order.queues["/", queue]
    return found.verdict(damaged=damaged), +found.undecided


def test_a_delivery_belongs_to_the_publish_that_is_alike_and_a_second_one_is_a_redelivery():
    (life,) = lives(
        published(T, "q"), received(T + 5 * MS, "q"), received(T + 9 * MS, "q", connection="other")
    )
    assert (life.vhost, life.queue, life.exchange, life.routing_keys, life.size) == (
        "/",
        "q",
        "events",
        ("k",),
        1,
    )
    assert (life.published_t, life.delivered_t, life.last_delivered_t) == (T, T + 5 * MS, T + 9 * MS)
    assert (life.deliveries, life.delay, life.matched) == (2, 5 * MS, "content")
    assert (life.published_connection, life.delivered_connection) == ("publisher", "consumer")


def test_a_message_has_a_life_in_each_queue_and_one_that_no_queue_gets_has_one_as_well():
    found = lives(published(T, "a", "b"), received(T, "b"), published(T, body=b"lost"))
    assert Counter((life.queue, life.deliveries) for life in found) == {
        ("a", 0): 1,
        ("b", 1): 1,
        (None, 0): 1,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"body": b"y"}, {"exchange": "other"}, {"key": "l"}, {"message_id": "m"}, {"correlation_id": "c"},
        {"headers": {"h": 1}}, {"priority": 1},
    ],
)  # fmt: skip
def test_messages_that_differ_in_anything_are_different_messages(change):
    found = lives(published(T, "q"), received(T, "q", **change))
    assert [(life.deliveries, life.matched) for life in found] == [(0, "none"), (1, "none")]


def test_headers_that_rabbitmq_adds_on_the_way_are_ignored():
    for headers in ({"x-delivery-count": 2}, {"x-stream-offset": 7}, {"x-death": [{"queue": "q"}]}):
        (life,) = lives(published(T, "q"), received(T, "q", headers=headers))
        assert life.matched == "content"
        assert life.dead_lettered is ("x-death" in headers)


def test_messages_that_are_alike_are_matched_in_order_and_it_is_said():
    found = lives(
        published(T, "q"), published(T + MS, "q"), received(T + 5 * MS, "q"), received(T + 7 * MS, "q")
    )
    assert [(life.published_t, life.delivered_t, life.matched) for life in found] == [
        (T, T + 5 * MS, "order"), (T + MS, T + 7 * MS, "order"),
    ]  # fmt: skip


def test_messages_older_than_the_log_have_no_publish():
    (life,) = lives(received(T, "q"), received(T + MS, "q"))
    assert (life.published_t, life.deliveries, life.matched) == (None, 2, "none")


def test_a_delivery_logged_before_its_publish_is_matched_if_it_is_young_and_there_are_several_logs_or_an_id():
    early = received(T, "q"), published(T + 3 * MS, "q")
    assert [life.matched for life in lives(*early)] == ["none", "none"]
    (life,) = lives(*early, several=True)
    assert (life.matched, life.delay) == ("content", 0)
    (life,) = lives(received(T, "q", message_id="m"), published(T + 3 * MS, "q", message_id="m"))
    assert life.matched == "message_id"
    assert len(lives(received(T, "q", message_id="m"), published(T + 2_000 * MS, "q", message_id="m"))) == 2


def test_memory_is_bounded_and_what_is_let_go_is_counted():
    from warrenmq.rabbit_logs.lifecycles import Matcher, sights

    done = []
    matcher = Matcher(done.append, limit=10)
    for n in range(25):
        for seen in sights(published(T + n, "q", message_id=str(n))):
            matcher.take(seen)
    assert [life.message_id for life in done] == [str(n) for n in range(15)]
    assert matcher.forgotten == 15
    matcher.finish()
    assert len(done) == 25


actions = st.lists(st.tuples(st.sampled_from("pppdr"), st.integers(0, 2), st.integers(0, 7)), max_size=60)


@given(actions, st.booleans())
def test_lives_are_what_a_broker_did_when_messages_have_ids(script, as_text):
    """A broker of three queues, some messages to two of them, requeues included."""
    ready = {name: [] for name in "abc"}
    truth, out, t = {}, [], T
    for number, (action, which, extra) in enumerate(script):
        t += MS
        queue = "abc"[which]
        if action == "p":
            queues = [queue, *("abc"[extra] for _ in range(1) if extra < 3 and extra != which)]
            out.append(published(t, *queues, body=b"same", message_id=f"m{number}"))
            for each in queues:
                truth[each, f"m{number}"] = [t]
                ready[each].append(f"m{number}")
        elif ready[queue]:
            message = ready[queue].pop(0)
            out.append(received(t, queue, body=b"same", message_id=message))
            truth[queue, message].append(t)
            if action == "r":
                ready[queue].insert(0, message)
    found = {(life.queue, life.message_id): life for life in lifecycles(out)}
    assert found.keys() == truth.keys()
    for key, (came, *went) in truth.items():
        life = found[key]
        assert life.published_t == came
        assert (life.delivered_t, life.last_delivered_t) == ((went[0], went[-1]) if went else (None, None))
        assert life.deliveries == len(went)
        assert life.matched == ("message_id" if went else "none")
    traffic = counted(*out)
    assert sum(queue.waiting for queue in traffic.queues.values()) == sum(
        len(went) == 1 for went in truth.values()
    )
    verdicts = {queue: each.verdict(damaged=False) for (_, queue), each in traffic.order.queues.items()}
    assert VIOLATED not in verdicts.values()
    for queue, verdict in verdicts.items():
        went = [times for (where, _), times in truth.items() if where == queue]
        plain = any(len(times) == 2 for times in went) and all(len(times) <= 2 for times in went)
        assert verdict == (OK if plain else INDETERMINATE), queue


def pair(first, second, **swapped):
    """Two messages published in one channel, the second delivered first; `swapped` changes the deliveries."""
    return (
        published(T, "q", **first), published(T + MS, "q", **second),
        received(T + 2 * MS, "q", **second, **swapped), received(T + 3 * MS, "q", **first),
    )  # fmt: skip


A, B = {"message_id": "a"}, {"message_id": "b"}


def test_the_younger_of_two_with_ids_first_in_the_only_channel_is_a_violation_and_is_named():
    traffic = counted(*pair(A, B))
    queue = traffic.order.queues["/", "q"]
    assert queue.verdict(damaged=False) == VIOLATED
    assert "'b'" in queue.examples[0].text
    assert "before message 'a'" in queue.examples[0].text


def test_bodies_are_enough_to_be_sure_in_a_queue_that_was_empty_when_the_log_began():
    by_content = pair({"body": b"a"}, {"body": b"b"})
    assert order(*by_content)[0] == VIOLATED
    assert order(received(T - MS, "q", body=b"old"), *by_content)[0] == INDETERMINATE


INDETERMINATES = {
    "another consumer, before": (received(T - 9, "q", **A, connection="x"), *pair({"message_id": "c"}, B)),
    "another consumer of the younger": pair(A, B, connection="x"),
    "damage": None,
    "alike": (published(T, "q"), published(T, "q"), received(T, "q"), received(T, "q")),
    "dead-lettered": (published(T, "q", **A), received(T, "q", **A, headers={"x-death": []})),
    "redelivered": (published(T, "q", **A), received(T, "q", **A), received(T, "q", **A)),
    "stream": (published(T, "q", **A), received(T, "q", **A, headers={"x-stream-offset": 0})),
    "unpublished": (received(T, "q", **A),),
    "never delivered": (published(T, "q", **A), published(T, "q", **B), received(T, "q", **B)),
    "overtaken": (
        published(T, "q", **A), published(T, "q", **B, channel=2), received(T, "q", **B), received(T, "q", **A),
    ),
    "another priority": (
        published(T, "q", **A), published(T, "q", **B, priority=5),
        received(T, "q", **B, priority=5), received(T, "q", **A),
    ),
    "nothing delivered": (published(T, "q"),),
}  # fmt: skip


@pytest.mark.parametrize("case", INDETERMINATES)
def test_questions_that_the_log_cannot_decide_are_indeterminate(case):
    records = INDETERMINATES[case] or pair(A, B)
    verdict, undecided = order(*records, damaged=case == "damage")
    assert verdict == INDETERMINATE
    assert undecided.keys() <= UNDECIDED.keys()
    assert case not in UNDECIDED or undecided[case] == (2 if case == "alike" else 1)


def test_deliveries_in_order_are_ok():
    assert order(
        published(T, "q", **A), published(T, "q", **B), received(T, "q", **A), received(T, "q", **B)
    ) == (OK, {})


def test_the_lives_in_real_logs():
    for name in ("all-json", "all-text", "cut-json", "cut-text"):
        traffic = counted(*open_logs(GOLDEN / f"{name}.log").records())
        told = {
            queue: (found.published, found.delivered, found.redelivered, found.unpublished, found.waiting)
            for (_, queue), found in traffic.queues.items()
        }
        assert told == {
            "orders": (18, 18, 2, 0, 0),
            "none": (4, 4, 1, 0, 0),
            "audit-a": (2, 2, 0, 0, 0),
            "audit-b": (2, 0, 0, 0, 2),
            'größe 数 "quoted"': (9, 9, 0, 0, 0),
            "odd Queue:        fake": (1, 1, 0, 0, 0),
            "nowhere": (1, 0, 0, 0, 1),
            "dead-letters": (0, 1, 0, 1, 0),
        }
        verdicts = {q for (_, q), each in traffic.order.queues.items() if each.verdict(damaged=False) == OK}
        assert verdicts == {"audit-a", 'größe 数 "quoted"', "odd Queue:        fake"}


def test_quorum_queues_streams_and_priorities_are_no_violations():
    traffic = counted(*open_logs(GOLDEN / "quorum-stream-text.log").records())
    told = {
        queue: (+each.undecided, each.verdict(damaged=False))
        for (_, queue), each in traffic.order.queues.items()
    }
    assert told["quorum"] == ({"dead-lettered": 1, "redelivered": 1}, INDETERMINATE)
    assert told["stream"] == ({"stream": 5}, INDETERMINATE)
    assert told["ranked"][0].keys() == {"overtaken"}


def test_depths_and_delays_are_counted():
    traffic = counted(
        *(published(T + n * MS, "q", message_id=str(n)) for n in range(10)),
        *(received(T + 2_000 * MS + n * MS, "q", message_id=str(n)) for n in range(8)),
    )
    queue = traffic.queues["/", "q"]
    assert (queue.published, queue.delivered, queue.waiting, queue.most_waiting) == (10, 8, 2, 10)
    assert [waiting for _, waiting in queue.line.depths()] == [10, 2]
    assert queue.percentile(50) == pytest.approx(2_000, rel=0.06)
    assert queue.longest == 2_000 * MS


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 3)), max_size=2_000))
def test_a_time_line_grows_coarser_and_loses_nothing(events):
    line = TimeLine()
    for t, column in events:
        line.count(t, column)
    assert len(line.slices) <= SLICES
    for column in range(4):
        assert sum(counts[column] for counts in line.slices.values()) == sum(c == column for _, c in events)


def test_the_command_says_what_was_violated_and_exits_with_one(tmp_path, capsys):
    path = tmp_path / "a.log"
    path.write_bytes(text_log(pair(A, B)))
    assert main(["trace", "rabbitmq", str(path)]) == 1
    out = capsys.readouterr().out
    assert "violated" in out
    assert "message 'b' of 1 bytes was delivered" in out


def test_the_command_prints_json_and_tells_of_damage(tmp_path, capsys):
    path = tmp_path / "a.log"
    path.write_bytes(json_log(pair(A, B)) + b'{"channel":1,"conn')
    assert main(["trace", "rabbitmq", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    (queue,) = told["queues"]
    assert queue["order"]["verdict"] == INDETERMINATE
    assert queue["delay_ms"]["max"] == 3
    assert told["files"][0]["damaged"] == 1
    assert "damaged in 1 places" in err


def test_the_command_refuses_what_is_no_log(tmp_path, capsys):
    (tmp_path / "x").write_text("hello")
    assert main(["trace", "rabbitmq", str(tmp_path / "x")]) == 2
    assert "no log of RabbitMQ's tracing plugin" in capsys.readouterr().err


def test_a_log_without_records_is_said(tmp_path, capsys):
    (tmp_path / "x.log").write_text("")
    assert main(["trace", "rabbitmq", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no records\n"
