"""The Prometheus metrics, with the names of RabbitMQ's plugin (rabbitmq_prometheus), so that its Grafana dashboards work.

    /metrics               sums over all queues, channels and connections
    /metrics/per-object    the metrics of queues for each queue

It needs no password, as RabbitMQ's.  Figures that this server does not count are left out, rather than said
to be 0: dead letters by reason, reductions, Raft, the Erlang machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, UnknownMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from warrenmq.management.http import Reply, Request, Route
from warrenmq.management.site import Site
from warrenmq.queue.messages import QueueFigures
from warrenmq.seams.descriptors import in_use
from warrenmq.seams.syncs import SYNCS
from warrenmq.version import version

_QUEUE_GAUGES: tuple[tuple[str, str, Callable[[QueueFigures], int]], ...] = (
    ("messages_ready", "Messages ready to be delivered to consumers", lambda each: each.ready),
    ("messages_unacked", "Messages delivered to consumers but not yet acknowledged", lambda each: each.unacked),
    ("messages", "Sum of ready and unacknowledged messages - total queue depth", lambda each: each.ready + each.unacked),
    ("consumers", "Consumers on a queue", lambda each: each.consumers),
)  # fmt: skip
_CHANNEL_COUNTERS = (
    ("messages_published", "Total number of messages published into an exchange on a channel", "publish"),
    ("messages_confirmed", "Total number of messages published into an exchange and confirmed on the channel", "confirm"),
    ("messages_unroutable_returned", "Total number of messages published as mandatory into an exchange and returned to the "
     "publisher as unroutable", "return_unroutable"),
    ("messages_unroutable_dropped", "Total number of messages published as non-mandatory into an exchange and dropped as "
     "unroutable", "drop_unroutable"),
    ("messages_delivered_ack", "Total number of messages delivered to consumers in manual acknowledgement mode", "deliver"),
    ("messages_delivered", "Total number of messages delivered to consumers in automatic acknowledgement mode",
     "deliver_no_ack"),
    ("messages_redelivered", "Total number of messages redelivered to consumers", "redeliver"),
    ("messages_acked", "Total number of messages acknowledged by consumers", "ack"),
    ("get_ack", "Total number of messages fetched with basic.get in manual acknowledgement mode", "get"),
    ("get", "Total number of messages fetched with basic.get in automatic acknowledgement mode", "get_no_ack"),
    ("get_empty", "Total number of times basic.get operations fetched no message", "get_empty"),
)  # fmt: skip
_GLOBAL_COUNTERS = (
    ("messages_received", "Total number of messages received from publishers", ("publish",), False),
    ("messages_confirmed", "Total number of messages confirmed to publishers", ("confirm",), False),
    ("messages_unroutable_dropped", "Total number of messages published as non-mandatory into an exchange and dropped as "
     "unroutable", ("drop_unroutable",), False),
    ("messages_unroutable_returned", "Total number of messages published as mandatory into an exchange and returned to the "
     "publisher as unroutable", ("return_unroutable",), False),
    ("messages_delivered", "Total number of messages delivered to consumers", ("deliver", "deliver_no_ack", "get",
     "get_no_ack"), True),
    ("messages_delivered_consume_manual_ack", "Total number of messages delivered to consumers using basic.consume with "
     "manual acknowledgment", ("deliver",), True),
    ("messages_delivered_consume_auto_ack", "Total number of messages delivered to consumers using basic.consume with "
     "automatic acknowledgment", ("deliver_no_ack",), True),
    ("messages_delivered_get_manual_ack", "Total number of messages delivered to consumers using basic.get with manual "
     "acknowledgment", ("get",), True),
    ("messages_delivered_get_auto_ack", "Total number of messages delivered to consumers using basic.get with automatic "
     "acknowledgment", ("get_no_ack",), True),
    ("messages_get_empty", "Total number of times basic.get operations fetched no message", ("get_empty",), True),
    ("messages_redelivered", "Total number of messages redelivered to consumers", ("redeliver",), True),
    ("messages_acknowledged", "Total number of message acknowledgements received from consumers", ("ack",), True),
)  # fmt: skip
"""Name, help, what is added up, and whether the metric has the type of the queue."""
_CHURN = (
    ("connections_opened", "Total number of connections opened", "connection_created"),
    ("connections_closed", "Total number of connections closed or terminated", "connection_closed"),
    ("channels_opened", "Total number of channels opened", "channel_created"),
    ("channels_closed", "Total number of channels closed", "channel_closed"),
    ("queues_declared", "Total number of queues declared", "queue_declared"),
    ("queues_created", "Total number of queues created", "queue_created"),
    ("queues_deleted", "Total number of queues deleted", "queue_deleted"),
    (
        "auth_attempts_succeeded",
        "Total number of successful authentication attempts",
        "auth_attempts_succeeded",
    ),
    ("auth_attempts_failed", "Total number of failed authentication attempts", "auth_attempts_failed"),
)


class ServerCollector(Collector):
    """Prometheus collector of all metrics of a server."""

    def __init__(self, site: Site, *, per_object: bool) -> None:
        self._site = site
        self._per_object = per_object

    def collect(self) -> Iterable[Metric]:
        """Collect the metric families, in no particular order."""
        queues = [
            (broker.inside.vhost.name, name, read())
            for broker in self._site.brokers()
            for name, read in list(broker.inside.vhost.figures.items())
        ]
        yield from self._about()
        yield from self._node()
        yield from self._queues(queues)
        yield from self._counts(queues)

    def _about(self) -> Iterator[Metric]:
        site = self._site
        build = {
            "rabbitmq_version": site.version,
            "prometheus_plugin_version": site.version,
            "warrenmq_version": version(),
        }
        yield _info("rabbitmq_build_info", "RabbitMQ & Erlang/OTP version info", build)
        cluster = site.node.properties["cluster_name"]
        identity = {
            "rabbitmq_node": site.name,
            "rabbitmq_cluster": cluster,
            "rabbitmq_cluster_permanent_id": cluster,
        }
        yield _info("rabbitmq_identity_info", "RabbitMQ node & cluster identity info", identity)

    def _node(self) -> Iterator[Metric]:
        memory, disk = self._site.alarms()
        descriptors, most = in_use()
        sockets = len(self._site.server.connection_refs())
        for name, words, value in (
            ("process_open_fds", "Open file descriptors", descriptors),
            ("process_max_fds", "Open file descriptors limit", most),
            ("process_open_tcp_sockets", "Open TCP sockets", sockets),
            ("process_max_tcp_sockets", "Open TCP sockets limit", most),
            ("process_resident_memory_bytes", "Memory used in bytes", memory.measured or 0),
            ("resident_memory_limit_bytes", "Memory high watermark in bytes", memory.limit or 0),
            ("disk_space_available_bytes", "Disk space available in bytes", disk.measured or 0),
            ("disk_space_available_limit_bytes", "Free disk space low watermark in bytes", disk.limit or 0),
        ):
            yield GaugeMetricFamily(f"rabbitmq_{name}", words, value)
        yield CounterMetricFamily("rabbitmq_io_sync_ops", "Total number of I/O sync operations", SYNCS.total)
        for alarm, name, words in (
            (memory, "memory_used_watermark", "is 1 if VM memory watermark alarm is in effect"),
            (disk, "free_disk_space_watermark", "is 1 if free disk space watermark alarm is in effect"),
        ):
            yield UnknownMetricFamily(f"rabbitmq_alarms_{name}", words, int(alarm.is_set))

    def _queues(self, queues: list[tuple[str, str, QueueFigures]]) -> Iterator[Metric]:
        published = "rabbitmq_queue_messages_published", "Total number of messages published to queues"
        if not self._per_object:
            for name, words, value_of in _QUEUE_GAUGES:
                total = sum(value_of(figures) for _, _, figures in queues)
                yield GaugeMetricFamily(f"rabbitmq_queue_{name}", words, total)
            yield CounterMetricFamily(*published, sum(figures.published for _, _, figures in queues))
            return
        labels = ("vhost", "queue")
        for name, words, value_of in _QUEUE_GAUGES:
            gauge = GaugeMetricFamily(f"rabbitmq_queue_{name}", words, labels=labels)
            for vhost, queue, figures in queues:
                gauge.add_metric((vhost, queue), value_of(figures))
            yield gauge
        counter = CounterMetricFamily(*published, labels=labels)
        for vhost, queue, figures in queues:
            counter.add_metric((vhost, queue), figures.published)
        yield counter

    def _counts(self, queues: list[tuple[str, str, QueueFigures]]) -> Iterator[Metric]:
        statistics = self._site.statistics
        totals, events = statistics.totals(), self._site.events()
        consumers = sum(figures.consumers for _, _, figures in queues)
        for name, words, key in _CHANNEL_COUNTERS:
            yield CounterMetricFamily(f"rabbitmq_channel_{name}", words, totals[key])
        for name, words, keys, of_queues in _GLOBAL_COUNTERS:
            labels = {"protocol": "amqp091"} | ({"queue_type": "rabbit_classic_queue"} if of_queues else {})
            counter = CounterMetricFamily(f"rabbitmq_global_{name}", words, labels=[*labels])
            counter.add_metric([*labels.values()], sum(totals[key] for key in keys))
            yield counter
        for name, words, key in _CHURN:
            yield CounterMetricFamily(f"rabbitmq_{name}", words, events[key])
        yield CounterMetricFamily(
            "rabbitmq_auth_attempts", "Total number of authentication attempts",
            events["auth_attempts_succeeded"] + events["auth_attempts_failed"],
        )  # fmt: skip
        for name, words, value in (
            ("connections", "Connections currently open", len(statistics.connections_of())),
            ("channels", "Channels currently open", events["channel_created"] - events["channel_closed"]),
            ("consumers", "Consumers currently connected", consumers),
            ("queues", "Queues available", len(queues)),
        ):
            yield GaugeMetricFamily(f"rabbitmq_{name}", words, value)
        gauge = GaugeMetricFamily(
            "rabbitmq_global_consumers", "Current number of consumers", labels=["protocol"]
        )
        gauge.add_metric(["amqp091"], consumers)
        yield gauge


def _info(name: str, words: str, labels: dict[str, str]) -> Metric:
    family = UnknownMetricFamily(name, words, labels=[*labels])
    family.add_metric([*labels.values()], 1)
    return family


def page(site: Site, *, per_object: bool) -> bytes:
    """Format metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServerCollector(site, per_object=per_object))
    return generate_latest(registry)


def _sums(site: Site, _request: Request) -> Any:
    """GET /metrics."""
    return Reply(200, page(site, per_object=False), CONTENT_TYPE_LATEST)


def _objects(site: Site, _request: Request) -> Any:
    """GET /metrics/per-object."""
    return Reply(200, page(site, per_object=True), CONTENT_TYPE_LATEST)


ROUTES = (Route("GET", "metrics", _sums, ""), Route("GET", "metrics/per-object", _objects, ""))
