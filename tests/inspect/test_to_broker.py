"""Decisions of `recover --to amqp://` before it talks to a broker."""

import pytest

from warrenmq.errors import CallerError
from warrenmq.mend.to_broker import as_published, destinations

CC = ["CC", "A", [["S", "other"]]]
OTHER = ["x", "I", 1]


@pytest.mark.parametrize(
    ("plain", "left", "published", "altered"),
    [
        ({}, None, {"delivery_mode": 2}, []),
        ({"delivery_mode": 1, "priority": 3}, None, {"delivery_mode": 2, "priority": 3}, []),
        ({"user_id": "me"}, None, {"delivery_mode": 2, "user_id": "me"}, []),
        ({"user_id": "her"}, None, {"delivery_mode": 2}, ["user_id"]),
        ({"headers": [CC, OTHER]}, None, {"delivery_mode": 2, "headers": [OTHER]}, ["CC"]),
        ({"headers": [OTHER]}, None, {"delivery_mode": 2, "headers": [OTHER]}, []),
        ({"expiration": "60000"}, 1500, {"delivery_mode": 2, "expiration": "1500"}, []),
        ({}, -4, {"delivery_mode": 2, "expiration": "0"}, []),
    ],
)
def test_properties_that_a_broker_would_obey_again_are_left_out(plain, left, published, altered):
    before = dict(plain)
    found, said = as_published(plain, "me", left)
    assert found == published
    assert [each.split()[1] for each in said] == altered
    assert plain == before


@pytest.mark.parametrize(
    ("names", "asked", "goes"),
    [
        (["/", "second"], "", {"/": "/", "second": "second"}),
        (["/"], "other", {"/": "other"}),
        (["/"], "/", {"/": "/"}),
        ([], "other", {}),
    ],
)
def test_a_virtual_host_goes_to_one_of_its_name_or_to_the_urls(names, asked, goes):
    assert destinations(names, asked) == goes


def test_several_virtual_hosts_do_not_go_into_one():
    with pytest.raises(CallerError, match=r"several virtual hosts \(/, second\)"):
        destinations(["/", "second"], "other")
