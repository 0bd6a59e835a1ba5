"""Overview, nodes, health checks and the aliveness test of the HTTP API (rabbit_mgmt_wm_overview, _health_check_*)."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

from warrenmq.actors.vhost.messages import DeclareQueue
from warrenmq.directory.definitions import QueueRecord
from warrenmq.management.errors import HttpError, bad_request, not_found
from warrenmq.management.history import span_of
from warrenmq.management.http import Reply, Request, Route, encode
from warrenmq.management.site import CHURN, Site, delivered
from warrenmq.queue.messages import Get, Got
from warrenmq.routing import TYPES
from warrenmq.seams.descriptors import in_use
from warrenmq.seams.syncs import SYNCS
from warrenmq.supervisors.broker_sup import VHOST_PROCESS
from warrenmq.version import version

ALIVENESS_QUEUE = "aliveness-test"
_LISTENERS = {"amqps": "amqp/ssl"}
"""Schemes of URLs -> RabbitMQ's names of protocols, where they differ."""
_PROTOCOLS = {
    "amqp": "amqp", "amqp091": "amqp", "amqps": "amqp/ssl", "amqp/ssl": "amqp/ssl", "http": "http", "https": "https",
}  # fmt: skip
"""Names by which a listener may be asked for -> its protocol."""
_OTHER_PROTOCOLS = ("mqtt", "mqtt/ssl", "stomp", "stomp/ssl", "stream", "web-mqtt", "web-stomp", "clustering")


def exchange_types() -> list[dict[str, Any]]:
    """The exchange types, as overview and nodes list them."""
    return [{"name": name, "description": f"AMQP {name} exchange", "enabled": True} for name in sorted(TYPES)]


def listeners(site: Site) -> list[dict[str, Any]]:
    """JSON list of the server's listeners."""
    addresses = [*site.server.addresses, *site.listeners]
    return [
        {
            "node": site.name,
            "protocol": _LISTENERS.get(protocol, protocol),
            "ip_address": ip,
            "port": port,
            "socket_opts": {},
        }
        for protocol, ip, port in addresses
    ]


def overview(site: Site, request: Request) -> Any:
    """GET /api/overview."""
    queues = consumers = exchanges = ready = unacked = 0
    for broker in site.visible_brokers(request.account):
        vhost = broker.inside.vhost
        exchanges += len(vhost.router.exchanges) + 1
        for read in list(vhost.figures.values()):
            figures = read()
            queues += 1
            consumers += figures.consumers
            ready += figures.ready
            unacked += figures.unacked
    events = site.events()
    totals = site.statistics.totals()
    totals["deliver_get"] = delivered(totals)
    churn = {name: events[name] for name in CHURN}
    rates, lengths = span_of(request.query, "msg_rates"), span_of(request.query, "lengths")
    counts = {"messages": ready + unacked, "messages_ready": ready, "messages_unacknowledged": unacked}
    product = site.node.properties
    return {
        "management_version": site.version, "rates_mode": "basic", "sample_retention_policies": {},
        "exchange_types": exchange_types(), "product_name": product["product"], "product_version": product["version"],
        "rabbitmq_version": site.version, "cluster_name": product["cluster_name"], "warrenmq_version": version(),
        "erlang_version": "none", "erlang_full_version": f"{platform.python_implementation()} {platform.python_version()}",
        "disable_stats": False, "enable_queue_totals": False, "message_stats": site.with_rates(totals, ("node",), rates),
        "churn_rates": site.with_rates(churn, ("churn",), rates), "queue_totals": site.with_rates(counts, ("totals",), lengths),
        "object_totals": {
            "channels": events["channel_created"] - events["channel_closed"],
            "connections": len(site.statistics.connections_of()), "consumers": consumers, "exchanges": exchanges,
            "queues": queues,
        },
        "statistics_db_event_queue": 0, "node": site.name, "listeners": listeners(site),
        "contexts": [
            {"node": site.name, "description": "RabbitMQ Management", "path": "/", "ip": host, "port": str(port),
             "ssl_opts": [], "cowboy_opts": "[]"}
            for _, host, port in site.listeners
        ],
    }  # fmt: skip


