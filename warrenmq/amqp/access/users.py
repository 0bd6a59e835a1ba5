"""Users, virtual hosts and permissions: a file as `rabbitmqctl export_definitions` writes it, or RabbitMQ's defaults.

    {"users":       [{"name": "app", "password_hash": "...", "hashing_algorithm": "rabbit_password_hashing_sha256",
                      "tags": ["administrator"]}],
     "vhosts":      [{"name": "/"}],
     "permissions": [{"user": "app", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}]}

All else in the file (queues, policies, limits ...) is left alone, but a file with topic permissions is refused: they are not
checked here, and ignoring them would grant more than their author meant.  Patterns are regular expressions that are
searched for in a name; an empty one matches nothing (rabbit_auth_backend_internal).
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from warrenmq.amqp.access.passwords import DEFAULT_ALGORITHM, PasswordHash, hash_password
from warrenmq.errors import SettingsError

if TYPE_CHECKING:
    from re import Pattern

DEFAULT_USER = "guest"
_REMEMBERED = 256
"""Names of exchanges and queues whose permission a connection remembers."""


class Account(NamedTuple):
    """A user of the file."""

    password: PasswordHash
    tags: frozenset[str]


class Permissions(NamedTuple):
    """The permissions of a user in a virtual host."""

    configure: Pattern[str]
    write: Pattern[str]
    read: Pattern[str]


class AuthenticatedUser:
    """A user who is logged in to a virtual host (the protocol: context.User)."""

    def __init__(self, name: str, tags: frozenset[str], permissions: Permissions) -> None:
        self.name = name
        self.tags = tags
        self.may_configure = _remembered(permissions.configure)
        self.may_write = _remembered(permissions.write)
        self.may_read = _remembered(permissions.read)


def _remembered(pattern: Pattern[str]) -> Any:
    return lru_cache(_REMEMBERED)(lambda name: pattern.search(name) is not None)


class Users:
    """The users of a server, with their permissions in each virtual host."""

    def __init__(self) -> None:
        self.vhosts: dict[str, None] = {"/": None}
        """Names, in order; "/" is always there."""
        self._accounts: dict[str, Account] = {}
        self._permissions: dict[tuple[str, str], Permissions] = {}

    @classmethod
    def default(cls) -> Users:
        """guest, with password guest, who may do everything in "/"."""
        users = cls()
        users._accounts[DEFAULT_USER] = Account(
            PasswordHash(hash_password(DEFAULT_USER)), frozenset(["administrator"])
        )
        everything = re.compile(".*")
        users._permissions[DEFAULT_USER, "/"] = Permissions(everything, everything, everything)
        return users

    @classmethod
    def load(cls, path: str) -> Users:
        """Read a definitions file.  Raises SettingsError, in one sentence, when it cannot be used."""
        try:
            with open(path, encoding="utf-8") as file:
                return cls.of_definitions(json.load(file))
        except OSError as why:
            msg = f"the users file {path} cannot be read: {why.strerror or why}."
        except (ValueError, RecursionError) as why:
            msg = f"the users file {path} cannot be used: {why}."
        raise SettingsError(msg)

    @classmethod
    def of_definitions(cls, definitions: Any) -> Users:
        """Read RabbitMQ's exported definitions.  Raises ValueError with what is wrong in them."""
        if type(definitions) is not dict:
            raise ValueError("it is not a JSON object with users, vhosts and permissions")
        users = cls()
        for vhost in _rows(definitions, "vhosts"):
            users.vhosts[_text(vhost, "name", "a vhost")] = None
        for user in _rows(definitions, "users"):
            users._add_user(user, definitions.get("rabbit_version", ""))
        if _rows(definitions, "topic_permissions"):
            raise ValueError("it has topic_permissions, which are not checked here; take them out")
        for permission in _rows(definitions, "permissions"):
            users._add_permission(permission)
        if not users._accounts:
            raise ValueError("it has no users, so no client could log in")
        return users

    def _add_user(self, user: dict[str, Any], version: object) -> None:
        name = _text(user, "name", "a user")
        who = f"user {name!r}"
        if "password_hash" not in user:
            msg = f"{who} has no password_hash (make one with: warrenmq hash_password)"
            raise ValueError(msg)
        old = str(version).startswith(("3.5.", "3.4.", "3.3."))
        algorithm = user.get("hashing_algorithm") or (
            "rabbit_password_hashing_md5" if old else DEFAULT_ALGORITHM
        )
        tags = user.get("tags") or []
        names = tags.split(",") if isinstance(tags, str) else tags
        if not (isinstance(names, list) and all(isinstance(tag, str) for tag in names)):
            msg = f"{who} has tags that are no list of names"
            raise ValueError(msg)
        try:
            password = PasswordHash(_text(user, "password_hash", who), str(algorithm))
        except ValueError as why:
            msg = f"{who} {why}"
            raise ValueError(msg) from why
        self._accounts[name] = Account(password, frozenset(tag.strip() for tag in names if tag.strip()))

    def _add_permission(self, permission: dict[str, Any]) -> None:
        user, vhost = (_text(permission, key, "a permission") for key in ("user", "vhost"))
        patterns = []
        for key in Permissions._fields:
            text = _text(permission, key, f"the permission of {user!r} in {vhost!r}")
            try:
                patterns.append(re.compile(text or "^$"))
            except re.error as why:
                msg = f"the {key} permission of {user!r} in {vhost!r} is no regular expression: {why}"
                raise ValueError(msg) from why
        self._permissions[user, vhost] = Permissions(*patterns)

    def check_password(self, name: str, password: bytes) -> bool:
        """True if this is the user's password (rabbit_access_control:check_user_pass_login)."""
        account = self._accounts.get(name)
        return account is not None and account.password.matches(password)

    def in_vhost(self, name: str, vhost: str) -> AuthenticatedUser | None:
        """The user at work in a virtual host; None if he has no permissions there."""
        permissions = self._permissions.get((name, vhost))
        return (
            None if permissions is None else AuthenticatedUser(name, self._accounts[name].tags, permissions)
        )


def _rows(definitions: dict[str, Any], key: str) -> list[dict[str, Any]]:
    rows = definitions.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        msg = f"its {key} are not a list of objects"
        raise ValueError(msg)
    return rows


def _text(row: dict[str, Any], key: str, whose: str) -> str:
    if type(text := row.get(key)) is not str:
        msg = f"{whose} has no {key}"
        raise ValueError(msg)
    return str(text)
