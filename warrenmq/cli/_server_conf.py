"""A rabbitmq.conf as a whole, for `warrenmq serve --config`: what it says of listeners, TLS, users, logs and definitions.

Each key is one of these, or the file is refused with a sentence that names it:

    a setting of the broker        vm_memory_high_watermark, heartbeat, ...     settings.py
    a key of the server            listeners.tcp.1, ssl_options.keyfile, ...    _KEYS
    without effect here            tcp_listen_options.backlog, ...              _WITHOUT_EFFECT: told in one warning
    of what is not there           auth_backends.1, cluster_formation.*, ...    _REFUSED: refused, with the reason

A listener that names a port alone is on the address of --host, 127.0.0.1 unless said otherwise, where
RabbitMQ listens on all.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from warrenmq.cli._tls import TlsOptions
from warrenmq.errors import SettingsError
from warrenmq.settings import Settings, check_text, conf_lines, with_form

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "none")


@dataclass(slots=True)
class ServerConf:
    """The settings of one rabbitmq.conf; None = not set."""

    settings: dict[str, str] = field(default_factory=dict)
    """Settings of the broker, as texts."""
    tcp: dict[str, tuple[str | None, int] | None] = field(default_factory=dict)
    """Listeners by name; None in place of an address: the listener is off.  A host of None is that of --host."""
    ssl: dict[str, tuple[str | None, int] | None] = field(default_factory=dict)
    tls: TlsOptions = field(default_factory=TlsOptions)
    default_user: str = "guest"
    default_pass: str = "guest"  # noqa: S105  # RabbitMQ's, and good for this machine only
    default_vhost: str = "/"
    default_permissions: dict[str, str] = field(
        default_factory=lambda: {"configure": ".*", "write": ".*", "read": ".*"}
    )
    default_tags: dict[str, bool] = field(default_factory=dict)
    load_definitions: str | None = None
    management_host: str | None = None
    management_port: int | None = None
    management_ssl_host: str | None = None
    management_ssl_port: int | None = None
    management_tls: TlsOptions = field(default_factory=TlsOptions)
    log_file: str | None = None
    log_dir: str | None = None
    log_level: str | None = None
    log_console: bool = True
    log_json: bool = False
    without_effect: list[str] = field(default_factory=list)
    """Keys that change nothing here."""


def read_conf(path: str) -> ServerConf:
    """Read a file.  Raises SettingsError, which names file, line and key, for what is not understood; OSError."""
    conf = ServerConf()
    for number, key, value in conf_lines(path):
        where = f"{path}, line {number}"
        try:
            _take(conf, key, value)
        except ValueError as why:
            raise SettingsError(f"{where}: {key} {why}") from why
        if key in conf.settings:
            check_text(*with_form(key, conf.settings[key]), f"{where}: {key}")
    if any(conf.ssl.values()) and not conf.tls.certfile:
        raise SettingsError(f"{path} has listeners.ssl, which needs ssl_options.certfile.")
    has_tls = conf.management_tls != TlsOptions() or conf.management_ssl_host or conf.management_ssl_port
    if has_tls and (conf.management_ssl_port is None or not conf.management_tls.certfile):
        msg = f"{path} has management.ssl, which needs management.ssl.port and management.ssl.certfile."
        raise SettingsError(msg)
    return conf


def _take(conf: ServerConf, key: str, value: str) -> None:
    for pattern, take in _KEYS:
        if (match := re.fullmatch(pattern, key)) is not None:
            take(conf, value, *match.groups())
            return
    if key.partition(".")[0] in _SETTINGS and (
        key in _SETTINGS or re.fullmatch(r"\w+\.(relative|absolute)", key)
    ):
        conf.settings[key] = value
        return
    for pattern, reason in _REFUSED:
        if re.match(pattern, key):
            raise ValueError(f"is refused: {reason}; take the line out.")
    if any(re.match(pattern, key) for pattern in _WITHOUT_EFFECT):
        conf.without_effect.append(key)
        return
    near = difflib.get_close_matches(key, [*_SETTINGS, *_EXAMPLES], n=1, cutoff=0.6)
    advice = f"did you mean {near[0]}?" if near else "docs/operating.md has those that are."
    raise ValueError(f"is no key that this server knows; {advice}")


_SETTINGS = frozenset(each.name for each in fields(Settings))


# -- values


def _address(text: str) -> tuple[str | None, int] | None:
    """PORT or HOST:PORT; "none" is no listener."""
    if text == "none":
        return None
    host, colon, port = text.rpartition(":")
    if not re.fullmatch(r"\d{1,5}", port) or int(port) > 65_535 or (colon and not host):
        raise ValueError(f"= {text} is no port, and no address with one; write 5672 or 127.0.0.1:5672.")
    return (host.strip("[]") or None), int(port)


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"= {text} must be true or false.")
    return text.lower() == "true"


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"= {text} must be {' or '.join(choices)}.")
        return text

    return parse


def _text(text: str) -> str:
    return text


def _set(name: str, parse: Callable[[str], Any] = _text) -> Callable[..., None]:
    """Keep a value."""

    def take(conf: ServerConf, text: str, *_: str) -> None:
        setattr(conf, name, parse(text))

    return take


def _put(name: str, parse: Callable[[str], Any] = _text) -> Callable[..., None]:
    """Keep a value under the last part of its key."""

    def take(conf: ServerConf, text: str, key: str = "default") -> None:
        getattr(conf, name)[key] = parse(text)

    return take


def _tls(name: str, parse: Callable[[str], Any] = _text) -> Callable[..., None]:
    """Keep an option of TLS, of the AMQP listeners or of the management API."""

    def take(conf: ServerConf, text: str, where: str, *_: str) -> None:
        options = conf.tls if where == "ssl_options" else conf.management_tls
        value = parse(text)
        setattr(options, name, [*options.versions, value] if name == "versions" else value)

    return take


def _verify(text: str) -> bool:
    return _one_of("verify_peer", "verify_none")(text) == "verify_peer"


def _management(conf: ServerConf, text: str, kind: str) -> None:
    address = _address(text)
    if address is None:
        raise ValueError("= none: leave it out, and nothing listens.")
    if kind == "ssl":
        conf.management_ssl_port = address[1]
        conf.management_ssl_host = address[0] or conf.management_ssl_host
    else:
        conf.management_port = address[1]
        conf.management_host = address[0] or conf.management_host


def _management_ip(conf: ServerConf, text: str, kind: str) -> None:
    setattr(conf, "management_ssl_host" if kind == "ssl" else "management_host", text)


def _log_file(conf: ServerConf, text: str) -> None:
    conf.log_file = None if text == "false" else text


def _formatter(conf: ServerConf, text: str, *_: str) -> None:
    conf.log_json = _one_of("json", "plaintext")(text) == "json"


def _loopback_user(conf: ServerConf, text: str, user: str) -> None:
    if user != "guest":
        msg = "is refused: guest is the only user who can be kept to this machine; take the line out."
        raise ValueError(msg)
    conf.settings["loopback_users"] = "guest" if _switch(text) else "none"


def _default_queue_type(_conf: ServerConf, text: str) -> None:
    if text != "classic":
        msg = f"= {text}: this server has classic queues only; quorum_as_classic = true takes quorum queues as such."
        raise ValueError(msg)


def _import_backend(_conf: ServerConf, text: str) -> None:
    _one_of("local_filesystem")(text)


def _consumer_timeout(conf: ServerConf, text: str) -> None:
    conf.settings["consumer_timeout"] = "0" if text in ("undefined", "false", "none") else text


_OF_TLS = r"(ssl_options|management\.ssl)"
_KEYS: tuple[tuple[str, Callable[..., None]], ...] = (
    (r"listeners\.tcp(?:\.(\w+))?", lambda conf, text, name: conf.tcp.__setitem__(name or "default", _address(text))),
    (r"listeners\.ssl(?:\.(\w+))?", lambda conf, text, name: conf.ssl.__setitem__(name or "default", _address(text))),
    (rf"{_OF_TLS}\.certfile", _tls("certfile")),
    (rf"{_OF_TLS}\.keyfile", _tls("keyfile")),
    (rf"{_OF_TLS}\.cacertfile", _tls("cacertfile")),
    (rf"{_OF_TLS}\.password", _tls("password")),
    (rf"{_OF_TLS}\.verify", _tls("verify", _verify)),
    (rf"{_OF_TLS}\.fail_if_no_peer_cert", _tls("fail_if_no_peer_cert", _switch)),
    (rf"{_OF_TLS}\.versions\.\w+", _tls("versions", _one_of("tlsv1.2", "tlsv1.3"))),
    (r"default_user", _set("default_user")),
    (r"default_pass", _set("default_pass")),
    (r"default_vhost", _set("default_vhost")),
    (r"default_permissions\.(configure|write|read)", _put("default_permissions")),
    (r"default_user_tags\.(\w+)", _put("default_tags", _switch)),
    (r"loopback_users\.(.+)", _loopback_user),
    (r"(?:management\.)?load_definitions", _set("load_definitions")),
    (r"definitions\.local\.path", _set("load_definitions")),
    (r"definitions\.import_backend", _import_backend),
    (r"management\.(tcp|ssl|listener)\.port", _management),
    (r"management\.(tcp|ssl|listener)\.ip", _management_ip),
    (r"log\.file", _log_file),
    (r"log\.dir", _set("log_dir")),
    (r"log\.console", _set("log_console", _switch)),
    (r"log\.(?:file|console|default)\.level", _set("log_level", _one_of(*LEVELS))),
    (r"log\.(?:file|console)\.formatter", _formatter),
    (r"default_queue_type", _default_queue_type),
    (r"consumer_timeout", _consumer_timeout),
)  # fmt: skip
"""Pattern of a key -> what takes its value, and the groups of the pattern."""
_EXAMPLES = (
    "listeners.tcp.default", "listeners.tcp.1", "listeners.ssl.default", "ssl_options.certfile", "ssl_options.keyfile",
    "ssl_options.cacertfile", "ssl_options.verify", "ssl_options.fail_if_no_peer_cert", "default_user", "default_pass",
    "default_vhost", "default_permissions.configure", "default_user_tags.administrator", "loopback_users.guest",
    "load_definitions", "management.tcp.port", "management.tcp.ip", "management.ssl.port",
    "management.ssl.certfile", "log.file", "log.dir", "log.console", "log.file.level",
    "log.console.level", "log.console.formatter",
)  # fmt: skip
"""Keys to choose a correction from."""

_REFUSED = (
    (r"cluster_|autocluster|node_", "this server is one node, without a cluster"),
    (r"auth_backends|auth_ldap|auth_http|auth_oauth2|auth_cache", "users are the server's own, in users.json or the definitions file"),
    (r"auth_mechanisms|ssl_cert_login", "PLAIN and AMQPLAIN are offered, and no login by certificate"),
    (_OF_TLS, "of TLS this server knows certfile, keyfile, cacertfile, password, verify, fail_if_no_peer_cert and versions"),
    (r"management\.(listener|https)", "TLS for the management API is said with management.ssl.port, .certfile and so on"),
    (r"management\.(path_prefix|cors|csp|hsts|oauth|login|http_log_dir)", "the management API has no such option"),
    (r"mqtt|stomp|web_|stream|amqp1_0|amqp_", "AMQP 0-9-1 is the only protocol here"),
    (r"prometheus\.", "the page for Prometheus is at /metrics of the management API"),
    (r"log\.(syslog|exchange|journald)", "logs go to stderr or a file"),
    (r"log\.\w+\.level", "there is one level for all: log.console.level or log.file.level"),
    (r"proxy_protocol|socket_writer", "the proxy protocol is not spoken"),
    (r"anonymous_login|default_policies|default_limits|password_hashing|definitions\.", "this server has no such option"),
    (r"queue_master_locator|quorum_|raft|khepri", "this server is one node with classic queues"),
)  # fmt: skip
_WITHOUT_EFFECT = (
    r"tcp_listen_options\.", r"num_acceptors\.", r"collect_statistics", r"management\.(rates_mode|sample_retention)",
    r"management_agent\.", r"mnesia_table_loading", r"mirroring_sync_batch", r"log\.(file|dir)\.", r"log\.file\.rotation",
    r"reverse_dns_lookups", r"background_gc", r"hipe_compile", r"vm_memory_calculation_strategy", r"delegate_count",
    r"ssl_handshake_timeout", r"disk_monitor", r"channel_max_per_node|connection_max|session_max_per_connection",
    r"deprecated_features\.", r"max_message_size\.", r"queue_index_embed_msgs\.", r"net_ticktime",
)  # fmt: skip
"""Keys of RabbitMQ that tune what works otherwise here."""


def log_path(conf: ServerConf) -> str | None:
    """The file that logs go to."""
    if conf.log_file is None:
        return None
    return os.path.join(conf.log_dir or "", conf.log_file)