def node(site: Site) -> dict[str, Any]:
    """JSON object of the node."""
    memory, disk = site.alarms()
    descriptors, most = in_use()
    sockets = len(site.server.connection_refs())
    mechanisms = [
        {"name": name, "description": f"SASL {name}", "enabled": True} for name in ("PLAIN", "AMQPLAIN")
    ]
    return {
        "name": site.name, "type": "disc", "running": True, "os_pid": str(os.getpid()),
        "uptime": int((time.time() - site.started) * 1000), "processors": os.cpu_count() or 1, "run_queue": 0,
        "mem_used": memory.measured or 0, "mem_limit": memory.limit or 0, "mem_alarm": memory.is_set,
        "disk_free": disk.measured or 0, "disk_free_limit": disk.limit or 0, "disk_free_alarm": disk.is_set,
        "fd_used": descriptors, "fd_total": most, "sockets_used": sockets, "sockets_total": most,
        "proc_used": sum(sum(1 for _ in broker.runtime.living()) for broker in site.brokers()), "proc_total": 1_048_576,
        "rates_mode": "basic", "exchange_types": exchange_types(), "auth_mechanisms": mechanisms, "applications": [],
        "contexts": [], "log_files": ["-"], "db_dir": os.path.abspath(site.brokers()[0].path), "config_files": [],
        "net_ticktime": 60, "enabled_plugins": ["rabbitmq_management", "rabbitmq_prometheus"],
        "io_sync_count": SYNCS.total, "mem_calculation_strategy": "rss", "partitions": [], "cluster_links": [], "being_drained": False,
    }  # fmt: skip


def nodes(site: Site, _request: Request) -> Any:
    """GET /api/nodes."""
    return [node(site)]


def show_node(site: Site, request: Request) -> Any:
    """GET /api/nodes/name."""
    if request.at["name"] != site.name:
        raise not_found()
    return node(site)


def cluster_name(site: Site, _request: Request) -> Any:
    """GET /api/cluster-name."""
    return {"name": site.node.properties["cluster_name"]}


def global_parameters(site: Site, _request: Request) -> Any:
    """GET /api/global-parameters: the cluster's name is the only one."""
    return [{"name": "cluster_name", "value": site.node.properties["cluster_name"]}]


def rebalance(_site: Site, _request: Request) -> None:
    """POST /api/rebalance/queues: there is one node, so there is nothing to move."""


def nothing(_site: Site, _request: Request) -> Any:
    """Answer with an empty list, for features that do not exist here."""
    return []


