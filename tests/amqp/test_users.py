"""Users of a file: passwords, virtual hosts, permissions, and what is wrong with a file."""

import json

import pytest

from warrenmq.amqp.access.auth import credentials
from warrenmq.amqp.access.passwords import ALGORITHMS, PasswordHash, hash_password
from warrenmq.amqp.access.permissions import AuthenticatedUser, Permissions
from warrenmq.amqp.access.users import Users
from warrenmq.amqp.wire.errors import AmqpError
from warrenmq.errors import SettingsError
from warrenmq.patterns import Pattern


def definitions(**changes):
    return {
        "rabbit_version": "3.10.8",
        "users": [
            {"name": "app", "password_hash": hash_password("secret"), "hashing_algorithm": "rabbit_password_hashing_sha256",
             "tags": ["monitoring"], "limits": {}},
        ],
        "vhosts": [{"name": "/"}, {"name": "other"}],
        "permissions": [
            {"user": "app", "vhost": "/", "configure": "^app-", "write": "amq.default|^app-", "read": ""},
        ],
        "queues": [{"name": "ignored"}],
    } | changes  # fmt: skip


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_hash_matches_its_password_only(algorithm):
    made = PasswordHash(hash_password("pässword", algorithm), algorithm)
    assert made.matches("pässword".encode())
    assert not made.matches(b"password")
    assert not made.matches(b"")


def test_a_hash_of_rabbitmqctl_is_read():
    assert PasswordHash("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR").matches(b"test12")


def test_a_user_with_an_empty_hash_cannot_log_in():
    assert not PasswordHash("").matches(b"")
    assert not PasswordHash("").matches(b"x")


def test_guest_may_do_everything_unless_there_is_a_file():
    users = Users.default()
    assert users.check_password("guest", b"guest")
    assert not users.check_password("guest", b"Guest")
    assert not users.check_password("nobody", b"guest")
    guest = users.in_vhost("guest", "/")
    assert guest.tags == {"administrator"}
    assert guest.may_configure("x")
    assert guest.may_write("amq.default")
    assert guest.may_read("amq.topic")
    assert users.in_vhost("guest", "other") is None


def test_an_exported_file_just_works(tmp_path):
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(definitions()))
    users = Users.load(str(path))
    assert list(users.vhosts) == ["/", "other"]
    assert users.check_password("app", b"secret")
    assert not users.check_password("guest", b"guest")
    assert users.in_vhost("app", "other") is None
    app = users.in_vhost("app", "/")
    assert app.tags == {"monitoring"}


@pytest.mark.parametrize(
    ("name", "configure", "write", "read"),
    [
        ("app-jobs", True, True, False),
        ("my-app-jobs", False, False, False),
        ("amq.default", False, True, False),
        ("x amq.default", False, True, False),  # a pattern is searched for
    ],
)
def test_permissions_are_patterns_that_are_searched_for(name, configure, write, read):
    app = Users.of_definitions(definitions()).in_vhost("app", "/")
    assert (app.may_configure(name), app.may_write(name), app.may_read(name)) == (configure, write, read)


def test_two_channels_of_a_connection_may_ask_for_permissions_at_once():
    """The second one found that they were known, but not yet what they allow, and its channel crashed."""
    asked = []

    class Asking(Pattern):
        @property
        def found_in(self):
            if not asked:  # the first channel is about to remember them
                asked.append(True)
                asked.append(user.may_configure("q"))
            return super().found_in

    permissions = Permissions(*map(Asking, [".*"] * 3))
    user = AuthenticatedUser("u", frozenset(), lambda: permissions, lambda _: None, lambda: None)
    assert user.may_write("q")
    assert asked == [True, True]


def test_tags_of_older_files_are_one_text():
    row = definitions()["users"][0] | {"tags": "administrator, monitoring"}
    users = Users.of_definitions(definitions(users=[row]))
    assert users.in_vhost("app", "/").tags == {"administrator", "monitoring"}


def user(**changes):
    return definitions(users=[definitions()["users"][0] | changes])


def test_a_password_may_be_written_by_hand_and_wins_over_a_hash():
    users = Users.of_definitions(user(password="by hand", hashing_algorithm="rabbit_password_hashing_md5"))
    assert users.check_password("app", b"by hand")
    assert not users.check_password("app", b"secret")
    nobody = Users.of_definitions(user(password=""))
    assert not nobody.check_password("app", b"")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("no json", "cannot be used: it is no JSON (Expecting value"),
        ([], "it is not a JSON object"),
        ({}, "it has no users, so no client could log in"),
        ({"users": {}}, "its users are not a list of objects"),
        ({"users": [{"name": "app"}]}, "user 'app' has no password and no password_hash (make one with: warrenmq hash-password)"),
        ({"users": [{"password_hash": ""}]}, "a user has no name"),
        (user(password=7), "user 'app' has no password"),
        (user(password_hash="!"), "user 'app' has a password_hash that is not Base64"),
        (user(password_hash="YWJj"), "user 'app' has a password_hash that is not one of rabbit_password_hashing_sha256"),
        (user(hashing_algorithm="crypt"), "user 'app' has hashing_algorithm 'crypt'"),
        (definitions(topic_permissions=[{"user": "app"}]), "a topic permission has no vhost"),
        (definitions(topic_permissions=[{"user": "app", "vhost": "/", "exchange": "e", "write": "(", "read": ""}]),
         "the write topic permission of 'app' for exchange 'e' in '/' is no regular expression"),
        (user(tags=[1]), "user 'app' has tags that are no list of names"),
        (definitions(permissions=[{"user": "app", "vhost": "/", "configure": "(", "write": "", "read": ""}]),
         "the configure permission of 'app' in '/' is no regular expression"),
        (definitions(permissions=[{"user": "app", "vhost": "/"}]), "the permission of 'app' in '/' has no configure"),
    ],
)  # fmt: skip
def test_an_invalid_users_file_is_explained_in_a_sentence(tmp_path, content, said):
    path = tmp_path / "users.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(SettingsError) as raised:
        Users.load(str(path))
    assert said in str(raised.value)
    assert str(raised.value).endswith(".")


def test_a_file_that_is_not_there():
    with pytest.raises(SettingsError, match=r"the users file /nowhere cannot be read: No such file"):
        Users.load("/nowhere")


# -- SASL


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [("PLAIN", b"\0me\0secret"), ("AMQPLAIN", b"\5LOGINS\0\0\0\2me\x08PASSWORDS\0\0\0\6secret")],
)
def test_each_mechanism_says_who(mechanism, response):
    assert credentials(mechanism, response) == (b"me", b"secret")


@pytest.mark.parametrize(
    ("mechanism", "response", "code"),
    [
        ("EXTERNAL", b"", 503),
        ("PLAIN", b"", 502),
        ("PLAIN", b"who\0me\0secret", 502),
        ("PLAIN", b"\0me", 502),
        ("AMQPLAIN", b"", 502),
        ("AMQPLAIN", b"\5LOGIN", 502),
        ("AMQPLAIN", b"\5LOGINt\1\x08PASSWORDt\1", 502),
    ],
)
def test_an_invalid_response_is_an_error(mechanism, response, code):
    with pytest.raises(AmqpError) as raised:
        credentials(mechanism, response)
    assert raised.value.code == code
    assert "secret" not in raised.value.text
