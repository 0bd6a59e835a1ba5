"""The decisions of a handshake: protocol version, login, virtual host (rabbit_reader, rabbit_access_control).

Functions of the received method and of the node, without state or socket; a refusal raises AmqpError.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pamqp.commands import Connection

from warrenmq.amqp.access.auth import EXTERNAL, MECHANISMS, START_OK, credentials
from warrenmq.amqp.access.permissions import TRUSTED_USER, AuthenticatedUser, trusted_user
from warrenmq.amqp.access.users import DEFAULT_USER
from warrenmq.amqp.net.transport import Peer
from warrenmq.amqp.node import Node, ServedVhost
from warrenmq.amqp.wire.codec import make
from warrenmq.amqp.wire.errors import COMMAND_INVALID, INTERNAL_ERROR, NOT_ALLOWED, AmqpError

PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"
"""The protocol header of AMQP 0-9-1, which also answers a client with another protocol."""
_VERSIONS = {PROTOCOL_HEADER: (0, 9), b"AMQP\x01\x01\0\x09": (0, 9)}
"""The versions spoken here, major and minor; the second is how 0-9 was spelt."""


class Login(NamedTuple):
    """The result of a start-ok."""

    user: str
    problem: str
    """The reason why the login is refused, for the log; empty when it succeeds."""


def answer_to_header(header: bytes, node: Node) -> Connection.Start | None:
    """connection.start; None for the header of another protocol."""
    if header not in _VERSIONS:
        return None
    major, minor = _VERSIONS[header]
    return make(Connection.Start, version_major=major, version_minor=minor, mechanisms=EXTERNAL if node.trusted else MECHANISMS,
                server_properties=node.properties, locales="en_US")  # fmt: skip


def tune(node: Node) -> Connection.Tune:
    """connection.tune: the limits that a client is offered."""
    settings = node.settings
    return make(Connection.Tune, channel_max=settings.channel_max, frame_max=settings.frame_max,
                heartbeat=settings.heartbeat)  # fmt: skip


def capabilities_of(method: Connection.StartOk) -> dict[str, Any]:
    """The capabilities in the client's properties."""
    capabilities = method.client_properties.get("capabilities")
    return capabilities if isinstance(capabilities, dict) else {}


def log_in(method: Connection.StartOk, node: Node, peer: Peer) -> Login:
    """Decide a login.  Raises AmqpError for a malformed start-ok.

    On the directory's own socket EXTERNAL is the only mechanism, and the response, a name for the log, lets everybody in.
    Elsewhere:

    | password | user                     | from              |                                         |
    | -------- | ------------------------ | ----------------- | --------------------------------------- |
    | wrong    |                          |                   | invalid credentials                     |
    | right    | guest                    | another machine   | can only connect via localhost          |
    | right    | guest                    | this machine      | fine                                    |
    | right    | guest                    | another machine   | fine with loopback_users = none         |
    | right    | any other                |                   | fine                                    |
    """
    if node.trusted:
        if method.mechanism != EXTERNAL:
            raise AmqpError(
                COMMAND_INVALID, f"unknown authentication mechanism '{method.mechanism}'", *START_OK
            )
        said: bytes = method.response  # type: ignore[assignment]  # bytes: codec.py
        return Login(said.decode(errors="replace") or TRUSTED_USER, "")
    name, password = credentials(method.mechanism, method.response)  # type: ignore[arg-type]  # bytes: codec.py
    user = name.decode(errors="replace")
    problem = ""
    if not node.users.check_password(user, password):
        problem = f"user '{user}' - invalid credentials"
    elif user == DEFAULT_USER == node.settings.loopback_users and not peer.loopback:
        problem = f"user '{user}' can only connect via localhost"
    return Login(user, problem)


def open_vhost(vhost: str, user: str, node: Node) -> tuple[ServedVhost, AuthenticatedUser]:
    """The virtual host of a connection.open, with the user's permissions there.  Raises AmqpError as in the table.

    | virtual host | permissions of the user | its broker |                                  |
    | ------------ | ----------------------- | ---------- | -------------------------------- |
    | unknown      |                         |            | 530 vhost x not found            |
    | known        | none                    |            | 530 access refused               |
    | known        | some                    | is down    | 541 vhost is down                |
    | known        | some                    | is open    | fine                             |

    and 530 above the max-connections of the virtual host, or of the user.
    """
    served = node.vhosts.get(vhost)
    if served is None:
        raise AmqpError(NOT_ALLOWED, f"vhost {vhost} not found")
    permitted = trusted_user(user) if node.trusted else node.users.in_vhost(user, vhost)
    refusal = f"access to vhost '{vhost}' refused for user '{user}'"
    if permitted is None:
        raise AmqpError(NOT_ALLOWED, refusal)
    if not served.broker.is_open:
        raise AmqpError(INTERNAL_ERROR, f"{refusal}: vhost '{vhost}' is down")
    if not node.trusted:
        _check_limits(served, user, node)
    return served, permitted


def _check_limits(served: ServedVhost, user: str, node: Node) -> None:
    vhost, statistics = served.broker.inside.vhost, node.statistics
    most = vhost.limit("max-connections")
    if most is not None and len(statistics.connections_of(vhost=vhost.name)) >= most:
        why = (
            f"access to vhost '{vhost.name}' refused for user '{user}': connection limit ({most}) is reached"
        )
        raise AmqpError(NOT_ALLOWED, why)
    most = node.users.account(user).limit("max-connections")
    if most is not None and len(statistics.connections_of(user=user)) >= most:
        why = f"Connection refused for user '{user}': user connection limit ({most}) is reached"
        raise AmqpError(NOT_ALLOWED, why)
