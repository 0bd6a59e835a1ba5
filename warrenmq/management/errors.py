"""Error replies of the HTTP API as in RabbitMQ, and the user tags that grant access."""

from __future__ import annotations

TAGS = ("management", "policymaker", "monitoring", "administrator")
"""The tags that let a user in; the last is allowed everything."""
WITH = {
    "management": frozenset(TAGS),
    "policymaker": frozenset(("policymaker", "administrator")),
    "monitoring": frozenset(("monitoring", "administrator")),
    "administrator": frozenset(("administrator",)),
}
"""A route's requirement -> the tags that satisfy it (rabbit_mgmt_util:is_policymaker and so on)."""


class HttpError(Exception):
    """An error reply of the HTTP API."""

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(status, error, reason)
        self.status = status
        self.error = error
        self.reason = reason


def not_found() -> HttpError:
    """Make a 404 in RabbitMQ's words."""
    return HttpError(404, "Object Not Found", "Not Found")


def bad_request(reason: str) -> HttpError:
    """Make a 400."""
    return HttpError(400, "bad_request", reason)


def not_authorised(reason: str) -> HttpError:
    """Make a 401."""
    return HttpError(401, "not_authorised", reason)
