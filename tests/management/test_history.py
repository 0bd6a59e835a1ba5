"""Rates and their history, as RabbitMQ's API has them: the newest sample first, averages over what was asked for."""

import pytest

from warrenmq.management.errors import HttpError
from warrenmq.management.history import History, Span, span_of

COUNTS = {"queue": ("messages", "publish")}
QUEUE = "queue", "/", "q"


def test_samples_are_the_values_at_their_times_and_the_rate_is_the_last_change():
    history = History(COUNTS)
    for second, count in enumerate([0, 0, 50, 50, 150]):
        history.take(100_000 + 5_000 * second, {QUEUE: (7, count)})
    now = 123_456
    assert history.details(QUEUE, "publish", now, None) == {"rate": 20.0}
    assert history.details(QUEUE, "publish", now, Span(20_000, 10_000)) == {
        "rate": 20.0,
        "samples": [{"sample": 150, "timestamp": 120_000}, {"sample": 50, "timestamp": 110_000},
                    {"sample": 0, "timestamp": 100_000}],
        "avg_rate": 7.5, "avg": 200 / 3,
    }  # fmt: skip
    assert history.details(QUEUE, "messages", now, Span(60_000, 60_000))["samples"] == [
        {"sample": 7, "timestamp": 120_000}, {"sample": 0, "timestamp": 60_000},
    ]  # fmt: skip
    assert history.details(("queue", "/", "other"), "publish", now, None) == {"rate": 0.0}
    history.take(130_000, {})
    assert history.details(QUEUE, "publish", now, None) == {"rate": 0.0}


def test_a_clock_that_is_set_back_begins_anew():
    """Samples of times to come made every rate 0 until the clock had reached them, and the counts of long ago the newest."""
    history = History(COUNTS)
    for count in range(6):
        history.take(3_600_000 + 5_000 * count, {QUEUE: (0, count)})
    for now, count in (100_000, 30), (105_000, 80):
        history.take(now, {QUEUE: (0, count)})
    assert history.details(QUEUE, "publish", 106_000, None) == {"rate": 10.0}
    samples = history.details(QUEUE, "publish", 106_000, Span(5_000, 5_000))["samples"]
    assert [each["sample"] for each in samples] == [80, 30]


def test_an_hour_is_kept_ten_minutes_of_it_in_full():
    history = History(COUNTS)
    samples = 4_000
    for each in range(1, samples + 1):
        history.take(each * 5_000, {QUEUE: (1, each)})
    now = samples * 5_000
    fine = history.details(QUEUE, "publish", now, Span(600_000, 5_000))["samples"]
    assert [each["sample"] for each in fine] == [*range(samples, samples - 121, -1)]
    coarse = history.details(QUEUE, "publish", now, Span(3_000_000, 60_000))["samples"]
    assert all(0 <= each["timestamp"] // 5_000 - each["sample"] < 12 for each in coarse), (
        "no sample is older than a minute"
    )
    (series,) = history._series.values()
    assert len(series._times) < 500


@pytest.mark.parametrize("query", ["0-5", "60-0", "-60-5", "x-5", "1000000-1", "99999999999-5", "6 0-5"])
def test_a_span_that_makes_no_sense_is_refused(query):
    age, _, every = query.rpartition("-")
    with pytest.raises(HttpError) as refused:
        span_of({"msg_rates_age": age, "msg_rates_incr": every}, "msg_rates")
    assert refused.value.status == 400
    assert span_of({"msg_rates_age": "60"}, "msg_rates") is None
    assert span_of({"msg_rates_age": "60", "msg_rates_incr": "5"}, "msg_rates") == Span(60_000, 5_000)
