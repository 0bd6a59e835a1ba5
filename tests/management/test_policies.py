"""Policies: which holds for what, how it joins a declaration, and that changes hold at once and after a restart."""

import pytest

import warrenmq
from tests.support.simulated import take_all
from warrenmq.directory.definitions import QueueRecord
from warrenmq.queue.arguments import QueueArguments
from warrenmq.vhost.policies import OPERATOR_POLICY, POLICY, Policies, check_parameter, joined


def policies(*rows):
    return Policies({
        (OPERATOR_POLICY if name.startswith("op") else POLICY, name): {
            "pattern": pattern, "definition": definition, "priority": priority, "apply-to": apply_to,
        } for name, pattern, definition, priority, apply_to in rows
    })  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "effective"),
    [
        ([], {}),
        ([("a", "^j", {"max-length": 5}, 0, "queues")], {"max-length": 5}),
        ([("a", "^x", {"max-length": 5}, 0, "queues")], {}),
        ([("a", "", {"max-length": 5}, 0, "exchanges")], {}),
        ([("a", "", {"max-length": 5}, 0, "quorum_queues")], {}),
        ([("a", "", {"max-length": 5}, 1, "all"), ("b", "", {"expires": 9}, 2, "classic_queues")], {"expires": 9}),
        ([("b", "", {"max-length": 5}, 1, "all"), ("a", "", {"max-length": 6}, 1, "all")], {"max-length": 6}),
        ([("a", "", {"max-length": 5}, 1, "all"), ("op", "", {"max-length": 3, "expires": 7}, 0, "all")],
         {"max-length": 3, "expires": 7}),
        ([("a", "", {"max-length": 2}, 1, "all"), ("op", "", {"max-length": 3}, 0, "all")], {"max-length": 2}),
    ],
)  # fmt: skip
def test_the_policy_of_the_highest_priority_holds_and_the_operators_bounds_it(rows, effective):
    assert policies(*rows).of("queue", "jobs").definition() == effective


@pytest.mark.parametrize(
    ("declared", "definition", "found"),
    [
        ({}, {"max-length": 5}, {"max_length": 5}),
        ({"x-max-length": 3}, {"max-length": 5}, {"max_length": 3}),
        ({"x-max-length": 9}, {"max-length": 5}, {"max_length": 5}),
        ({"x-overflow": "drop-head"}, {"overflow": "reject-publish"}, {"overflow": "drop-head"}),
        ({}, {"overflow": "reject-publish"}, {"overflow": "reject-publish"}),
        ({"x-dead-letter-exchange": "a"}, {"dead-letter-exchange": "b", "dead-letter-routing-key": "k"},
         {"dead_letter_exchange": "a", "dead_letter_routing_key": "k"}),
        ({"x-message-ttl": 10}, {"message-ttl": 0}, {"message_ttl": 0}),
        ({}, {"ha-mode": "all", "alternate-exchange": "x"}, {}),
        ({}, {"queue-version": 1, "queue-mode": "lazy"}, {"queue_version": 1, "queue_mode": "lazy"}),
    ],
)  # fmt: skip
def test_a_policy_joins_the_arguments(declared, definition, found):
    plain = QueueArguments.of(declared, "q", "/")
    result = joined(plain, declared, definition)
    assert {name: getattr(result, name) for name in found} == found


