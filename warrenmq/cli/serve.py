"""`warrenmq serve --data DIR`: a broker for the clients of RabbitMQ, until SIGTERM, SIGINT or SIGHUP."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warrenmq.cli import _logs, _systemd
from warrenmq.cli._parsers import add_verb, whole
from warrenmq.cli._server_conf import ServerConf, log_path, read_conf
from warrenmq.cli._tls import tls_context
from warrenmq.errors import CallerError
from warrenmq.log import Log
from warrenmq.seams.descriptors import raise_limit
from warrenmq.seams.memory import have_one_heap
from warrenmq.settings import ENVIRONMENT_PREFIX, Settings, with_form

if TYPE_CHECKING:
    import socket
    import ssl

    from warrenmq.amqp import AmqpServer, Users
    from warrenmq.broker.broker import Broker

PORT, TLS_PORT, MANAGEMENT_PORT = 5672, 5671, 15672
_LOOK = 0.5
"""Seconds between checks that the broker is still alive."""

log = Log("warrenmq.serve")


def add_parser(subparsers: Any) -> None:
    parser = add_verb(
        subparsers, "serve",
        summary="let AMQP 0-9-1 clients use a data directory",
        does="Open DIR, which may be new, and serve AMQP 0-9-1. Prints `ready amqp://HOST:PORT` once it accepts "
        "connections. Ends cleanly on SIGTERM, SIGINT (Ctrl-C), or SIGHUP (its terminal is gone).",
        example="warrenmq serve --data data/ --setting heartbeat=10",
        ends="0 it was ended by a signal, 2 it cannot start, or its broker failed.",
    )  # fmt: skip
    parser.add_argument("--data", required=True, metavar="DIR", help="the data directory")
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="the address to listen on (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=whole(0, 65_535),
        metavar="N",
        help=f"the port; 0 chooses a free one (default: {PORT}, {TLS_PORT} with TLS)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--management",
        type=address,
        metavar="[HOST:]PORT",
        help="serve RabbitMQ's management API (below /api) and /metrics for Prometheus there; "
        "port 0 chooses a free one, a host that is left out is 127.0.0.1",
    )
    where.add_argument(
        "--management-port", dest="management", type=address, metavar="PORT", help="the same at 127.0.0.1"
    )
    parser.add_argument("--trace", metavar="DIR", help="write a trace of the run there")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a rabbitmq.conf: settings, listeners, TLS, logs, definitions (docs/operating.md)",
    )
    parser.add_argument(
        "--setting", action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated"
    )
    parser.add_argument(
        "--users",
        metavar="FILE",
        help="users, virtual hosts, queues, exchanges, bindings, policies and limits as `rabbitmqctl export_definitions` "
        "writes them (default: guest with password guest, from this machine only)",
    )
    parser.add_argument("--log-json", action="store_true", help="log one JSON object an event")
    parser.add_argument("--tls-cert", metavar="FILE", help="a certificate (chain): serve TLS")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, if that is not in the same file")
    parser.add_argument(
        "--tls-ca", metavar="FILE", help="the authority that signs the certificates of clients"
    )
    parser.add_argument("--tls-verify", action="store_true", help="refuse clients without a certificate")


def run(args: argparse.Namespace) -> int:
    try:
        from warrenmq.amqp import Users, load_users, open_vhosts, serve_locally
        from warrenmq.amqp.access.users import read_definitions
        from warrenmq.management.definitions import import_file
        from warrenmq.shared.looking import vhosts_in
    except ModuleNotFoundError as why:
        raise CallerError(f"it needs {why.name}; install warrenmq[amqp].") from why

    raise_limit()
    have_one_heap()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, lambda *_: stop.set())
    conf = _conf(args)
    _configure_logs(args, conf)
    if conf.without_effect:
        log.warning("keys of the configuration file have no effect here", keys=", ".join(conf.without_effect))
    settings = _settings(args, conf)
    file = args.users or conf.load_definitions
    users = load_users(args.data, file, _default_user(Users, conf))
    sockets = _systemd.inherited(os.environ)
    # before anything is made, so that a certificate that cannot be used leaves nothing behind
    listeners = _listeners(args, conf, sockets)
    management_tls = tls_context(conf.management_tls)
    if args.trace:
        try:
            os.makedirs(args.trace, exist_ok=True)
        except OSError as why:
            raise CallerError(f"{args.trace} cannot hold a trace: {why.strerror or why}.") from why
    with ExitStack() as stack:
        try:
            brokers = open_vhosts(args.data, settings, users.vhosts, args.trace)
        except OSError as why:
            msg = f"{args.data} cannot be used as a data directory: {why.strerror or why}."
            raise CallerError(msg) from why
        for broker in brokers:
            stack.callback(broker.close)
        if unknown := sorted(set(vhosts_in(args.data)) - {*users.vhosts}):
            reason = "neither users.json nor the users file names them; warrenmq ctl add_vhost does"
            log.warning("virtual hosts of the directory are not served", vhosts=unknown, reason=reason)
        if file:
            import_file(brokers, file, read_definitions(file), quorum_as_classic=settings.quorum_as_classic)
        local = stack.enter_context(serve_locally(brokers))
        server = _listen(stack, brokers, users, listeners, local)
        _management(stack, args, conf, server, sockets, management_tls)
        print(f"ready {server.url}", flush=True)
        log.info("Server startup complete")  # RabbitMQ's words, which Testcontainers and others wait for
        _systemd.notify(f"READY=1\nSTATUS=serving {server.url}", os.environ.get("NOTIFY_SOCKET"))
        while not stop.wait(_LOOK):
            server.check_open()
        _systemd.notify("STOPPING=1", os.environ.get("NOTIFY_SOCKET"))
    return 0


# -- what the arguments and the file say together; arguments win


def _conf(args: argparse.Namespace) -> ServerConf:
    if args.config is None:
        return ServerConf()
    try:
        return read_conf(args.config)
    except OSError as why:
        raise CallerError(f"the settings file {args.config} cannot be read: {why.strerror or why}.") from why


def _configure_logs(args: argparse.Namespace, conf: ServerConf) -> None:
    path = log_path(conf)
    try:
        _logs.configure(
            level=conf.log_level or "info",
            as_json=args.log_json or conf.log_json,
            path=path,
            console=conf.log_console,
        )
    except OSError as why:
        raise CallerError(f"the log file {path} cannot be written: {why.strerror or why}.") from why


def _settings(args: argparse.Namespace, conf: ServerConf) -> Settings:
    texts: dict[str, str] = {}
    for key, value in conf.settings.items():
        name, text = with_form(key, value)
        if ENVIRONMENT_PREFIX + name.upper() not in os.environ:
            texts[name] = text
    for each in args.setting:
        key, equals, value = each.partition("=")
        if not equals:
            raise CallerError(f"--setting {each}: it must be KEY=VALUE.")
        texts[key.strip()] = value.strip()
    return Settings.load(texts=texts)


def _default_user(users: type[Users], conf: ServerConf) -> Users:
    tags = [name for name, has in ({"administrator": True} | conf.default_tags).items() if has]
    permissions = conf.default_permissions
    try:
        return users.default(
            conf.default_user, conf.default_pass, tags,
            (permissions["configure"], permissions["write"], permissions["read"]), conf.default_vhost,
        )  # fmt: skip
    except ValueError as why:
        raise CallerError(f"{why}.") from why


def _listeners(
    args: argparse.Namespace, conf: ServerConf, sockets: dict[str, list[socket.socket]]
) -> list[tuple[str, int, ssl.SSLContext | None, socket.socket | None]]:
    """The listeners: systemd's sockets, else those of --port and the file, else the default port; CallerError
    if none is left.

    --port says where the file's plain listeners are, were there none: it wins over `listeners.tcp = none`.
    It is the port for TLS instead if there is a certificate and nobody asked for a plain listener: with
    --tls-cert, and beside `listeners.tcp = none`.
    """
    of_file = conf.tls
    tls = tls_context(
        replace(
            of_file, certfile=args.tls_cert or of_file.certfile, keyfile=args.tls_key or of_file.keyfile,
            cacertfile=args.tls_ca or of_file.cacertfile, verify=args.tls_verify or of_file.verify,
            fail_if_no_peer_cert=args.tls_verify or of_file.fail_if_no_peer_cert,
        )
    )  # fmt: skip
    if sockets.get("amqps") and tls is None:
        raise CallerError("systemd gave a socket for TLS, which needs a certificate: --tls-cert FILE.")
    given = [
        (sock, tls if name == "amqps" else None)
        for name in ("amqp", "amqps")
        for sock in sockets.get(name, ())
    ]
    if given:
        return [(*sock.getsockname()[:2], context, sock) for sock, context in given]
    no_plain = bool(conf.tcp) and not any(conf.tcp.values())
    if tls is not None and args.port is not None and (args.tls_cert or no_plain or not conf.ssl):
        return [(args.host, args.port, tls, None)]
    if not (conf.tcp or conf.ssl):
        return [(args.host, args.port if args.port is not None else TLS_PORT if tls else PORT, tls, None)]
    tcp = conf.tcp or {"default": (None, PORT)}
    if args.port is not None:
        tcp = {"default": (None, args.port)}
    plain = [(each[0] or args.host, each[1], None, None) for each in tcp.values() if each is not None]
    secure = [(each[0] or args.host, each[1], tls, None) for each in conf.ssl.values() if each is not None]
    if not plain and not secure:
        raise CallerError(
            f"{args.config} has no listener left: give listeners.tcp.default or listeners.ssl.default a port."
        )
    return [*plain, *secure]


def _listen(
    stack: ExitStack,
    brokers: list[Broker],
    users: Users,
    listeners: list[tuple[str, int, ssl.SSLContext | None, socket.socket | None]],
    local: AmqpServer,
) -> AmqpServer:
    from warrenmq.amqp import serve

    host, port, tls, sock = listeners[0]
    server = stack.enter_context(
        serve(brokers, host=host, port=port, users=users, tls=tls, sock=sock, beside=local)
    )
    for listener in listeners[1:]:
        server.listen(*listener)
    return server


def _management(
    stack: ExitStack,
    args: argparse.Namespace,
    conf: ServerConf,
    server: AmqpServer,
    sockets: dict[str, list[socket.socket]],
    tls: ssl.SSLContext | None,
) -> None:
    """Serve the management API where arguments, file and systemd say, and print each address."""
    given = sockets.get("management", [None])[0]
    listeners: list[tuple[str, int, socket.socket | None, ssl.SSLContext | None]] = []
    if args.management is not None:
        listeners.append((*args.management, given, None))
    elif conf.management_port is not None or conf.management_host is not None or given is not None:
        port = MANAGEMENT_PORT if conf.management_port is None else conf.management_port
        listeners.append((conf.management_host or "127.0.0.1", port, given, None))
    if conf.management_ssl_port is not None:
        listeners.append((conf.management_ssl_host or "127.0.0.1", conf.management_ssl_port, None, tls))
    if not listeners:
        return
    try:
        from warrenmq.management.server import manage
    except ModuleNotFoundError as why:
        raise CallerError(f"the management API needs {why.name}; install warrenmq[management].") from why
    site = None
    for host, port, sock, secure in listeners:
        management = stack.enter_context(
            manage(server, host=host, port=port, sock=sock, tls=secure, site=site)
        )
        site = management.site
        print(f"management {management.url}", flush=True)


def address(text: str) -> tuple[str, int]:
    """A type for argparse: PORT or HOST:PORT, an IPv6 address in brackets."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") if colon else "127.0.0.1"
    if not host:
        raise argparse.ArgumentTypeError(f"{text!r} has no host before its port")
    return host, whole(0, 65_535)(port)
