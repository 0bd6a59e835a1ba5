"""Users, virtual hosts and permissions: a file as `rabbitmqctl export_definitions` writes it, or RabbitMQ's defaults.

    {"users":       [{"name": "app", "password_hash": "...", "hashing_algorithm": "rabbit_password_hashing_sha256",
                      "tags": ["administrator"], "limits": {"max-connections": 10}}],
     "vhosts":      [{"name": "/"}],
     "permissions": [{"user": "app", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}]}

Permissions, with those of topics, are in permissions.py.  The rest of such a file (queues, policies, ...) is for
management/definitions.py.

Users can be changed while the server runs.  A change holds for connections that are open, too, except that a user who
is deleted stays connected, as in RabbitMQ.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from warrenmq.amqp.access.passwords import DEFAULT_ALGORITHM, PasswordHash, hash_password
from warrenmq.amqp.access.permissions import (
    AuthenticatedUser,
    Permissions,
    TopicPermissions,
    name_permissions,
    topic_permissions,
)
from warrenmq.errors import NotFound, SettingsError
from warrenmq.patterns import Pattern

DEFAULT_USER = "guest"
_TOPIC_KEYS = ("user", "vhost", "exchange")
USER_LIMITS = ("max-connections", "max-channels")


@dataclass(frozen=True, slots=True)
class Account:
    """A user."""

    name: str
    password: PasswordHash
    password_hash: str
    hashing_algorithm: str
    tags: tuple[str, ...]
    limits: dict[str, int] = field(default_factory=dict)
    """max-connections and max-channels; a negative one is no limit."""

    def definition(self) -> dict[str, Any]:
        """The user as an exported file has it."""
        return {
            "name": self.name, "password_hash": self.password_hash, "hashing_algorithm": self.hashing_algorithm,
            "tags": [*self.tags], "limits": {**self.limits},
        }  # fmt: skip

    def limit(self, name: str) -> int | None:
        """A limit; None if it is not set."""
        value = self.limits.get(name, -1)
        return None if value < 0 else value


class Users:
    """The users of a server, with their permissions in each virtual host.

    `changed` is called after every change by one of `put_user` and its like; what a file brings is no change.
    Several threads may change them, and look at them meanwhile.
    """

    def __init__(self) -> None:
        self.vhosts: dict[str, dict[str, Any]] = {"/": {}}
        """Names, in order, each with its description and tags; "/" is always there."""
        self.changed: Callable[[], None] = lambda: None
        self._changing = threading.Lock()
        self._accounts: dict[str, Account] = {}
        self._permissions: dict[tuple[str, str], Permissions] = {}
        self._topics: dict[tuple[str, str, str], TopicPermissions] = {}
        """Topic permissions by user, virtual host and exchange."""
        self._own: dict[tuple[str, ...], None] = {}
        """The keys of what did not come from a file: ("user", name), ("vhost", name), ("permission", user,
        vhost), ("topic", user, vhost, exchange).
        """

    @classmethod
    def default(cls, name: str = DEFAULT_USER, password: str = DEFAULT_USER, tags: Iterable[str] = ("administrator",),
                permissions: tuple[str, str, str] = (".*", ".*", ".*"), vhost: str = "/") -> Users:  # fmt: skip
        """One user, who may do everything in "/" unless said otherwise: guest, with password guest."""
        users = cls()
        users.vhosts.setdefault(vhost, {})
        users._accounts[name] = _account(name, hash_password(password), DEFAULT_ALGORITHM, tags)
        users._permissions[name, vhost] = name_permissions(name, vhost, permissions)
        return users

    @classmethod
    def load(cls, path: str) -> Users:
        """Read a definitions file.  Raises SettingsError, in one sentence, when it cannot be used."""
        return cls.of_file(path, read_definitions(path))

    @classmethod
    def of_file(cls, path: str, definitions: Any) -> Users:
        """The users of a definitions file that was read from `path`.  Raises SettingsError."""
        try:
            return cls.of_definitions(definitions)
        except ValueError as why:
            raise SettingsError(f"the users file {path} cannot be used: {why}.") from why

    @classmethod
    def of_definitions(cls, definitions: Any) -> Users:
        """Read RabbitMQ's exported definitions.  Raises ValueError with what is wrong in them."""
        if type(definitions) is not dict:
            raise ValueError("it is not a JSON object with users, vhosts and permissions")
        users = cls()
        users.add(definitions)
        if not users._accounts:
            raise ValueError("it has no users, so no client could log in")
        return users

    def add(self, definitions: dict[str, Any]) -> None:
        """Add the virtual hosts, users and permissions of exported definitions; what is there already is replaced.

        Raises ValueError with what is wrong in them; nothing is changed then.
        """
        vhosts = dict(vhost_of(row) for row in rows_of(definitions, "vhosts"))
        version = definitions.get("rabbit_version", "")
        accounts = [account_of(row, version) for row in rows_of(definitions, "users")]
        permissions = {}
        for row in rows_of(definitions, "permissions"):
            user, vhost = (text_of(row, key, "a permission") for key in ("user", "vhost"))
            whose = f"the permission of {user!r} in {vhost!r}"
            texts = [text_of(row, key, whose) for key in Permissions._fields]
            permissions[user, vhost] = name_permissions(user, vhost, texts)
        topics = {}
        for row in rows_of(definitions, "topic_permissions"):
            user, vhost, exchange = (text_of(row, key, "a topic permission") for key in _TOPIC_KEYS)
            whose = f"the topic permission of {user!r} for exchange {exchange!r} in {vhost!r}"
            write, read = (text_of(row, key, whose) for key in ("write", "read"))
            topics[user, vhost, exchange] = topic_permissions(user, vhost, exchange, write, read)
        for name, about in vhosts.items():
            self.vhosts[name] = about
        self._accounts |= {account.name: account for account in accounts}
        self._permissions |= permissions
        self._topics |= topics

    def adopt(self, definitions: Any) -> None:
        """Add definitions that are the server's own, to be kept by it.  Raises ValueError."""
        if type(definitions) is not dict:
            raise ValueError("it is not a JSON object with users, vhosts and permissions")
        self.add(definitions)
        self._own |= {("user", row["name"]): None for row in rows_of(definitions, "users")}
        self._own |= {("vhost", row["name"]): None for row in rows_of(definitions, "vhosts")}
        for row in rows_of(definitions, "permissions"):
            self._own["permission", row["user"], row["vhost"]] = None
        for row in rows_of(definitions, "topic_permissions"):
            self._own["topic", row["user"], row["vhost"], row["exchange"]] = None

    def own_definitions(self) -> dict[str, Any]:
        """The definitions that did not come from a file."""
        return {
            "users": [each.definition() for each in self.accounts() if ("user", each.name) in self._own],
            "vhosts": [{"name": name, **about} for name, about in self.vhosts.items() if ("vhost", name) in self._own],
            "permissions": [
                each for each in self.permissions() if ("permission", each["user"], each["vhost"]) in self._own
            ],
            "topic_permissions": [
                each for each in self.topic_permissions() if ("topic", *(each[key] for key in _TOPIC_KEYS)) in self._own
            ],
        }  # fmt: skip

    # -- changes

    @contextmanager
    def change(self) -> Iterator[None]:
        """One change at a time, undone if it raises or cannot be kept; who looks meanwhile sees tables that keep their size."""
        with self._changing:
            before: tuple[dict[Any, Any], ...] = (
                self.vhosts,
                self._accounts,
                self._permissions,
                self._topics,
                self._own,
            )
            self._set_tables(*(table.copy() for table in before))
            try:
                yield
                self.changed()
            except BaseException:
                self._set_tables(*before)
                raise

    def _set_tables(self, *tables: dict[Any, Any]) -> None:
        self.vhosts, self._accounts, self._permissions, self._topics, self._own = tables

    def put_user(self, account: Account) -> bool:
        """Add a user, in place of one of that name; False if there was none."""
        with self.change():
            known = account.name in self._accounts
            self._accounts[account.name] = account
            self._own["user", account.name] = None
        return known

    def delete_user(self, name: str) -> None:
        """Delete a user and his permissions; NotFound."""
        with self.change():
            if self._accounts.pop(name, None) is None:
                raise _no_user(name)
            self._forget(0, name)

    def set_permissions(self, user: str, vhost: str, configure: str, write: str, read: str) -> bool:
        """Give a user these permissions; False when he had none.  NotFound; ValueError for an invalid pattern."""
        with self.change():
            self._check(user, vhost)
            known = (user, vhost) in self._permissions
            self._permissions[user, vhost] = name_permissions(user, vhost, (configure, write, read))
            self._own["permission", user, vhost] = None
        return known

    def clear_permissions(self, user: str, vhost: str) -> None:
        """Take a user's permissions in a virtual host; NotFound when he has none."""
        with self.change():
            if self._permissions.pop((user, vhost), None) is None:
                raise NotFound(f"user {user!r} has no permissions in virtual host {vhost!r}")

    def set_topic_permissions(self, user: str, vhost: str, exchange: str, write: str, read: str) -> bool:
        """Give a user these permissions for the routing keys of an exchange; raises and returns as `set_permissions` does."""
        with self.change():
            self._check(user, vhost)
            known = (user, vhost, exchange) in self._topics
            self._topics[user, vhost, exchange] = topic_permissions(user, vhost, exchange, write, read)
            self._own["topic", user, vhost, exchange] = None
        return known

    def clear_topic_permissions(self, user: str, vhost: str, exchange: str | None = None) -> None:
        """Take a user's topic permissions in a virtual host, or those of one exchange: every routing key is
        allowed there again.
        """
        cleared = (user, vhost) if exchange is None else (user, vhost, exchange)
        with self.change():
            self._topics = {key: each for key, each in self._topics.items() if key[: len(cleared)] != cleared}

    def _check(self, user: str, vhost: str) -> None:
        if user not in self._accounts:
            raise _no_user(user)
        if vhost not in self.vhosts:
            raise no_vhost(vhost)

    def put_vhost(self, name: str, about: dict[str, Any]) -> None:
        """Add a virtual host."""
        with self.change():
            self.vhosts[name] = about
            self._own["vhost", name] = None

    def delete_vhost(self, name: str) -> None:
        """Forget a virtual host, and all permissions in it."""
        with self.change():
            self.vhosts.pop(name, None)
            self._forget(1, name)

    def _forget(self, at: int, name: str) -> None:
        """Forget the permissions of a user (0), or in a virtual host (1)."""
        self._permissions = {key: each for key, each in self._permissions.items() if key[at] != name}
        self._topics = {key: each for key, each in self._topics.items() if key[at] != name}

    # -- looks

    def accounts(self) -> list[Account]:
        """The users by name."""
        return sorted(self._accounts.values(), key=lambda account: account.name)

    def account(self, name: str) -> Account:
        """Look up a user; NotFound if there is no such user."""
        if (account := self._accounts.get(name)) is None:
            raise _no_user(name)
        return account

    def permissions(self, *, user: str | None = None, vhost: str | None = None) -> list[dict[str, str]]:
        """The permissions as an exported file has them, of one user or virtual host or of all."""
        return [
            {"user": key[0], "vhost": key[1],
             **{name: _text(pattern) for name, pattern in each._asdict().items()}}
            for key, each in sorted(self._permissions.items())
            if user in (None, key[0]) and vhost in (None, key[1])
        ]  # fmt: skip

    def topic_permissions(self, *, user: str | None = None, vhost: str | None = None) -> list[dict[str, str]]:
        """The topic permissions, as `permissions` has the others."""
        return [
            {**dict(zip(_TOPIC_KEYS, key, strict=True)), "write": each.texts[0], "read": each.texts[1]}
            for key, each in sorted(self._topics.items())
            if user in (None, key[0]) and vhost in (None, key[1])
        ]

    def definitions(self) -> dict[str, Any]:
        """All users and permissions as an exported definitions file has them."""
        return {
            "users": [account.definition() for account in self.accounts()],
            "vhosts": [{"name": name, **about} for name, about in self.vhosts.items()],
            "permissions": self.permissions(),
            "topic_permissions": self.topic_permissions(),
        }

    def check_password(self, name: str, password: bytes) -> bool:
        """True if this is the user's password (rabbit_access_control:check_user_pass_login)."""
        account = self._accounts.get(name)
        return account is not None and account.password.matches(password)

    def in_vhost(self, name: str, vhost: str) -> AuthenticatedUser | None:
        """The user at work in a virtual host; None if he has no permissions there."""
        if (name, vhost) not in self._permissions or name not in self._accounts:
            return None
        tags = frozenset(self._accounts[name].tags)
        return AuthenticatedUser(
            name, tags, lambda: self._permissions.get((name, vhost)),
            lambda exchange: self._topics.get((name, vhost, exchange)), lambda: self._max_channels(name),
        )  # fmt: skip

    def _max_channels(self, name: str) -> int | None:
        account = self._accounts.get(name)
        return None if account is None else account.limit("max-channels")


