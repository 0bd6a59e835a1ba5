"""RabbitMQ's management HTTP API and Prometheus page of an AMQP server (rabbitmq_management, rabbitmq_prometheus)."""

from warrenmq.management.server import ManagementServer, manage

__all__ = ["ManagementServer", "manage"]
