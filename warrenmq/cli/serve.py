"""`warrenmq serve --data DIR`: a broker for the clients of RabbitMQ, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import signal
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from warrenmq.cli._parsers import add_verb, whole
from warrenmq.errors import CallerError
from warrenmq.settings import Settings

if TYPE_CHECKING:
    import ssl

    from warrenmq.amqp import AmqpServer
    from warrenmq.management.server import ManagementServer

PORT, TLS_PORT = 5672, 5671
_LOOK = 0.5
"""Seconds between checks that the broker is still alive."""


def add_parser(subparsers: Any) -> None:
    parser = add_verb(
        subparsers, "serve",
        summary="let AMQP 0-9-1 clients use a data directory",
        does="Open DIR, which may be new, and serve AMQP 0-9-1. Prints `ready amqp://HOST:PORT` once it accepts "
        "connections. Ends cleanly on SIGTERM or SIGINT (Ctrl-C).",
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
    parser.add_argument("--config", metavar="FILE", help="settings in the syntax of rabbitmq.conf")
    parser.add_argument(
        "--setting", action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated"
    )
    parser.add_argument(
        "--users",
        metavar="FILE",
        help="users, virtual hosts, queues, exchanges, bindings, policies and limits as `rabbitmqctl export_definitions` "
        "writes them (default: guest with password guest, from this machine only)",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="a certificate (chain): serve TLS")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, if that is not in the same file")
    parser.add_argument("--tls-ca", metavar="FILE", help="who signs the certificates of clients")
    parser.add_argument("--tls-verify", action="store_true", help="refuse clients without a certificate")


def run(args: argparse.Namespace) -> int:
    try:
        from warrenmq.amqp import load_users, open_vhosts, serve, serve_locally
        from warrenmq.amqp.access.users import read_definitions
        from warrenmq.management.definitions import import_file
    except ModuleNotFoundError as why:
        msg = f"it needs {why.name}; install warrenmq[amqp]."
        raise CallerError(msg) from why

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    settings = _settings(args)
    users = load_users(args.data, args.users)
    tls = _tls(args)
    port = args.port if args.port is not None else TLS_PORT if tls else PORT
    with ExitStack() as stack:
        try:
            brokers = open_vhosts(args.data, settings, users.vhosts, args.trace)
        except OSError as why:
            msg = f"{args.data} cannot be used as a data directory: {why.strerror or why}."
            raise CallerError(msg) from why
        for broker in brokers:
            stack.callback(broker.close)
        if args.users:
            import_file(
                brokers,
                args.users,
                read_definitions(args.users),
                quorum_as_classic=settings.quorum_as_classic,
            )
        stack.enter_context(serve_locally(brokers))
        server = stack.enter_context(serve(brokers, host=args.host, port=port, users=users, tls=tls))
        if args.management is not None:
            stack.callback(server.close)  # after the management listener, which asks it
            management = stack.enter_context(_manage(server, *args.management))
            print(f"management {management.url}", flush=True)
        print(f"ready {server.url}", flush=True)
        while not stop.wait(_LOOK):
            server.check_open()
    return 0


def _manage(server: AmqpServer, host: str, port: int) -> ManagementServer:
    try:
        from warrenmq.management.server import manage
    except ModuleNotFoundError as why:
        msg = f"--management needs {why.name}; install warrenmq[management]."
        raise CallerError(msg) from why
    return manage(server, host=host, port=port)


def address(text: str) -> tuple[str, int]:
    """A type for argparse: PORT or HOST:PORT, an IPv6 address in brackets."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") if colon else "127.0.0.1"
    if not host:
        raise argparse.ArgumentTypeError(f"{text!r} has no host before its port")
    return host, whole(0, 65_535)(port)


def _settings(args: argparse.Namespace) -> Settings:
    texts: dict[str, str] = {}
    for each in args.setting:
        key, equals, value = each.partition("=")
        if not equals:
            msg = f"--setting {each}: it must be KEY=VALUE."
            raise CallerError(msg)
        texts[key.strip()] = value.strip()
    try:
        return Settings.load(file=args.config, texts=texts)
    except OSError as why:
        msg = f"the settings file {args.config} cannot be read: {why.strerror or why}."
        raise CallerError(msg) from why


def _tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    import ssl

    if args.tls_cert is None:
        if args.tls_key or args.tls_ca or args.tls_verify:
            raise CallerError("TLS needs a certificate: --tls-cert FILE.")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(args.tls_cert, args.tls_key)
        if args.tls_ca is not None:
            context.load_verify_locations(args.tls_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as why:
        files = ", ".join(filter(None, (args.tls_cert, args.tls_key, args.tls_ca)))
        msg = f"the files of TLS ({files}) cannot be used: {why.strerror or why}."
        raise CallerError(msg) from why
    if args.tls_verify:
        if args.tls_ca is None:
            raise CallerError("--tls-verify needs to know who signs: --tls-ca FILE.")
        context.verify_mode = ssl.CERT_REQUIRED
    return context
