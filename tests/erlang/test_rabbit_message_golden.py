"""Every message that a real RabbitMQ gave back is read from its bytes with the same contents."""

import pytest

from tests.erlang import golden_messages
from tests.support import golden
from warrenmq.erlang import rabbit_message


def cases():
    for case in golden.CASES:
        for queue, messages in golden_messages.queues(case):
            yield pytest.param(case, queue, messages, id=f"{case}-{queue['vhost']}-{queue['name']}")


@pytest.mark.parametrize(("case", "queue", "messages"), list(cases()))
def test_a_stored_message_reads_as_the_broker_delivered_it(case, queue, messages):
    for expected in messages:
        data, name = golden_messages.record(case, queue, expected)
        stored, msg_id = golden_messages.stored_term(data, name)
        found = rabbit_message.decode(stored)
        assert {
            "exchange": found.exchange,
            "routing_keys": found.routing_keys,
            "properties": found.properties,
            "body_sha256": golden_messages.sha256(found.body),
            "fragments": found.fragments,
            "stored_properties": found.stored_properties,
            "msg_id": found.msg_id.hex(),
        } == {
            "exchange": expected["exchange"],
            "routing_keys": expected["routing_keys"],
            "properties": expected["properties"],
            "body_sha256": expected["body_sha256"],
            "fragments": expected.get("fragments", 1 if found.body else 0),
            "stored_properties": expected.get("stored_properties"),
            "msg_id": expected["msg_id"],
        }, f"position {expected['position']} in {name}"
        assert msg_id in {None, found.msg_id}
        assert found.persistent == expected["persistent"]