@pytest.mark.parametrize(
    ("component", "value", "said"),
    [
        ("x", {}, "component x not found"),
        (POLICY, {"pattern": "a"}, 'Key "definition" not found in p'),
        (POLICY, {"pattern": "(", "definition": {"max-length": 1}}, "pattern should be regular expression but is invalid"),
        (POLICY, {"pattern": "", "definition": {}}, "no policy provided"),
        (POLICY, {"pattern": "", "definition": {"max-lengthx": 1}}, r"max-lengthx.*are not recognised policy settings"),
        (POLICY, {"pattern": "", "definition": {"max-length": "a"}}, "'a' is not a valid maximum length"),
        (POLICY, {"pattern": "", "definition": {"max-length": -1}}, "-1 is not a valid maximum length"),
        (POLICY, {"pattern": "", "definition": {"max-length": True}}, "True is not a valid maximum length"),
        (POLICY, {"pattern": "", "definition": {"overflow": "x"}}, "'x' is not a valid overflow value"),
        (POLICY, {"pattern": "", "definition": {"expires": 0}}, "0 is not a valid queue expiry"),
        (POLICY, {"pattern": "", "definition": {"max-length": 1}, "apply-to": "x"}, "apply-to should be one of"),
        (POLICY, {"pattern": "", "definition": {"max-length": 1}, "priority": "1"}, "priority should be number"),
        (OPERATOR_POLICY, {"pattern": "", "definition": {"overflow": "drop-head"}}, "not recognised operator policy"),
        (POLICY, {"pattern": "a{99999999999999999999}", "definition": {"max-length": 1}}, "pattern should be regular expression"),
        (POLICY, {"pattern": "(" * 100_000, "definition": {"max-length": 1}}, "pattern should be regular expression"),
        (POLICY, {"pattern": f"(?P={'x' * 9_999})", "definition": {"max-length": 1}}, r"unknown group name 'x+\.\.\.$"),
        (POLICY, {"pattern": "", "definition": {"max-length": "a" * 9_999}}, r"'a+\.\.\. is not a valid maximum length"),
        (POLICY, {"pattern": "", "definition": dict.fromkeys(map(str, range(9_999)))}, r"\.\.\. are not recognised"),
        (POLICY, {"pattern": "", "definition": {"max-length": 1}, "apply-to": "x" * 9_999}, r"'x+\.\.\.$"),
        ("vhost-limits", {"max-queue": 1}, "max-queue = 1 is no limit"),
    ],
)  # fmt: skip
def test_a_policy_that_makes_no_sense_is_refused(component, value, said):
    with pytest.raises(warrenmq.PreconditionFailed, match=said) as refused:
        check_parameter(component, "p", value)
    assert refused.value.reply_text.startswith("Validation failed\n\n")
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("profile", ["modern", "classic"])
def test_a_length_holds_for_messages_that_are_there(tmp_path, profile):
    with warrenmq.open(tmp_path / "data", settings={"profile": profile}) as broker:
        queue = broker.declare_queue("jobs")
        queue.publish_many([b"%d" % i for i in range(9)]).result(5)
        held = queue.get()
        queue.publish(b"transient", persistent=False).result(5)
        broker.set_policy("short", "^jobs$", {"max-length": 4})
        assert queue.info().ready == 4
        held.nack()
        broker.set_policy("bytes", "^jobs$", {"max-length-bytes": 11}, priority=1)
        assert queue.info().ready == 3
        assert broker.inside.vhost.figures["jobs"]().ready_bytes == 11
        assert take_all(queue) == [b"7", b"8", b"transient"]
        broker.clear_policy("bytes")
        broker.clear_policy("short")
        queue.publish_many([b"x"] * 9).result(5)
        assert len(take_all(queue)) == 9
        with pytest.raises(warrenmq.NotFound, match="no policy 'short'"):
            broker.clear_policy("short")


def test_publishes_are_refused_while_a_policy_says_so(tmp_path):
    with warrenmq.open(tmp_path / "data") as broker:
        queue = broker.declare_queue("jobs")
        broker.set_policy("full", "", {"max-length": 1, "overflow": "reject-publish"}, apply_to="queues")
        queue.publish(b"1").result(5)
        with pytest.raises(warrenmq.Nacked):
            queue.publish(b"2").result(5)
        broker.set_policy("full", "", {"max-length": 1}, apply_to="queues")
        queue.publish(b"3").result(5)
        assert take_all(queue) == [b"3"]


