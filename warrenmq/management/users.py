"""Users, permissions and limits of users of the HTTP API (rabbit_mgmt_wm_user, _permission, _user_limits)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from warrenmq.amqp.access.passwords import DEFAULT_ALGORITHM, hash_password
from warrenmq.amqp.access.users import Account, account_of, user_limit
from warrenmq.errors import NotFound
from warrenmq.management.errors import bad_request, not_found
from warrenmq.management.http import Reply, Request, Route
from warrenmq.management.inputs import texts, whole
from warrenmq.management.site import Site


def whoami(_site: Site, request: Request) -> Any:
    """GET /api/whoami."""
    return {"name": request.account.name, "tags": [*request.account.tags]}


def list_users(site: Site, _request: Request) -> Any:
    """GET /api/users."""
    return [account.definition() for account in site.users.accounts()]


def without_permissions(site: Site, _request: Request) -> Any:
    """GET /api/users/without-permissions."""
    return [each.definition() for each in site.users.accounts() if not site.users.permissions(user=each.name)]


def show(site: Site, request: Request) -> Any:
    """GET /api/users/name."""
    return _account(site, request).definition()


def put(site: Site, request: Request) -> Any:
    """PUT /api/users/name: with a password, a password_hash, or neither (then the user cannot log in with a password)."""
    body, name = request.json(), request.at["name"]
    if "tags" not in body:
        raise bad_request("tags_not_present")
    algorithm = body.get("hashing_algorithm") or DEFAULT_ALGORITHM
    row = {"name": name, "tags": body["tags"], "hashing_algorithm": algorithm}
    password = body.get("password")
    if password is not None:
        if type(password) is not str or not password:
            raise bad_request("the password must be a text that is not empty")
        row["hashing_algorithm"] = DEFAULT_ALGORITHM
        row["password_hash"] = hash_password(password)
    else:
        row["password_hash"] = body.get("password_hash") or ""
    limits = {}
    if name in {account.name for account in site.users.accounts()}:
        limits = dict(site.users.account(name).limits)
    return Reply(204 if site.users.put_user(replace(account_of(row), limits=limits)) else 201)


def delete(site: Site, request: Request) -> None:
    """DELETE /api/users/name."""
    name = _account(site, request).name
    if name == request.account.name and len(site.users.accounts()) == 1:
        raise bad_request("the last user cannot be deleted: nobody could log in any more")
    site.users.delete_user(name)


def bulk_delete(site: Site, request: Request) -> None:
    """POST /api/users/bulk-delete."""
    _, (names,) = request.fields("users")
    if type(names) is not list or not all(isinstance(name, str) for name in names):
        raise bad_request("users must be a list of names")
    names = [*dict.fromkeys(names)]
    for name in names:
        site.users.account(name)
    if len(names) == len(site.users.accounts()):
        raise bad_request("all users cannot be deleted: nobody could log in any more")
    for name in names:
        site.users.delete_user(name)


# -- permissions


def list_permissions(site: Site, request: Request) -> Any:
    """GET /api/permissions, /api/users/name/permissions, /api/vhosts/vhost/permissions."""
    _check_named(site, request)
    return site.users.permissions(user=request.at.get("name"), vhost=request.at.get("vhost"))


def show_permission(site: Site, request: Request) -> Any:
    """GET /api/permissions/vhost/user."""
    site.broker(request.at["vhost"])
    found = site.users.permissions(user=_account(site, request).name, vhost=request.at["vhost"])
    if not found:
        raise not_found()
    return found[0]


def set_permission(site: Site, request: Request) -> Any:
    """PUT /api/permissions/vhost/user."""
    site.broker(request.at["vhost"])
    name = _account(site, request).name
    body, _ = request.fields("configure", "write", "read")
    known = site.users.set_permissions(name, request.at["vhost"], *texts(body, "configure", "write", "read"))
    return Reply(204 if known else 201)


def clear_permission(site: Site, request: Request) -> None:
    """DELETE /api/permissions/vhost/user."""
    show_permission(site, request)
    site.users.clear_permissions(request.at["name"], request.at["vhost"])


def list_topic_permissions(site: Site, request: Request) -> Any:
    """GET /api/topic-permissions, /api/users/name/topic-permissions, /api/vhosts/vhost/topic-permissions."""
    _check_named(site, request)
    return site.users.topic_permissions(user=request.at.get("name"), vhost=request.at.get("vhost"))


def show_topic_permissions(site: Site, request: Request) -> Any:
    """GET /api/topic-permissions/vhost/user: a row for each exchange."""
    if found := list_topic_permissions(site, request):
        return found
    raise not_found()


def set_topic_permissions(site: Site, request: Request) -> Any:
    """PUT /api/topic-permissions/vhost/user."""
    _check_named(site, request)
    body, _ = request.fields("exchange", "write", "read")
    values = texts(body, "exchange", "write", "read")
    known = site.users.set_topic_permissions(request.at["name"], request.at["vhost"], *values)
    return Reply(204 if known else 201)


def clear_topic_permissions(site: Site, request: Request) -> None:
    """DELETE /api/topic-permissions/vhost/user, for all exchanges, or .../exchange, for one, which RabbitMQ's API lacks."""
    exchange = request.at.get("exchange")
    if exchange not in (None, *(row["exchange"] for row in show_topic_permissions(site, request))):
        raise not_found()
    site.users.clear_topic_permissions(request.at["name"], request.at["vhost"], exchange)


