"""A rabbitmq.conf as a whole: what is understood, what is told, and what is refused by name."""

import pytest

from warrenmq.cli._server_conf import read_conf
from warrenmq.errors import SettingsError

WHOLE = """
# a usual file
listeners.tcp.default = 5672
listeners.tcp.local = 127.0.0.1:5673
listeners.ssl.1 = [::1]:5671
ssl_options.cacertfile = /etc/ca.pem
ssl_options.certfile   = /etc/cert.pem
ssl_options.keyfile    = /etc/key.pem
ssl_options.verify     = verify_peer
ssl_options.fail_if_no_peer_cert = true
ssl_options.versions.1 = tlsv1.3
ssl_options.versions.2 = tlsv1.2
default_user = admin
default_pass = 's3cr#et'
default_permissions.configure = ^a
default_user_tags.administrator = true
loopback_users.guest = false
load_definitions = /etc/definitions.json
management.tcp.ip = 127.0.0.1
management.tcp.port = 15673
log.file = rabbit.log
log.dir = /var/log
log.file.level = warning
log.console.formatter = json
heartbeat = 30
channel_max = 100
frame_max = 65536
consumer_timeout = undefined
disk_free_limit.absolute = 2GB
vm_memory_high_watermark.relative = 0.6
tcp_listen_options.backlog = 128
collect_statistics_interval = 10000
"""


def conf(tmp_path, text):
    path = tmp_path / "rabbitmq.conf"
    path.write_text(text)
    return str(path)


def test_a_usual_file_is_understood(tmp_path):
    found = read_conf(conf(tmp_path, WHOLE))
    assert found.tcp == {"default": (None, 5672), "local": ("127.0.0.1", 5673)}
    assert found.ssl == {"1": ("::1", 5671)}
    assert (found.tls.certfile, found.tls.keyfile, found.tls.cacertfile) == (
        "/etc/cert.pem",
        "/etc/key.pem",
        "/etc/ca.pem",
    )
    assert (found.tls.verify, found.tls.fail_if_no_peer_cert, found.tls.versions) == (
        True,
        True,
        ["tlsv1.3", "tlsv1.2"],
    )
    assert (found.default_user, found.default_pass, found.default_tags) == (
        "admin",
        "s3cr#et",
        {"administrator": True},
    )
    assert found.default_permissions == {"configure": "^a", "write": ".*", "read": ".*"}
    assert (found.management_host, found.management_port) == ("127.0.0.1", 15673)
    assert (found.log_file, found.log_dir, found.log_level, found.log_json) == (
        "rabbit.log",
        "/var/log",
        "warning",
        True,
    )
    assert found.load_definitions == "/etc/definitions.json"
    assert found.settings == {
        "loopback_users": "none", "heartbeat": "30", "channel_max": "100", "frame_max": "65536", "consumer_timeout": "0",
        "disk_free_limit.absolute": "2GB", "vm_memory_high_watermark.relative": "0.6",
    }  # fmt: skip
    assert found.without_effect == ["tcp_listen_options.backlog", "collect_statistics_interval"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listeners.tcp.default = x", "line 1: listeners.tcp.default = x is no port, and no address with one"),
        ("\nlisteners.tcp.1 = 1.2.3.4:99999", "line 2: listeners.tcp.1 = 1.2.3.4:99999 is no port"),
        ("listener.tcp.default = 5672", "listener.tcp.default is no key that this server knows; did you mean listeners.tcp.default"),
        ("zzz = 1", "zzz is no key that this server knows; docs/operating.md has those that are"),
        ("cluster_formation.peer_discovery_backend = k8s", "is refused: this server is one node, without a cluster; take the line out"),
        ("auth_backends.1 = ldap", "auth_backends.1 is refused: users are the server's own"),
        ("management.ssl.port = 15671", "has management.ssl, which needs management.ssl.port and management.ssl.certfile"),
        ("management.ssl.certfile = x", "has management.ssl, which needs management.ssl.port and management.ssl.certfile"),
        ("management.listener.ssl = true", "is refused: TLS for the management API is said with management.ssl.port"),
        ("ssl_options.ciphers.1 = x", "ssl_options.ciphers.1 is refused: of TLS this server knows certfile"),
        ("ssl_options.verify = yes", "ssl_options.verify = yes must be verify_peer or verify_none"),
        ("ssl_options.fail_if_no_peer_cert = 1", "= 1 must be true or false"),
        ("listeners.ssl.default = 5671", "has listeners.ssl, which needs ssl_options.certfile"),
        ("mqtt.listeners.tcp.default = 1883", "is refused: AMQP 0-9-1 is the only protocol here"),
        ("log.syslog = true", "log.syslog is refused: logs go to stderr or a file"),
        ("log.connection.level = error", "log.connection.level is refused: there is one level for all"),
        ("log.file.level = loud", "log.file.level = loud must be debug or info"),
        ("loopback_users.bob = true", "is refused: guest is the only user who can be kept to this machine"),
        ("default_queue_type = quorum", "default_queue_type = quorum: this server has classic queues only"),
        ("management.tcp.port = none", "management.tcp.port = none: leave it out"),
        ("\nheartbeat = soon", "line 2: heartbeat = 'soon' must be a whole number from 0 to"),
        ("consumer_timeout = soon", "line 1: consumer_timeout = 'soon' must be a whole number"),
        ("disk_free_limit.absolute = a lot", "line 1: disk_free_limit.absolute = 'absolute, a lot' must be"),
        ("heartbeat", "line 1: 'heartbeat' is not of the form key = value"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(tmp_path, text, said):
    with pytest.raises(SettingsError) as refused:
        read_conf(conf(tmp_path, text))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ("'a #b'", "a #b"),
        ("'a #b' # it's 'c'", "a #b"),
        ("it's # 'c'", "it's"),
        ("' a '", " a "),
        ("''", ""),
        ("'", "'"),
    ],
)
def test_a_value_in_quotes_is_taken_as_it_is(tmp_path, text, password):
    """A password with a space and # behind it was cut there, and began with the quote."""
    assert read_conf(conf(tmp_path, f"default_pass = {text}\n")).default_pass == password


def test_none_is_no_listener(tmp_path):
    assert read_conf(conf(tmp_path, "listeners.tcp = none\n")).tcp == {"default": None}
