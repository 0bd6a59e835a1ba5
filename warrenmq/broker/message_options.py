"""The keywords of a publish that say something of the message: properties one by one, and a time before which
it must not come.

    priority=5, headers={...}, expiration="60000", message_id=, correlation_id=, reply_to=, content_type=
    delay=30                   seconds, or a timedelta: delivered not before
    at=datetime(..., UTC)      the same by the clock; a time that is past delays nothing

A keyword and the same field of `properties` exclude each other, as `delay` and `at` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypedDict

from warrenmq.broker import arguments as check
from warrenmq.checks import flag, is_a, number_of_seconds, shown, wrong_type, wrong_value
from warrenmq.errors import ArgumentTypeError, ArgumentValueError
from warrenmq.message.properties import Properties
from warrenmq.routing.delayed import LONGEST_DELAY


class MessageOptions(TypedDict, total=False):
    """The keywords; None is as if it were not given."""

    priority: int | None
    """0 to 255."""
    headers: Mapping[str, Any] | None
    expiration: str | timedelta | None
    """The time that a message may wait in a queue: milliseconds as text, or a timedelta."""
    message_id: str | None
    correlation_id: str | None
    reply_to: str | None
    content_type: str | None
    delay: float | timedelta | None
    """Seconds before it is routed; at most ten years."""
    at: datetime | None
    """The time before which it is not routed, with a time zone."""


OF_PROPERTIES = (
    "priority", "headers", "expiration", "message_id", "correlation_id", "reply_to", "content_type",
)  # fmt: skip
"""The keywords that are fields of Properties."""
_NAMES = frozenset(MessageOptions.__annotations__)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Options(NamedTuple):
    """The keywords of a publish, read."""

    properties: Properties | None
    due: int
    """Microseconds since 1970 before which the message must not be routed; 0 = at once."""


def read_options(
    properties: Properties | None,
    given: Mapping[str, Any],
    now: Callable[[], int],
    *,
    mandatory: object = False,
) -> Options:
    """Check the keywords, and add them to `properties`; `now` gives nanoseconds since 1970.

    ArgumentTypeError, ArgumentValueError: a keyword is unknown, wrong or given twice.
    """
    for name in given:
        if name not in _NAMES:
            from difflib import get_close_matches  # noqa: PLC0415  # only a mistake needs it

            near = get_close_matches(name, _NAMES, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(_NAMES))}"
            raise ArgumentTypeError(f"a publish has no keyword {shown(name)}; {advice}")
    fields = {name: given[name] for name in OF_PROPERTIES if given.get(name) is not None}
    due = _due(given.get("delay"), given.get("at"), now)
    if due and flag("mandatory", mandatory):
        raise ArgumentValueError(
            "a delayed message cannot be mandatory: which queues there are is known when its time has come; leave one of the two out"
        )
    if not fields:
        return Options(properties, due)
    base = Properties() if properties is None else check.properties(properties)
    assert base is not None, "it is not None"
    for name in fields:
        if getattr(base, name) is not None:
            raise ArgumentValueError(
                f"{name} is given twice, by keyword and in properties; leave one of the two out"
            )
    if is_a(fields.get("expiration"), timedelta):
        fields["expiration"] = str(_milliseconds("expiration", fields["expiration"]))
    return Options(replace(base, **fields), due)


def _due(delay: object, at: object, now: Callable[[], int]) -> int:
    if delay is None and at is None:
        return 0
    if delay is not None and at is not None:
        raise ArgumentValueError("delay and at are both given; leave one of the two out")
    current = now() // 1_000
    if delay is not None:
        waits = _milliseconds("delay", delay) * 1_000
        return current + waits if waits else 0
    if not is_a(at, datetime):
        raise wrong_type("at", at, "a datetime with a time zone, as datetime.now(UTC) + timedelta(hours=1)")
    due = (check.time("at", at) - _EPOCH) // timedelta(microseconds=1)  # type: ignore[arg-type]
    if due - current > LONGEST_DELAY * 1_000:
        raise wrong_value("at", str(_EPOCH + timedelta(microseconds=due)), "a time within the next ten years")
    return due if due > current else 0


def _milliseconds(what: str, value: Any) -> int:
    """Whole milliseconds, rounded up."""
    return -int(-seconds_of(what, value) * 1_000 // 1)


def seconds_of(what: str, value: Any) -> float:
    """A delay in seconds, from 0 to ten years."""
    wanted = "seconds or a timedelta, from 0 to ten years"
    if value is None:
        raise wrong_type(what, value, wanted)
    number = timedelta.total_seconds(value) if is_a(value, timedelta) else number_of_seconds(what, value)
    if number is None or not 0 <= number <= LONGEST_DELAY / 1_000:
        raise wrong_value(what, number, wanted)
    return number
