"""Connections and channels of the HTTP API (rabbit_mgmt_wm_connection, _channel)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warrenmq.amqp.connection.messages import ForceClose
from warrenmq.amqp.statistics import ChannelInfo, ConnectionInfo
from warrenmq.management.errors import WITH, not_authorised, not_found
from warrenmq.management.history import span_of
from warrenmq.management.http import Request, Route
from warrenmq.management.site import OCTETS, Site, delivered

CLOSED = "Closed via management plugin"


def connection_row(site: Site, info: ConnectionInfo, query: Mapping[str, str]) -> dict[str, Any]:
    """JSON object of one connection."""
    peer = info.peer
    found = {
        "name": info.name, "node": site.name, "vhost": info.vhost, "user": info.user, "user_who_performed_action": info.user,
        "state": info.state, "type": "network", "protocol": "AMQP 0-9-1", "auth_mechanism": info.mechanism,
        "host": peer.local_host, "port": peer.local_port, "peer_host": peer.host, "peer_port": peer.port,
        "ssl": bool(peer.tls), "ssl_protocol": peer.tls or None, "channels": len(info.channels),
        "channel_max": info.channel_max, "frame_max": info.frame_max, "timeout": info.heartbeat,
        "connected_at": info.connected_at, "client_properties": dict(info.client_properties),
    }  # fmt: skip
    octets = dict(zip(OCTETS, (info.bytes_received, info.bytes_sent), strict=True))
    found |= site.with_rates(octets, ("connection", info.serial), span_of(query, "data_rates"))
    name = info.client_properties.get("connection_name")
    return found | ({"user_provided_name": name} if isinstance(name, str) else {})


def channel_row(
    site: Site, connection: ConnectionInfo, info: ChannelInfo, query: Mapping[str, str]
) -> dict[str, Any]:
    """JSON object of one channel."""
    counters = info.counters
    counts = site.with_rates(
        counters | {"deliver_get": delivered(counters)}, ("channel", info.serial), span_of(query, "msg_rates")
    )
    return {
        "name": f"{info.connection} ({info.number})", "number": info.number, "node": site.name, "vhost": info.vhost,
        "user": info.user, "user_who_performed_action": info.user, "state": "flow" if info.blocked else "running",
        "confirm": info.confirm, "transactional": info.transactional, "consumer_count": info.consumers,
        "messages_unacknowledged": info.unacked, "messages_unconfirmed": info.unconfirmed,
        "messages_uncommitted": info.uncommitted, "acks_uncommitted": 0, "prefetch_count": info.prefetch,
        "global_prefetch_count": info.global_prefetch, "message_stats": counts,
        "connection_details": {
            "name": info.connection, "peer_host": connection.peer.host, "peer_port": connection.peer.port,
        },
    }  # fmt: skip


def _visible(site: Site, request: Request) -> list[ConnectionInfo]:
    """The connections that a user may see: all with the tag monitoring, else the user's own."""
    account = request.account
    sees_all = WITH["monitoring"].intersection(account.tags)
    return [info for info in site.connections() if sees_all or info.user == account.name]


def list_connections(site: Site, request: Request) -> Any:
    """GET /api/connections, /api/vhosts/vhost/connections, /api/connections/username/name."""
    infos = _visible(site, request)
    if "vhost" in request.at:
        site.visible(request.account, request.at["vhost"])
        infos = [info for info in infos if info.vhost == request.at["vhost"]]
    if "user" in request.at:
        infos = [info for info in infos if info.user == request.at["user"]]
    return [connection_row(site, info, request.query) for info in infos]


def _connection(site: Site, request: Request) -> ConnectionInfo:
    found = [info for info in site.connections() if info.name == request.at["name"]]
    if not found:
        raise not_found()
    if found[0].user != request.account.name and not WITH["monitoring"].intersection(request.account.tags):
        raise not_authorised("User not authorised to access connection")
    return found[0]


def show(site: Site, request: Request) -> Any:
    """GET /api/connections/name."""
    return connection_row(site, _connection(site, request), request.query)


def close(site: Site, request: Request) -> None:
    """DELETE /api/connections/name: connection.close with 320."""
    info = _connection(site, request)
    if info.user != request.account.name and "administrator" not in request.account.tags:
        raise not_authorised("User not administrator")
    site.server.close_connection(info.name, ForceClose(CLOSED))


def list_channels(site: Site, request: Request) -> Any:
    """GET /api/channels, /api/vhosts/vhost/channels, /api/connections/name/channels."""
    infos = [_connection(site, request)] if "name" in request.at else _visible(site, request)
    if "vhost" in request.at:
        site.visible(request.account, request.at["vhost"])
        infos = [info for info in infos if info.vhost == request.at["vhost"]]
    return [channel_row(site, info, each, request.query) for info in infos for each in site.channels(info)]


def show_channel(site: Site, request: Request) -> Any:
    """GET /api/channels/name."""
    for info in _visible(site, request):
        if request.at["name"].startswith(info.name):
            for each in site.channels(info):
                row = channel_row(site, info, each, request.query)
                if row["name"] == request.at["name"]:
                    return row
    raise not_found()


ROUTES = (
    Route("GET", "connections", list_connections),
    Route("GET", "connections/{name}", show),
    Route("DELETE", "connections/{name}", close),
    Route("GET", "connections/{name}/channels", list_channels),
    Route("GET", "connections/username/{user}", list_connections),
    Route("GET", "vhosts/{vhost}/connections", list_connections),
    Route("GET", "channels", list_channels),
    Route("GET", "channels/{name}", show_channel),
    Route("GET", "vhosts/{vhost}/channels", list_channels),
)
