"""The history of the server's counts: a sample every five seconds, and rates made of them (rabbit_mgmt_stats).

kept         every sample of the last ten minutes, one a minute of the hour before; a count that stays as it is costs nothing
rate         the change between the last two samples, a second
samples      asked for with ?lengths_age=60&lengths_incr=5 (messages of queues) or ?msg_rates_age=...&msg_rates_incr=...
(message_stats, churn_rates), ?data_rates_age=... (bytes of connections): the values at these times, the newest first, as RabbitMQ has them
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, NamedTuple

from warrenmq.management.errors import bad_request

Path = tuple[str | int, ...]
"""Names the thing that is counted: the first part is its kind, and things of one kind have the same counts."""

MINUTE = 60_000
FINE, KEPT = 10 * MINUTE, 60 * MINUTE
"""Milliseconds for which all samples are kept, and one a minute."""
_THIN_ABOVE = 400
"""Samples of a series, beyond which it is looked for old ones."""
MOST_SAMPLES = 500
"""The most samples of one answer, as in RabbitMQ."""


class Span(NamedTuple):
    """The times that a client wants samples of, in milliseconds."""

    age: int
    every: int


def span_of(query: Mapping[str, str], kind: str) -> Span | None:
    """The span that a query asks for with KIND_age and KIND_incr; None if it does not.  HttpError 400 if it
    makes no sense.
    """
    age, every = query.get(f"{kind}_age"), query.get(f"{kind}_incr")
    if age is None or every is None:
        return None
    if not all(text.isascii() and text.isdigit() and 0 < len(text) < 10 for text in (age, every)):
        raise bad_request(f"{kind}_age and {kind}_incr are seconds, whole numbers above 0")
    seconds, step = int(age), int(every)
    if not step or not seconds or seconds // step > MOST_SAMPLES:
        raise bad_request(
            f"invalid_range_parameters: {kind}_age and {kind}_incr are above 0, and one has up to {MOST_SAMPLES} times the other"
        )
    return Span(seconds * 1000, step * 1000)


class Series:
    """The counts of one thing, with the times when they changed."""

    __slots__ = ("_times", "_values", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        self._times = array("q")
        self._values = array("q")

    def add(self, now: int, values: tuple[int, ...]) -> None:
        """Take a sample."""
        width = self._width
        if self._times and tuple(self._values[-width:]) == values:
            return
        self._times.append(now)
        self._values.extend(values)
        if len(self._times) > _THIN_ABOVE:
            self._thin(now)

    def at(self, time: int, field: int) -> int:
        """A count at a time; 0 before the first sample."""
        found = bisect_right(self._times, time) - 1
        return self._values[found * self._width + field] if found >= 0 else 0

    def _thin(self, now: int) -> None:
        times, width = self._times, self._width
        last = {
            (time if time > now - FINE else time // MINUTE): position
            for position, time in enumerate(times)
            if time > now - KEPT
        }
        kept = sorted(last.values())
        self._values = array(
            "q", [value for each in kept for value in self._values[each * width : (each + 1) * width]]
        )
        self._times = array("q", [times[each] for each in kept])


class History:
    """The series of all that is sampled, by path.  `take` is for one thread, the rest for any."""

    def __init__(self, fields: Mapping[str, tuple[str, ...]]) -> None:
        """`fields` has the names of the counts of each kind of path."""
        self._fields: dict[str | int, dict[str, int]] = {
            kind: {name: at for at, name in enumerate(names)} for kind, names in fields.items()
        }
        self._series: dict[Path, Series] = {}
        self._last = 0, 0
        """The times of the last two samples."""

    def take(self, now: int, sample: Mapping[Path, tuple[int, ...]]) -> None:
        """Take a sample of everything; what it does not have is forgotten, and so is all when the clock was set back."""
        if now < self._last[1]:
            self._series, self._last = {}, (0, 0)
        series = self._series
        fresh = {}
        for path, values in sample.items():
            one = series.get(path) or Series(len(values))
            one.add(now, values)
            fresh[path] = one
        self._series = fresh
        self._last = self._last[1] or now, now

    def details(self, path: Path, name: str, now: int, span: Span | None) -> dict[str, Any]:
        """The `..._details` of one count: its rate, with a span its samples and their averages, too."""
        series, field = self._series.get(path), self._fields[path[0]][name]
        before, last = self._last
        if series is None:
            return {"rate": 0.0}
        rate = 0.0
        if last > before:
            rate = round((series.at(last, field) - series.at(before, field)) * 1000 / (last - before), 1)
        found: dict[str, Any] = {"rate": rate}
        if span is not None:
            newest = now - now % span.every
            times = range(newest, newest - span.age - 1, -span.every)
            values = [series.at(time, field) for time in times]
            found["samples"] = [
                {"sample": value, "timestamp": time} for value, time in zip(values, times, strict=True)
            ]
            if len(values) > 1:
                found["avg_rate"] = (values[0] - values[-1]) * 1000 / (times[0] - times[-1])
                found["avg"] = sum(values) / len(values)
        return found
