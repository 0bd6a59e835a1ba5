"""Permissions of a user in a virtual host: patterns of names, and of routing keys in topic exchanges
(rabbit_auth_backend_internal).

    {"user": "app", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}           of names
    {"user": "app", "vhost": "/", "exchange": "amq.topic", "write": "^{username}[.]", "read": ".*"}   of routing keys

Patterns are regular expressions that are searched for; an empty one matches nothing.  Those of routing keys
hold for publishes to a topic exchange (write) and for bindings of it (read), and only where there are some:
without any, every key is allowed.  In them {username} and {vhost} stand for the user's name and the virtual
host's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from warrenmq.patterns import Pattern

ADMINISTRATOR, IMPERSONATOR = "administrator", "impersonator"
"""Tags: may ask for the state of the broker, may publish in another user's name."""
TRUSTED_USER = "local"
"""The name, in the log, of a client on the directory's own socket that gave none."""
_REMEMBERED = 256
"""Names of exchanges and queues whose permission a connection remembers."""


class Permissions(NamedTuple):
    """The permissions of a user in a virtual host."""

    configure: Pattern
    write: Pattern
    read: Pattern


class TopicPermissions(NamedTuple):
    """The permissions of a user for the routing keys of an exchange."""

    write: Pattern
    read: Pattern
    texts: tuple[str, str]
    """The two as they were written."""


class AuthenticatedUser:
    """A user who is logged in to a virtual host (the protocol: context.User)."""

    def __init__(
        self,
        name: str,
        tags: frozenset[str],
        permissions: Callable[[], Permissions | None],
        topics: Callable[[str], TopicPermissions | None],
        max_channels: Callable[[], int | None],
    ) -> None:
        """`topics` returns the permissions for routing keys of an exchange, if there are any."""
        self.name = name
        self.tags = tags
        self.max_channels = max_channels
        """The most channels that all his connections may have together; None = no limit."""
        self._look_up = permissions
        self._topics = topics
        self._known: tuple[Permissions | None, tuple[Callable[[str], bool], ...]] = None, (_refused,) * 3
        """The last permissions, and what they allow; in one, as the channels of a connection ask at the same time."""

    def may_configure(self, name: str) -> bool:
        """Declare and delete the exchange or queue `name`."""
        return self._current()[0](name)

    def may_write(self, name: str) -> bool:
        """Publish to the exchange, bind the queue or (as destination) the exchange `name`."""
        return self._current()[1](name)

    def may_read(self, name: str) -> bool:
        """Consume from the queue, bind to the exchange `name`."""
        return self._current()[2](name)

    def may_write_topic(self, exchange: str, key: str) -> bool:
        """Publish to the topic exchange with this routing key."""
        return (found := self._topics(exchange)) is None or found.write.found_in(key)

    def may_read_topic(self, exchange: str, key: str) -> bool:
        """Bind to the topic exchange with this routing key."""
        return (found := self._topics(exchange)) is None or found.read.found_in(key)

    def _current(self) -> tuple[Callable[[str], bool], ...]:
        permissions = self._look_up()
        known, may = self._known
        if permissions is not known:
            may = (_refused,) * 3 if permissions is None else tuple(map(_remembered, permissions))
            self._known = permissions, may
        return may


def _refused(_name: str) -> bool:
    return False


def trusted_user(name: str) -> AuthenticatedUser:
    """A client on the directory's own socket, who may do everything: the files are open to it, too."""
    everything = Pattern("")
    permissions = Permissions(everything, everything, everything)
    return AuthenticatedUser(
        name, frozenset([ADMINISTRATOR, IMPERSONATOR]), lambda: permissions, lambda _: None, lambda: None
    )


def _remembered(pattern: Pattern) -> Any:
    return lru_cache(_REMEMBERED)(pattern.found_in)


def name_permissions(user: str, vhost: str, texts: Iterable[str]) -> Permissions:
    """Compile the patterns of a permission; ValueError for one that is no regular expression."""
    whose = f"permission of {user!r} in {vhost!r}"
    return Permissions(*(
        _compiled(text, f"the {key} {whose}") for key, text in zip(Permissions._fields, texts, strict=True)
    ))  # fmt: skip


def topic_permissions(user: str, vhost: str, exchange: str, write: str, read: str) -> TopicPermissions:
    """Compile the patterns of a topic permission; ValueError for one that is no regular expression."""
    whose = f"topic permission of {user!r} for exchange {exchange!r} in {vhost!r}"

    def compiled(key: str, text: str) -> Pattern:
        filled = text.replace("{username}", re.escape(user)).replace("{vhost}", re.escape(vhost))
        return _compiled(filled, f"the {key} {whose}")

    return TopicPermissions(compiled("write", write), compiled("read", read), (write, read))


def _compiled(text: str, what: str) -> Pattern:
    try:
        return Pattern(text or "^$")
    except ValueError as why:
        raise ValueError(f"{what} is no regular expression: {why}") from why
