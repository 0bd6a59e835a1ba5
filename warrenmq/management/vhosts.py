"""Virtual hosts of the HTTP API (rabbit_mgmt_wm_vhost)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warrenmq.amqp.access.users import vhost_of
from warrenmq.management.errors import bad_request
from warrenmq.management.history import span_of
from warrenmq.management.http import Reply, Request, Route
from warrenmq.management.site import LENGTHS, STATS, Site, lengths_of, stats_of


def row(site: Site, name: str, query: Mapping[str, str]) -> dict[str, Any]:
    """JSON object of one virtual host."""
    broker, about = site.broker(name), site.users.vhosts.get(name, {})
    lengths, stats = dict.fromkeys(LENGTHS, 0), dict.fromkeys(STATS, 0)
    for read in list(broker.inside.vhost.figures.values()):
        figures = read()
        for counts, more in (lengths, lengths_of(figures)), (stats, stats_of(figures)):
            for key, value in more.items():
                counts[key] += value
    description = about.get("description") or ("Default virtual host" if name == "/" else "")
    tags = about.get("tags") or []
    return {
        "name": name, "description": description, "tags": tags, "default_queue_type": "undefined",
        "metadata": {"description": description, "tags": tags}, "tracing": False,
        "cluster_state": {site.name: "running" if broker.is_open else "stopped"},
        **site.with_rates(lengths, ("vhost", name), span_of(query, "lengths")),
        "message_stats": site.with_rates(stats, ("vhost", name), span_of(query, "msg_rates")),
    }  # fmt: skip


def list_vhosts(site: Site, request: Request) -> Any:
    """GET /api/vhosts."""
    return [row(site, name, request.query) for name in site.visible_vhosts(request.account)]


def show(site: Site, request: Request) -> Any:
    """GET /api/vhosts/name."""
    site.visible(request.account, request.at["name"])
    return row(site, request.at["name"], request.query)


def put(site: Site, request: Request) -> Any:
    """PUT /api/vhosts/name: replies when its broker is open."""
    name, body = request.at["name"], request.json()
    _, about = vhost_of({**body, "name": name})
    require_name(name)
    if body.get("default_queue_type") not in (None, "", "undefined", "classic"):
        raise bad_request("default_queue_type must be classic: this server has no other queues")
    if body.get("tracing") not in (None, False, "false"):
        raise bad_request("tracing is not there by virtual host; start the server with --trace DIR")
    known = name in site.node.vhosts
    # first: what is served, and not kept, would be gone after the next start with all that it holds
    site.users.put_vhost(name, about)
    if not known:
        site.server.add_vhost(name)
        grant(site, request, name)
    return Reply(204 if known else 201)


def require_name(name: str) -> None:
    """Raise 400 for the name of a virtual host that AMQP's connection.open cannot say."""
    if not name or len(name.encode()) > 255:
        raise bad_request("the name of a virtual host has 1 to 255 bytes")


def grant(site: Site, request: Request, vhost: str) -> None:
    """Give all permissions in a virtual host to the user whose request made it (rabbit_vhost:maybe_grant_full_permissions).

    Permissions that the same request gave stay.
    """
    user = request.account.name
    if not site.users.permissions(user=user, vhost=vhost):
        site.users.set_permissions(user, vhost, ".*", ".*", ".*")


def delete(site: Site, request: Request) -> None:
    """DELETE /api/vhosts/name: with its queues, messages and permissions; its connections are closed."""
    name = request.at["name"]
    # it may be there alone: its files were deleted, and that could not be kept
    if name not in site.users.vhosts:
        site.broker(name)
    if name == "/":
        raise bad_request("the virtual host / cannot be deleted: it owns the data directory")
    site.server.delete_vhost(name)
    site.users.delete_vhost(name)


ROUTES = (
    Route("GET", "vhosts", list_vhosts),
    Route("GET", "vhosts/{name}", show),
    Route("PUT", "vhosts/{name}", put, "administrator"),
    Route("DELETE", "vhosts/{name}", delete, "administrator"),
)