# -- limits


def list_limits(site: Site, request: Request) -> Any:
    """GET /api/user-limits and /api/user-limits/user."""
    accounts = [_account(site, request)] if request.at else site.users.accounts()
    return [{"user": each.name, "value": {**each.limits}} for each in accounts if each.limits]


def set_limit(site: Site, request: Request) -> None:
    """PUT /api/user-limits/user/limit."""
    account = _account(site, request)
    _, (value,) = request.fields("value")
    value = value if value == -1 else whole(value, "value")
    limits = account.limits | {request.at["limit"]: user_limit(account.name, request.at["limit"], value)}
    site.users.put_user(replace(account, limits=limits))


def clear_limit(site: Site, request: Request) -> None:
    """DELETE /api/user-limits/user/limit."""
    account = _account(site, request)
    limits = {name: value for name, value in account.limits.items() if name != request.at["limit"]}
    site.users.put_user(replace(account, limits=limits))


def _check_named(site: Site, request: Request) -> None:
    """HttpError 404 unless the virtual host and the user of the path are there."""
    if "vhost" in request.at:
        site.broker(request.at["vhost"])
    if "name" in request.at:
        _account(site, request)


def _account(site: Site, request: Request) -> Account:
    try:
        return site.users.account(request.at["name"])
    except NotFound:
        raise not_found() from None


ROUTES = (
    Route("GET", "whoami", whoami),
    Route("GET", "users", list_users, "administrator"),
    Route("GET", "users/without-permissions", without_permissions, "administrator"),
    Route("POST", "users/bulk-delete", bulk_delete, "administrator"),
    Route("GET", "users/{name}", show, "administrator"),
    Route("PUT", "users/{name}", put, "administrator"),
    Route("DELETE", "users/{name}", delete, "administrator"),
    Route("GET", "users/{name}/permissions", list_permissions, "administrator"),
    Route("GET", "users/{name}/topic-permissions", list_topic_permissions, "administrator"),
    Route("GET", "permissions", list_permissions, "administrator"),
    Route("GET", "permissions/{vhost}/{name}", show_permission, "administrator"),
    Route("PUT", "permissions/{vhost}/{name}", set_permission, "administrator"),
    Route("DELETE", "permissions/{vhost}/{name}", clear_permission, "administrator"),
    Route("GET", "vhosts/{vhost}/permissions", list_permissions, "administrator"),
    Route("GET", "topic-permissions", list_topic_permissions, "administrator"),
    Route("GET", "topic-permissions/{vhost}/{name}", show_topic_permissions, "administrator"),
    Route("PUT", "topic-permissions/{vhost}/{name}", set_topic_permissions, "administrator"),
    Route("DELETE", "topic-permissions/{vhost}/{name}", clear_topic_permissions, "administrator"),
    Route("DELETE", "topic-permissions/{vhost}/{name}/{exchange}", clear_topic_permissions, "administrator"),
    Route("GET", "vhosts/{vhost}/topic-permissions", list_topic_permissions, "administrator"),
    Route("GET", "user-limits", list_limits, "administrator"),
    Route("GET", "user-limits/{name}", list_limits, "administrator"),
    Route("PUT", "user-limits/{name}/{limit}", set_limit, "administrator"),
    Route("DELETE", "user-limits/{name}/{limit}", clear_limit, "administrator"),
)
