"""Requests, replies and routing of the HTTP API, without sockets and threads.

A Route names a method, a pattern of path segments and the tag that a user needs.  A function's result is the body as JSON
(None: 204, no body), or a Reply.  An exception becomes RabbitMQ's answer:

| raised                                      | status | body                                            |
| ------------------------------------------- | ------ | ----------------------------------------------- |
| HttpError                                   | its    | its                                             |
| AccessRefused                               | 401    | not_authorised                                  |
| NotFound of what the path names             | 404    | Object Not Found                                |
| any other error of ours, ValueError         | 400    | bad_request, with RabbitMQ's words if there are |
| Blocked, BrokerClosed, ResourceError        | 503    | service_unavailable                             |
| OSError, TimeoutError                       | 503    | service_unavailable, with the system's words    |
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from warrenmq.amqp.access.users import Account
from warrenmq.errors import AccessRefused, Blocked, BrokerClosed, CallerError, Error, NotFound, ResourceError
from warrenmq.log import Log
from warrenmq.management.errors import WITH, HttpError, bad_request, not_authorised, not_found
from warrenmq.management.site import Site
from warrenmq.patterns import CANNOT_BE_MATCHED, FEW, Pattern

JSON = "application/json"

log = Log("warrenmq.management")


@dataclass(slots=True, frozen=True)
class Reply:
    """A reply of the HTTP API."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Request:
    """A request with its authenticated user."""

    method: str
    path: str
    """Percent-encoded, without the query."""
    query: Mapping[str, str]
    body: bytes
    user: Account | None
    at: dict[str, str] = field(default_factory=dict)
    """The segments that the route's pattern names, decoded."""

    def json(self) -> dict[str, Any]:
        """Parse the body as a JSON object, {} without a body.  HttpError 400 for anything else."""
        if not self.body.strip():
            return {}
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError) as why:
            raise bad_request("not_json") from why
        if type(value) is not dict:
            hint = " Is the input doubly-JSON-encoded?" if isinstance(value, str) else ""
            msg = f"invalid payload: the request body JSON-decoded to a {_json_type(value)}.{hint}"
            raise bad_request(msg)
        return value

    def fields(self, *names: str) -> tuple[dict[str, Any], list[Any]]:
        """Parse the body and return it with the values of these required keys.  HttpError 400 if one is missing."""
        body = self.json()
        if missing := [f"{{key_missing,{name}}}" for name in names if name not in body]:
            raise bad_request(f"[{','.join(missing)}]")
        return body, [body[name] for name in names]

    def flag(self, name: str) -> bool:
        """True if the query sets this switch."""
        return self.query.get(name, "").lower() == "true"

    @property
    def account(self) -> Account:
        """The authenticated user; every route but the public ones has one."""
        assert self.user is not None
        return self.user


@dataclass(slots=True, frozen=True)
class Route:
    """One route: a method and a path, with its handler."""

    method: str
    pattern: str
    """Segments; {name} takes any one."""
    handler: Callable[[Site, Request], Any]
    tag: str = "management"
    """The tag that the user needs; empty: anyone, without a password."""

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """Match a path; returns the named segments, or None."""
        parts = self.pattern.split("/")
        if len(parts) != len(segments):
            return None
        found = {}
        for part, segment in zip(parts, segments, strict=True):
            if part.startswith("{"):
                found[part[1:-1]] = unquote(segment, errors="replace")
            elif part != segment:
                return None
        return found


class Router:
    """The table of all routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._by_length: dict[int, list[Route]] = {}
        for route in routes:
            self._by_length.setdefault(route.pattern.count("/"), []).append(route)

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Find the route of a request.  HttpError 404 for an unknown path, 405 for an unsupported method."""
        segments = path.strip("/").split("/")
        method = "GET" if method == "HEAD" else method
        found = [
            (route, at)
            for route in self._by_length.get(len(segments) - 1, ())
            if (at := route.match(segments)) is not None
        ]
        for route, at in found:
            if route.method == method:
                return route, at
        if not found:
            raise not_found()
        raise HttpError(405, "method_not_allowed", f"use {', '.join(sorted({r.method for r, _ in found}))}")


def answer(site: Site, route: Route, request: Request) -> Reply:
    """Check the user's tags and call the route's handler; 401 without the tag, as in RabbitMQ, never 403."""
    try:
        if route.tag:
            _check_tags(request.account, route.tag)
        return reply_of(route.handler(site, request), request)
    except HttpError as error:
        return error_reply(error)
    except (Error, ValueError) as error:
        return error_reply(http_error(error))
    except OSError as error:
        log.warning(
            "the system refused an HTTP request", method=request.method, path=request.path, reason=str(error)
        )
        return error_reply(http_error(error))


def _check_tags(account: Account, needed: str) -> None:
    if not WITH["management"].intersection(account.tags):
        raise not_authorised("Not management user")
    if not WITH[needed].intersection(account.tags):
        word = "monitor" if needed == "monitoring" else needed
        raise not_authorised(f"User not {word}")


