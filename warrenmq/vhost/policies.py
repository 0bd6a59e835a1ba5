"""Policies and limits of a virtual host: what they say, whom they hold for, and how they join a queue's own arguments.

They are runtime parameters, as in RabbitMQ (rabbit_policy, rabbit_policies, rabbit_vhost_limit):

    component          name        value
    policy             its name    {"pattern", "definition", "priority", "apply-to"}
    operator_policy    its name    the same
    vhost-limits       limits      {"max-connections", "max-queues"}

One policy and one operator policy hold for a queue or an exchange: of those whose pattern is found in its name that with the
highest priority (of equal ones the first by name).

    key                                          joins with the operator's   with the argument of the declaration
    message-ttl, expires, max-length(-bytes),
    delivery-limit                               the smaller                 the smaller
    dead-letter-exchange, -routing-key,
    overflow, alternate-exchange                 the policy's                the argument's
    queue-mode, queue-version                    the policy's                the argument's; when the queue is started next
    ha-..., queue-master-locator, -leader-locator,
    max-in-memory-...                            kept and shown, without effect: there is one node
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from warrenmq.directory.definitions import QueueRecord
from warrenmq.errors import PreconditionFailed
from warrenmq.patterns import Pattern
from warrenmq.queue.arguments import MAX_EXPIRY, OVERFLOWS, QUEUE_MODES, QUEUE_VERSIONS, QueueArguments

POLICY, OPERATOR_POLICY, LIMITS = "policy", "operator_policy", "vhost-limits"
COMPONENTS = (POLICY, OPERATOR_POLICY, LIMITS)
LIMITS_NAME = "limits"
VHOST_LIMITS = ("max-connections", "max-queues")
APPLY_TO = {
    "all": ("queue", "exchange"), "queues": ("queue",), "classic_queues": ("queue",), "exchanges": ("exchange",),
    "quorum_queues": (), "streams": (),
}  # fmt: skip
"""apply-to -> the kinds that a policy may hold for."""


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: type(value) in (str, int) and value in values


def _text(value: Any) -> bool:
    return type(value) is str


_FOR_EVER = 1 << 63
_KEYS: dict[str, tuple[str, Callable[[Any], bool], str]] = {
    "message-ttl": ("message_ttl", _whole(0, MAX_EXPIRY), "message TTL"),
    "expires": ("expires", _whole(1, MAX_EXPIRY), "queue expiry"),
    "max-length": ("max_length", _whole(0, _FOR_EVER), "maximum length"),
    "max-length-bytes": ("max_length_bytes", _whole(0, _FOR_EVER), "maximum length in bytes"),
    "delivery-limit": ("delivery_limit", _whole(0, _FOR_EVER), "delivery limit"),
    "dead-letter-exchange": ("dead_letter_exchange", _text, "dead letter exchange name"),
    "dead-letter-routing-key": ("dead_letter_routing_key", _text, "dead letter routing key"),
    "overflow": ("overflow", _one_of(*OVERFLOWS), "overflow value"),
    "queue-mode": ("queue_mode", _one_of(*QUEUE_MODES), "queue-mode value"),
    "queue-version": ("queue_version", _one_of(*QUEUE_VERSIONS), "queue version"),
    "alternate-exchange": ("", _text, "alternate exchange name"),
}
"""Key -> the field of QueueArguments, what it may be, and what errors call it."""
_SMALLER = ("message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit")
_WITHOUT_EFFECT = (
    "queue-master-locator",
    "queue-leader-locator",
    "max-in-memory-length",
    "max-in-memory-bytes",
)
_CLASSIC_MIRRORS = "ha-"
_LONGEST_SAID = 200
"""Characters of what a caller gave that an error repeats."""


class Policy(NamedTuple):
    """A policy, or with `operator` an operator policy."""

    name: str
    pattern: str
    definition: Mapping[str, Any]
    apply_to: str = "all"
    priority: int = 0
    operator: bool = False
    refused: str = ""
    """Why it holds for nothing: an earlier release took its pattern, and this one refuses it.  Empty for one that holds."""

    @property
    def component(self) -> str:
        """The component of the runtime parameter that it is."""
        return OPERATOR_POLICY if self.operator else POLICY

    @property
    def value(self) -> dict[str, Any]:
        """The value of that parameter."""
        return {
            "pattern": self.pattern, "definition": dict(self.definition), "priority": self.priority,
            "apply-to": self.apply_to,
        }  # fmt: skip

    @classmethod
    def of(cls, component: str, name: str, value: Mapping[str, Any]) -> Policy:
        """The policy that a checked parameter is."""
        return cls(
            name, value["pattern"], value["definition"], value.get("apply-to", "all"), value.get("priority", 0),
            component == OPERATOR_POLICY,
        )  # fmt: skip


def check_parameter(component: str, name: str, value: Any) -> None:
    """PreconditionFailed, in RabbitMQ's words, unless this is a parameter that is understood here."""
    if component not in COMPONENTS:
        raise _invalid(f"component {component} not found")
    if not isinstance(value, dict):
        raise _invalid(f"{component} {name} is no object")
    if component == LIMITS:
        for key, limit in value.items():
            if key not in VHOST_LIMITS or type(limit) is not int:
                raise _invalid(
                    f"{key} = {limit!r} is no limit: known are {' and '.join(VHOST_LIMITS)}, whole numbers"
                )
        return
    for key in ("pattern", "definition"):
        if key not in value:
            raise _invalid(f'Key "{key}" not found in {name}')
    if unknown := sorted(value.keys() - {"pattern", "definition", "priority", "apply-to", "name", "vhost"}):
        raise _invalid(f"Unrecognised terms {_short(unknown)} in policy")
    pattern, apply_to = value["pattern"], value.get("apply-to", "all")
    try:
        Pattern(pattern if type(pattern) is str else "")
    except ValueError as why:
        raise _invalid(f"pattern should be regular expression but is invalid: {_short(why)}") from None
    if type(pattern) is not str:
        raise _invalid(f"pattern should be binary, actually was {_short(repr(pattern))}")
    if type(value.get("priority", 0)) is not int:
        raise _invalid(f"priority should be number, actually was {_short(repr(value['priority']))}")
    if type(apply_to) is not str or apply_to not in APPLY_TO:
        known = ", ".join(APPLY_TO)
        raise _invalid(f"apply-to should be one of {known}, actually was {_short(repr(apply_to))}")
    _check_definition(value["definition"], operator=component == OPERATOR_POLICY)