def read_definitions(path: str) -> Any:
    """The JSON of a definitions file.  Raises SettingsError, in one sentence, when it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as why:
        msg = f"the users file {path} cannot be read: {why.strerror or why}."
    except (ValueError, RecursionError) as why:
        msg = f"the users file {path} cannot be used: it is no JSON ({why})."
    raise SettingsError(msg)


def account_of(user: dict[str, Any], version: object = "") -> Account:
    """A user as an exported file has him, or one written by hand, with a `password`; ValueError with what is wrong."""
    name = text_of(user, "name", "a user")
    who = f"user {name!r}"
    if "password" in user:  # which wins, as in RabbitMQ (rabbit_auth_backend_internal:put_user)
        hashed = hash_password(text_of(user, "password", who)) if user["password"] else ""
        user = user | {"password_hash": hashed, "hashing_algorithm": DEFAULT_ALGORITHM}
    if "password_hash" not in user:
        msg = f"{who} has no password and no password_hash (make one with: warrenmq hash-password)"
        raise ValueError(msg)
    old = str(version).startswith(("3.5.", "3.4.", "3.3."))
    algorithm = user.get("hashing_algorithm") or ("rabbit_password_hashing_md5" if old else DEFAULT_ALGORITHM)
    tags = user.get("tags") or []
    names = tags.split(",") if isinstance(tags, str) else tags
    if not (isinstance(names, list) and all(isinstance(tag, str) for tag in names)):
        raise ValueError(f"{who} has tags that are no list of names")
    account = _account(name, text_of(user, "password_hash", who), str(algorithm), names)
    limits = user.get("limits") or {}
    if type(limits) is not dict:
        raise ValueError(f"{who} has limits that are no object")
    for key, value in limits.items():
        account.limits[key] = user_limit(name, key, value)
    return account


def vhost_of(row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name, description and tags of a virtual host; RabbitMQ writes the latter two into its metadata."""
    name = text_of(row, "name", "a vhost")
    metadata = row.get("metadata") or {}
    if type(metadata) is not dict:
        raise ValueError(f"vhost {name!r} has metadata that are no object")
    about = {key: value for key in ("description", "tags") if (value := row.get(key, metadata.get(key)))}
    if isinstance(tags := about.get("tags", []), str):
        about["tags"] = tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
    description = about.get("description", "")
    if not (
        isinstance(description, str) and isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
    ):
        raise ValueError(
            f"vhost {name!r} has a description that is no text, or tags that are no list of texts"
        )
    return name, about