def http_error(error: Exception) -> HttpError:
    """Map an exception to an HTTP error by the table at the top."""
    text = getattr(error, "reply_text", "") or str(error)
    match error:
        case Blocked() | BrokerClosed() | ResourceError() | OSError():
            return HttpError(503, "service_unavailable", text)
        case AccessRefused():
            return not_authorised(f"ACCESS_REFUSED - {text}")
        case NotFound():
            return bad_request(f"404 NOT_FOUND - {text}")
        case CallerError():
            return bad_request(text)
    return bad_request(text)


def error_reply(error: HttpError) -> Reply:
    """Encode an error as a reply."""
    headers = (("www-authenticate", 'Basic realm="RabbitMQ Management"'),) if error.status == 401 else ()
    return Reply(error.status, encode({"error": error.error, "reason": error.reason}), headers=headers)


def reply_of(value: Any, request: Request) -> Reply:
    """Encode a handler's result as a reply; lists are sorted, filtered and paginated as the query asks."""
    if isinstance(value, Reply):
        return value
    if value is None:
        return Reply(204)
    if isinstance(value, list):
        value = paged(value, request.query)
    elif isinstance(value, dict) and (columns := request.query.get("columns")):
        value = _columns(value, columns.split(","))
    return Reply(200, encode(value))


def paged(rows: list[dict[str, Any]], query: Mapping[str, str]) -> Any:
    """Filter, sort and paginate a list by name, use_regex, sort, sort_reverse, columns, page and page_size
    (rabbit_mgmt_util).

    HttpError 400 for a page that is no number or out of range, and for a name that is no pattern.
    """
    total = len(rows)
    if name := query.get("name"):
        has_name = _with_pattern(name) if query.get("use_regex") == "true" else _with_text(name.lower())
        rows = [row for row in rows if has_name(str(row.get("name", "")))]
    if key := query.get("sort"):
        rows = sorted(
            rows, key=lambda row: _sort_key(_at(row, key)), reverse=query.get("sort_reverse") == "true"
        )
    filtered = len(rows)
    columns = query.get("columns")
    if (text := query.get("page")) is None:
        return [_columns(row, columns.split(",")) for row in rows] if columns else rows
    try:
        page, size = int(text), int(query.get("page_size", "100"))
    except ValueError:
        raise bad_request("page and page_size must be numbers") from None
    if page < 1 or not 1 <= size <= 500 or (page > 1 and (page - 1) * size >= filtered):
        msg = f"page out of range, page: {page} page size: {size}, len: {filtered}"
        raise HttpError(400, "page_out_of_range", msg)
    items = rows[(page - 1) * size : page * size]
    return {
        "filtered_count": filtered, "item_count": len(items),
        "items": [_columns(row, columns.split(",")) for row in items] if columns else items,
        "page": page, "page_count": max(1, -(-filtered // size)), "page_size": size, "total_count": total,
    }  # fmt: skip


def _with_text(wanted: str) -> Callable[[str], bool]:
    return lambda name: wanted in name.lower()


def _with_pattern(wanted: str) -> Callable[[str], bool]:
    """RabbitMQ ignores case here, too."""
    try:
        pattern = Pattern(wanted, re.IGNORECASE)
        if pattern.ways > FEW:  # there may be many names
            raise ValueError(CANNOT_BE_MATCHED)
    except ValueError as why:
        raise bad_request(f"name is no regular expression that can be looked for: {why}") from None
    return pattern.found_in


def _columns(row: dict[str, Any], columns: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column in columns:
        value = _at(row, column)
        if value is None and column not in row:
            continue
        *path, last = column.split(".")
        place = found
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return found


def _at(row: dict[str, Any], path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _sort_key(value: Any) -> tuple[int, Any]:
    if isinstance(value, int | float):
        return 0, value
    return 1, str(value)


def encode(value: Any) -> bytes:
    """Encode as JSON; AMQP values without a JSON type become the nearest one, and numbers that are none null."""
    try:
        text = _text(value)
    except ValueError:
        text = _text(_finite(value))
    return text.encode(errors="replace")


def _text(value: Any) -> str:
    return json.dumps(value, default=_plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if isfinite(value) else None
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
    return value


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return int(value.timestamp())
        case Decimal():
            return float(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).decode(errors="replace")
        case frozenset() | set() | tuple():
            return list(value)
    return str(value)


def parse_query(text: str) -> dict[str, str]:
    """Parse a query string; the last value of each key counts."""
    return {name: values[-1] for name, values in parse_qs(text, keep_blank_values=True).items()}


def segment(name: str) -> str:
    """Quote a name as a path segment."""
    return quote(name, safe="")


def _json_type(value: Any) -> str:
    return {str: "string", list: "list", bool: "boolean", int: "number", float: "number"}.get(
        type(value), "null"
    )