def _check_definition(definition: Any, *, operator: bool) -> None:
    if type(definition) is not dict or not definition:
        raise _invalid("no policy provided")
    unknown = []
    for key, value in definition.items():
        if key in _WITHOUT_EFFECT or key.startswith(_CLASSIC_MIRRORS):
            known = not operator or key in _WITHOUT_EFFECT[2:]
        elif known := key in _KEYS and (not operator or key in _SMALLER):
            _, valid, words = _KEYS[key]
            if not valid(value):
                raise _invalid(f"{_short(repr(value))} is not a valid {words}")
        if not known:
            unknown.append((key, value))
    if unknown:
        kind = "operator policy" if operator else "policy"
        raise _invalid(f"{_short(repr(unknown))} are not recognised {kind} settings")


def _short(said: object) -> str:
    """Text of the caller's in an error: cut, as it may be of any length."""
    text = str(said)
    return text if len(text) <= _LONGEST_SAID else f"{text[: _LONGEST_SAID - 3]}..."


def _invalid(reason: str) -> PreconditionFailed:
    return PreconditionFailed(f"Validation failed: {reason}", reply_text=f"Validation failed\n\n{reason}\n")


@dataclass(frozen=True, slots=True)
class Applied:
    """The policies that hold for one queue or exchange."""

    policy: Policy | None = None
    operator: Policy | None = None

    def definition(self) -> dict[str, Any]:
        """The effective definition (rabbit_policy:merge_operator_definitions)."""
        found = {} if self.policy is None else dict(self.policy.definition)
        for key, value in () if self.operator is None else self.operator.definition.items():
            found[key] = min(found[key], value) if key in _SMALLER and key in found else value
        return found


class Policies:
    """The policies of a virtual host; immutable."""

    def __init__(self, parameters: Mapping[tuple[str, str], Any]) -> None:
        policies = [
            Policy.of(component, name, value)
            for (component, name), value in parameters.items()
            if component in (POLICY, OPERATOR_POLICY)
        ]
        self._all = []
        self._ordered = []
        """Policies that hold, each with its pattern and what kind of thing it is for."""
        for policy in sorted(policies, key=lambda policy: (-policy.priority, policy.name)):
            try:
                self._ordered.append((policy, Pattern(policy.pattern), APPLY_TO[policy.apply_to]))
                self._all.append(policy)
            except ValueError as why:
                self._all.append(policy._replace(refused=str(why)))

    def __iter__(self) -> Iterator[Policy]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def of(self, kind: str, name: str) -> Applied:
        """The policies of a "queue" or an "exchange"."""
        found: dict[bool, Policy] = {}
        for policy, pattern, kinds in self._ordered:
            if policy.operator not in found and kind in kinds and pattern.found_in(name):
                found[policy.operator] = policy
        return Applied(found.get(False), found.get(True))

    def queue_arguments(self, record: QueueRecord, vhost: str) -> QueueArguments:
        """A queue's arguments, joined with its policies.  PreconditionFailed for an argument that is wrong."""
        arguments = QueueArguments.of(record.arguments, record.name, vhost)
        if not self._ordered:
            return arguments
        return joined(arguments, record.arguments, self.of("queue", record.name).definition())

    def alternate(self, exchange: str) -> str | None:
        """The alternate exchange that a policy gives an exchange."""
        if not self._ordered:
            return None
        return self.of("exchange", exchange).definition().get("alternate-exchange")


def joined(
    arguments: QueueArguments, declared: Mapping[str, Any], definition: Mapping[str, Any]
) -> QueueArguments:
    """Arguments with the effective definition of the policies; `declared` are the arguments as they were declared.

    | policy         | argument             | joined     |
    | -------------- | -------------------- | ---------- |
    | max-length 5   | none                 | 5          |
    | max-length 5   | 3                    | 3          |
    | max-length 5   | 9                    | 5          |
    | overflow a     | none                 | a          |
    | overflow a     | b                    | b          |
    """
    changes: dict[str, Any] = {}
    for key, value in definition.items():
        if key not in _KEYS or not (field := _KEYS[key][0]):
            continue
        if f"x-{key}" not in declared:
            changes[field] = value
        elif key in _SMALLER:
            changes[field] = min(value, getattr(arguments, field))
    return replace(arguments, **changes) if changes else arguments


def without_effect(definition: Mapping[str, Any]) -> list[str]:
    """The keys that are kept and change nothing here."""
    return [key for key in definition if key in _WITHOUT_EFFECT or key.startswith(_CLASSIC_MIRRORS)]