def user_limit(user: str, name: str, value: object) -> int:
    """A limit of a user; ValueError for an unknown one, and for no whole number."""
    if name not in USER_LIMITS or type(value) is not int:
        msg = f"user {user!r} has the limit {name} = {value!r}; known are {' and '.join(USER_LIMITS)}, whole numbers"
        raise ValueError(msg)
    return value


def rows_of(definitions: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """A list of objects in definitions; ValueError when it is something else."""
    rows = definitions.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"its {key} are not a list of objects")
    return rows


def text_of(row: dict[str, Any], key: str, whose: str) -> str:
    """A text in an object of definitions; ValueError if it is missing or no text."""
    if type(text := row.get(key)) is not str:
        raise ValueError(f"{whose} has no {key}")
    return str(text)


def no_vhost(name: str) -> NotFound:
    """The error for an unknown virtual host."""
    return NotFound(f"there is no virtual host {name!r}", reply_text=f"no vhost '{name}'")


def _no_user(name: str) -> NotFound:
    return NotFound(f"there is no user {name!r}")


def _account(name: str, password_hash: str, algorithm: str, tags: Iterable[str]) -> Account:
    try:
        password = PasswordHash(password_hash, algorithm)
    except ValueError as why:
        raise ValueError(f"user {name!r} {why}") from why
    named = tuple(tag.strip() for tag in tags if tag.strip())
    return Account(name, password, password_hash, algorithm, named)


def _text(pattern: Pattern) -> str:
    return "" if pattern.pattern == "^$" else pattern.pattern