def test_dead_letters_and_alternates_follow_policies(tmp_path):
    with warrenmq.open(tmp_path / "data") as broker:
        queue, dead, lost = (broker.declare_queue(name) for name in ("jobs", "dead", "lost"))
        exchange = broker.declare_exchange("e")
        broker.bind(lost, broker.declare_exchange("other", "fanout"))
        broker.set_policy("dl", "^jobs$", {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"})
        broker.set_policy("ae", "^e$", {"alternate-exchange": "other"}, apply_to="exchanges")
        queue.publish(b"1").result(5)
        queue.get().reject(requeue=False)
        assert dead.get(timeout=5).body == b"1"
        exchange.publish("nowhere", b"2").result(5)
        assert take_all(lost) == [b"2"]
        broker.clear_policy("ae")
        broker.clear_policy("dl")
        exchange.publish("nowhere", b"3").result(5)
        queue.publish(b"4").result(5)
        queue.get().reject(requeue=False)
        assert (lost.info().ready, dead.info().ready, queue.info().ready) == (0, 0, 0)


def test_a_time_to_live_and_an_expiry_come_and_go(tmp_path):
    with warrenmq.open(tmp_path / "data") as broker:
        queue = broker.declare_queue("jobs")
        queue.publish(b"stays").result(5)
        broker.set_policy("ttl", "^jobs$", {"message-ttl": 0})
        queue.publish(b"goes").result(5)
        assert take_all(queue) == [b"stays"]
        assert take_all(queue) == []
        broker.clear_policy("ttl")
        queue.publish(b"x").result(5)
        assert take_all(queue) == [b"x"]
        broker.set_policy("expires", "^jobs$", {"expires": 86_400_000})
        assert broker.inside.vhost.policies.queue_arguments(QueueRecord("jobs"), "/").expires == 86_400_000
        broker.set_policy("expires", "^jobs$", {"expires": 1})
        with pytest.raises(warrenmq.NotFound):
            while True:
                broker.runtime.event().wait(0.01)
                broker.inside.vhost.existing_queue("jobs")


def test_a_delivery_limit_comes_and_goes(tmp_path):
    with warrenmq.open(tmp_path / "data") as broker:
        queue = broker.declare_queue("jobs")
        queue.publish(b"1").result(5)
        broker.set_policy("limit", "^jobs$", {"delivery-limit": 1})
        queue.get().nack()
        assert queue.info().ready == 1
        broker.clear_policy("limit")
        queue.get().nack()
        broker.set_policy("limit", "^jobs$", {"delivery-limit": 0})
        assert queue.info().ready == 1
        queue.get().nack()
        assert queue.info().ready == 0


def test_policies_outlast_a_restart_and_hold_for_queues_to_come(tmp_path):
    with warrenmq.open(tmp_path / "data") as broker:
        broker.set_policy("p", "^jobs", {"max-length": 2}, priority=3)
        broker.set_policy("p", "^jobs", {"max-length": 1}, operator=True)
        broker.declare_queue("jobs").publish_many([b"1", b"2", b"3"]).result(5)
    with warrenmq.open(tmp_path / "data") as broker:
        assert [(each.name, each.operator, each.priority) for each in broker.policies()] == [
            ("p", False, 3),
            ("p", True, 0),
        ]
        assert take_all(broker.queue("jobs")) == [b"3"]
        queue = broker.declare_queue("jobs2", arguments={"x-max-length": 5})
        queue.publish_many([b"1", b"2"]).result(5)
        assert take_all(queue) == [b"2"]


def test_a_quorum_queue_is_a_classic_one_where_that_is_asked_for(tmp_path):
    arguments = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3, "x-max-length": 2}
    with (
        warrenmq.open(tmp_path / "a") as broker,
        pytest.raises(warrenmq.PreconditionFailed, match="classic queues only"),
    ):
        broker.declare_queue("q", arguments=arguments)
    with warrenmq.open(tmp_path / "b", settings={"quorum_as_classic": True}) as broker:
        broker.declare_queue("q", arguments=arguments)
        broker.declare_queue("q", arguments=arguments)
        assert broker.inside.vhost.queue("q").arguments == {"x-max-length": 2}


# -- over HTTP


def test_policies_are_set_shown_and_cleared(api):
    api("PUT", "queues/%2F/jobs", {"durable": True})
    body = {"pattern": "^j", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"}
    assert api("PUT", "policies/%2F/p", body)[0] == 201
    assert api("PUT", "policies/%2F/p", body)[0] == 204
    assert api("PUT", "operator-policies/%2F/o", {"pattern": "", "definition": {"max-length": 3}})[0] == 201
    assert api.get("policies") == [{"vhost": "/", "name": "p", **body}]
    row = api.get("queues/%2F/jobs")
    assert (row["policy"], row["operator_policy"], row["effective_policy_definition"]) == (
        "p",
        "o",
        {"max-length": 3},
    )
    assert [each["component"] for each in api.get("parameters")] == ["operator_policy"]
    status, answer = api("PUT", "policies/%2F/bad", {"pattern": "", "definition": {"nonsense": 1}})
    assert (status, answer["reason"]) == (
        400, "Validation failed\n\n[('nonsense', 1)] are not recognised policy settings\n",
    )  # fmt: skip
    assert api("DELETE", "policies/%2F/p")[0] == 204
    assert api("DELETE", "policies/%2F/p")[0] == 404
    assert api.get("policies/%2F") == []


def test_limits_of_a_virtual_host_hold(api):
    assert api("PUT", "vhost-limits/%2F/max-queues", {"value": 1})[0] == 204
    assert api.get("vhost-limits") == [{"vhost": "/", "value": {"max-queues": 1}}]
    assert api("PUT", "queues/%2F/a", {})[0] == 201
    assert api("PUT", "queues/%2F/a", {})[0] == 204
    status, answer = api("PUT", "queues/%2F/b", {})
    assert (status, answer["reason"]) == (
        400,
        "cannot declare queue 'b': queue limit in vhost '/' (1) is reached",
    )
    assert api("DELETE", "vhost-limits/%2F/max-queues")[0] == 204
    assert api("PUT", "queues/%2F/b", {})[0] == 201


def test_a_stored_policy_whose_pattern_is_refused_now_is_told_once_and_holds_for_nothing(
    tmp_path, monkeypatch, logs
):
    value = {"pattern": r"(a+)+\1$", "definition": {"max-length": 1}}
    with warrenmq.open(tmp_path / "data") as broker:  # as an earlier release stored it
        monkeypatch.setattr("warrenmq.actors.vhost.parameters.check_parameter", lambda *_: None)
        broker.set_policy("old", value["pattern"], value["definition"])
    logs.clear()
    with warrenmq.open(tmp_path / "data") as broker:
        broker.declare_queue("aaa").publish_many([b"1", b"2"]).result(5)
        assert len(broker.queue("aaa")) == 2
        (line,) = [each for each in logs if "its pattern is refused" in each["event"]]
        assert (line["policy"], line["pattern"]) == ("old", value["pattern"])
        assert "exponential" in line["reason"]
        (listed,) = broker.policies()
        assert (listed.name, listed.pattern, listed.refused) == ("old", value["pattern"], line["reason"])
        broker.clear_policy("old")
