"""Delivery tags and what an ack of them names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.amqp.channel.unacked import Unacked
from warrenmq.amqp.wire.errors import AmqpError

UNKNOWN = "unknown"


def outstanding(*tags):
    unacked = Unacked()
    for tag in range(1, max(tags, default=0) + 1):
        first = unacked.take_tags(1)
        if tag in tags:
            unacked.note(first, 1, "holder", 100 + tag, 0)
    return unacked


def taken(unacked, tag, *, multiple):
    try:
        return [pending.delivery_tag for pending in unacked.take(tag, multiple=multiple)]
    except AmqpError as error:
        return UNKNOWN if str(error) == f"406 PRECONDITION_FAILED - unknown delivery tag {tag}" else error


@pytest.mark.parametrize(
    ("tags", "tag", "multiple", "expected"),
    [
        ((5, 6, 8), 6, False, [6]),
        ((5, 6, 8), 6, True, [5, 6]),
        ((5, 6, 8), 0, True, [5, 6, 8]),
        ((), 0, True, []),
        ((5, 6, 8), 7, True, UNKNOWN),
        ((5, 6, 8), 7, False, UNKNOWN),
        ((5, 6, 8), 0, False, UNKNOWN),
    ],
)
def test_an_ack_names_what_the_table_says(tags, tag, multiple, expected):
    assert taken(outstanding(*tags), tag, multiple=multiple) == expected


def test_the_queue_s_own_tag_goes_with_a_delivery():
    unacked = outstanding(5, 6)
    assert [pending.queue_tag for pending in unacked.take_all()] == [105, 106]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["deliver", "no_ack", "ack", "multiple", "back", "all"]), st.integers(0, 30)
        )
    )
)
def test_outstanding_deliveries_are_as_in_a_plain_list(steps):
    unacked, model, out = Unacked(), [], []
    for step, number in steps:
        if step in ("deliver", "no_ack"):
            count = 1 + number % 3
            first = unacked.take_tags(count)
            if step == "deliver":
                unacked.note(first, count, "holder", 1, first)
                model += range(first, first + count)
        elif step == "back":
            unacked.put_back(out)
            model = sorted(model + [pending.delivery_tag for pending in out])
            out = []
        elif step == "all":
            assert [pending.delivery_tag for pending in unacked.take_all()] == model
            model, out = [], []
        else:
            multiple = step == "multiple"
            if number == 0 and multiple:
                expected = list(model)
            elif number in model:
                expected = [tag for tag in model if tag == number or (multiple and tag < number)]
            else:
                assert taken(unacked, number, multiple=multiple) == UNKNOWN
                continue
            found = unacked.take(number, multiple=multiple)
            assert [pending.delivery_tag for pending in found] == expected
            out += found
            model = [tag for tag in model if tag not in expected]
        assert len(unacked) == len(model)
        oldest = unacked.oldest()
        assert (oldest and oldest.delivery_tag) == (model[0] if model else None)