def auth(_site: Site, _request: Request) -> Any:
    """GET /api/auth: how to log in."""
    return {"oauth_enabled": False, "enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}


def auth_attempts(site: Site, _request: Request) -> Any:
    """GET /api/auth/attempts/node."""
    events = site.statistics.events()
    good, bad = events["auth_attempts_succeeded"], events["auth_attempts_failed"]
    return [{"protocol": "amqp091", "auth_attempts": good + bad, "auth_attempts_failed": bad,
             "auth_attempts_succeeded": good}]  # fmt: skip


# -- health


def aliveness(site: Site, request: Request) -> Any:
    """GET /api/aliveness-test/vhost: publish and get one message through the queue aliveness-test, which stays."""
    vhost = request.at["vhost"]
    site.at_work(request.account, vhost)
    broker = site.broker(vhost)
    broker.inside.client.calls.call_named(
        VHOST_PROCESS, DeclareQueue(QueueRecord(ALIVENESS_QUEUE, durable=False))
    )
    broker.publish("", ALIVENESS_QUEUE, b"test_message", persistent=False, timeout=5.0).result(timeout=5.0)
    asked = Get(broker.inside.client.next_consumer_id(), no_ack=True, timeout=0.0)
    got = broker.inside.client.calls.call_queue(ALIVENESS_QUEUE, asked)[0]
    if not isinstance(got, Got):
        raise HttpError(503, "service_unavailable", "the test message did not come back")
    return {"status": "ok"}


def alarms(site: Site, _request: Request) -> Any:
    """GET /api/health/checks/alarms and local-alarms: 503 while one is set."""
    found = [each for each in site.alarms() if each.is_set]
    if not found:
        return {"status": "ok"}
    rows = [{"node": site.name, "resource": each.source} for each in found]
    return _failed("There are alarms in effect in the cluster", alarms=rows)


def virtual_hosts(site: Site, _request: Request) -> Any:
    """GET /api/health/checks/virtual-hosts: 503 while one is down."""
    down = [broker.inside.vhost.name for broker in site.brokers() if not broker.is_open]
    return _failed("Some virtual hosts are down", **{"virtual-hosts": down}) if down else {"status": "ok"}


def port_listener(site: Site, request: Request) -> Any:
    """GET /api/health/checks/port-listener/port."""
    text = request.at["port"]
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise bad_request("Invalid port")
    ports = [each["port"] for each in listeners(site)]
    if int(text) in ports:
        return {"status": "ok", "port": int(text)}
    return _failed("No active listener", missing=int(text), ports=ports)


def protocol_listener(site: Site, request: Request) -> Any:
    """GET /api/health/checks/protocol-listener/protocol."""
    name = request.at["protocol"]
    if name not in _PROTOCOLS and name not in _OTHER_PROTOCOLS:
        return _failed(
            "Invalid protocol", missing=name, protocols=[each["protocol"] for each in listeners(site)]
        )
    protocols = [each["protocol"] for each in listeners(site)]
    if _PROTOCOLS.get(name) in protocols:
        return {"status": "ok", "protocol": _PROTOCOLS[name]}
    return _failed("No active listener", missing=name, protocols=protocols)


def single_node(_site: Site, _request: Request) -> Any:
    """GET /api/health/checks/node-is-...-critical: always ok, as no other node could take over."""
    return {"status": "ok", "reason": "single node cluster"}


def node_health(site: Site, request: Request) -> Any:
    """GET /api/healthchecks/node: the deprecated check of everything at once."""
    for check in (virtual_hosts, alarms):
        if isinstance(found := check(site, request), Reply):
            return found
    return {"status": "ok"}


def _failed(reason: str, **more: Any) -> Reply:
    return Reply(503, encode({"status": "failed", "reason": reason, **more}))


_CHECKS = "health/checks"

ROUTES = (
    Route("GET", "overview", overview),
    Route("GET", "nodes", nodes, "monitoring"),
    Route("GET", "nodes/{name}", show_node, "monitoring"),
    Route("GET", "cluster-name", cluster_name),
    Route("GET", "global-parameters", global_parameters, "policymaker"),
    Route("POST", "rebalance/queues", rebalance, "administrator"),
    Route("GET", "extensions", nothing),
    Route("GET", "feature-flags", nothing),
    Route("GET", "deprecated-features", nothing),
    Route("GET", "auth", auth, ""),
    Route("GET", "auth/attempts/{node}", auth_attempts, "administrator"),
    Route("GET", "aliveness-test/{vhost}", aliveness),
    Route("GET", f"{_CHECKS}/alarms", alarms),
    Route("GET", f"{_CHECKS}/local-alarms", alarms),
    Route("GET", f"{_CHECKS}/virtual-hosts", virtual_hosts),
    Route("GET", f"{_CHECKS}/port-listener/{{port}}", port_listener),
    Route("GET", f"{_CHECKS}/protocol-listener/{{protocol}}", protocol_listener),
    Route("GET", f"{_CHECKS}/node-is-mirror-sync-critical", single_node),
    Route("GET", f"{_CHECKS}/node-is-quorum-critical", single_node),
    Route("GET", "healthchecks/node", node_health),
    Route("GET", "healthchecks/node/{name}", node_health),
)
