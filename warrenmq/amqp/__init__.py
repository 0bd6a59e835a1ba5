"""The AMQP 0-9-1 front end: clients of RabbitMQ talk to a Broker (needs the extra `amqp`).

    socket ─ io ─Received─► ConnectionProcess ─Frames─► ChannelProcess ─Publish─► QueueProcess
       ▲                                                      │
       └───────────── Transport.write, any thread ────────────┘

RabbitMQ's rabbit_networking, rabbit_reader and rabbit_channel.  The actors live here, not in actors/, because the
broker itself does without pamqp.
"""

from warrenmq.amqp.access.users import Users
from warrenmq.amqp.access.users_file import load_users
from warrenmq.amqp.server import AmqpServer, serve, serve_locally
from warrenmq.amqp.vhosts import open_vhosts

__all__ = ["AmqpServer", "Users", "load_users", "open_vhosts", "serve", "serve_locally"]
