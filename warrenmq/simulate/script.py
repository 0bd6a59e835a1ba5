"""Scripts: the steps of one simulated run, as a text with one step a line.

    publish to=a size=300
    get queue=a
    ack pick=0
    crash cut=1
    get queue=a

VERBS lists every verb with its arguments; an argument that a line leaves out has the default that stands
there.  Lines that are empty or begin with # are comments.  A script says what is done; in which order actors
run meanwhile is up to the seed of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from warrenmq.errors import CallerError
from warrenmq.simulate.topology import MORE_POLICIES, POLICED, POLICIES, ROUTES
from warrenmq.simulate.wires import HEADERS, KEYS, WIRED_EXCHANGES, WIRES

QUEUES = ("a", "b", "p", "t", "d", "dead")
"""Two plain queues, one with priorities, one whose messages expire, one that dead-letters what is rejected,
and where that goes.
"""
MORE_QUEUES = ("l", "x", "e", "s")
"""For wide scripts: one with a delivery limit, a transient one, one that is deleted when it is not used, and
one with a single active consumer.
"""
TARGETS = (*QUEUES[:-1], *ROUTES)
"""A publish goes to a queue, or to an exchange before `a` and `b` (topology.py)."""
VIA = ("app", "amqp")
"""Which client does it: the application that has the broker in its process, or one over AMQP."""
VICTIMS = ("a", "b", "msg_store_persistent", "msg_store_transient", "queue_sup", "vhost_process", "vhost_sup")
"""Processes that a fault can kill: those of two queues, and those that RabbitMQ has by these names."""
FILES = ("definitions.log", "msg_store_persistent", "queues", "journal", ".qi", ".qs", ".rdq")
"""Parts of the names of files in which a bit can flip."""
WHOSE = ("any", "collector", "reader")
"""Disk operations that a fault is aimed at: any, those of the stores' collectors (in the middle of a
compaction or a combine), or reads of others.
"""
FLAG = (0, 1)


class Argument(NamedTuple):
    """An argument of a verb: its default, and the values that random scripts give it."""

    default: int | str
    choices: tuple[int | str, ...]
    """A word must be one of these."""
    more: tuple[int | str, ...] = ()
    """More choices, which wide scripts alone draw: others are as they were before there were any."""
    least: int = 0
    most: int = 10**12 - 1
    """A number is between these: with others a client's call is refused, or the model's patience too short."""


class Verb(NamedTuple):
    """A verb of scripts: its description, its arguments, and its weight in random scripts."""

    does: str
    arguments: Mapping[str, Argument]
    weight: int
    fault: str = ""
    """The kind of fault that it is, for `--faults`; empty for what an application does."""
    is_wide: bool = False
    """Wide scripts alone draw it."""


def _count(default: int, *choices: int) -> Argument:
    """The argument that says how many messages."""
    return Argument(default, choices, least=1, most=10_000)


_TO = Argument("a", TARGETS, MORE_QUEUES)
_QUEUE = {"queue": Argument("a", QUEUES, MORE_QUEUES)}
_PICK = {"pick": Argument(0, (0, 1, 2, 5))}
_VIA = {"via": Argument("app", VIA)}
_ALL = {"multiple": Argument(0, (0, 0, 0, 1))}
_SIZE = Argument(10, (0, 10, 90, 91, 150, 899, 900, 901, 1500), most=1_000_000)
_PREFETCH = {"prefetch": Argument(3, (1, 3, 20), least=1, most=65_535)}
_EACH = {"ack": Argument(1, (1, 2, 3), least=1)}
_DAY_MS = 86_400_000
_OF = {"of": Argument("any", WHOSE)}

VERBS: dict[str, Verb] = {
    "publish": Verb(
        "publish one message; `wait` for its confirm",
        {"to": _TO, "size": _SIZE, "persistent": Argument(1, (1, 1, 1, 0)), "priority": Argument(0, (0, 1, 2), most=255),
         "wait": Argument(0, (0, 0, 1)), **_VIA}, 30,
    ),
    "publish_many": Verb("publish `count` messages in one call", {"to": _TO, "count": _count(5, 2, 5, 20), "size": _SIZE, **_VIA}, 5),
    "later": Verb("publish one message with a delay", {"to": _TO, "size": _SIZE, "ms": Argument(30, (1, 30, 300, 2_000), most=_DAY_MS)}, 2),
    "burst": Verb("publish `count` messages from a second thread, beside what follows",
                  {"to": _TO, "count": _count(5, 1, 3, 8), "size": _SIZE, "persistent": Argument(1, (1, 1, 0))}, 4),
    "settle": Verb("wait for all confirms that are due", {}, 6),
    "get": Verb("get one message, and hold it", {**_QUEUE, **_VIA}, 20),
    "ack": Verb("ack the held message at this place; with `multiple` also those that its AMQP channel delivered before", {**_PICK, **_ALL}, 14),
    "nack": Verb("put the held message at this place back", _PICK, 5),
    "reject": Verb("reject the held message at this place for good", _PICK, 4),
    "consume": Verb("consume up to `count` messages, ack each `ack`-th, and cancel; the others stay held",
                    {**_QUEUE, "count": _count(5, 1, 3, 10), **_PREFETCH, **_EACH, **_VIA}, 6),
    "hang_up": Verb("end the AMQP client's channel or connection, or cut its socket", {"how": Argument("channel", ("channel", "connection", "socket"))}, 3),
    "tx": Verb("publish `count` messages in a transaction, and `commit` it or roll it back",
               {"to": _TO, "count": _count(3, 1, 3), "size": _SIZE, "commit": Argument(1, (0, 1, 1))}, 3),
    "purge": Verb("purge a queue", _QUEUE, 2),
    "delete": Verb("delete a queue", _QUEUE, 1),
    "policy": Verb("set a policy for a queue, change it, or clear it", {"queue": Argument("a", POLICED, ("p",)), "is": Argument("length", (*POLICIES, "none"), (*MORE_POLICIES,))}, 2),
    "sleep": Verb("let virtual time pass", {"ms": Argument(30, (1, 30, 300, 2_000, 14_800, 15_000, 70_000), most=_DAY_MS)}, 8),
    "restart": Verb("close the broker and open it again, perhaps as another profile; with settle=0 in the middle of what goes on",
                    {"profile": Argument("same", ("same", "classic", "modern")), "settle": Argument(1, FLAG)}, 2),
    "kill": Verb("kill one process of the broker, or that of a queue by an error of the disk: in whatever it does next, or in its next sync",
                 {"victim": Argument("a", VICTIMS, ("p", "d", *MORE_QUEUES)), "how": Argument("kill", ("kill", "error", "sync"))}, 4, "kill"),
    "crash": Verb("end the broker's process, or with `cut` the machine's power", {"cut": Argument(1, FLAG)}, 3, "crash"),
    "crash_at": Verb("the same in the middle of what follows, before so many operations of the disk",
                     {"operation": Argument(5, (1, 2, 3, 5, 8, 13, 21, 34, 55)), "cut": Argument(1, FLAG), **_OF}, 5, "crash"),
    "unordered": Verb("from here on writes to one file may reach the platter in any order", {}, 1, "unordered"),
    "full": Verb("the disk has so many bytes left", {"room": Argument(0, (0, 100, 1000, 5000))}, 2, "full"),
    "space": Verb("the disk has space again", {}, 2, "full"),
    "slow": Verb("so many operations of the disk on, one takes so long",
                 {"ms": Argument(50, (5, 50, 500), most=500), "operation": Argument(1, (1, 2, 3, 5, 8)), **_OF}, 3, "slow"),
    "pressure": Verb("the memory is used up, or with high=2 so much of it that queues page; free again with high=0", {"high": Argument(1, (0, 1, 2))}, 2, "memory"),
    "clock": Verb("the wall clock jumps, forwards or backwards with `back`", {"seconds": Argument(3600, (1, 3600)), "back": Argument(0, FLAG)}, 2, "clock"),
    "peek": Verb("look at the first `n` messages, which stay", {**_QUEUE, "n": Argument(3, (1, 3, 50))}, 6, is_wide=True),
    "take": Verb("get one message without an ack, or consume all in that way",
                 {**_QUEUE, "how": Argument("get", ("get", "get", "consume")), **_VIA}, 8, is_wide=True),
    "settle_many": Verb("settle the held message at this place, and all older ones of its consumer or channel",
                        {**_PICK, "how": Argument("ack", ("ack", "nack", "reject"))}, 6, is_wide=True),
    "recover": Verb("have all that the AMQP channel holds put back", {}, 3, is_wide=True),
    "retry": Verb("give the held message at this place back for another attempt, after so long", {**_PICK, "ms": Argument(30, (0, 30, 2_000), most=_DAY_MS)}, 5, is_wide=True),
    "expiring": Verb("publish one message that lives 50 ms", {"to": _TO, "size": _SIZE}, 3, is_wide=True),
    "copied": Verb("publish one message to a queue, and by its header CC to another", {"to": Argument("a", QUEUES[:3]), "cc": Argument("b", ("b", "p")), "size": _SIZE}, 4, is_wide=True),
    "channel_tx": Verb("in a transaction of an AMQP channel publish `count` messages, and get one and ack it; `commit` it or roll it back",
                       {"to": _TO, "count": _count(3, 1, 3), "size": _SIZE, **_QUEUE, "commit": Argument(1, (0, 1, 1))}, 5, is_wide=True),
    "declare": Verb("declare a queue that is there once more: as it is, or as something else, which has to be refused",
                    {**_QUEUE, "how": Argument("same", ("same", "other")), **_VIA}, 3, is_wide=True),
    "audit": Verb("when nothing is on its way, compare a queue's counts, length and dead letters; with `fill` publish one more, which it must take or refuse",
                  {**_QUEUE, "fill": Argument(0, FLAG)}, 6, is_wide=True),
    "delete_if": Verb("delete a queue if it is `empty` or `unused`, or one that has a consumer (`used`), which has to be refused",
                      {**_QUEUE, "how": Argument("empty", ("empty", "unused", "used"))}, 3, is_wide=True),
    "wire": Verb("bind a queue or an exchange to an exchange", {"which": Argument("tops_a", (*WIRES,))}, 10, is_wide=True),
    "unwire": Verb("unbind one", {"which": Argument("tops_a", (*WIRES,))}, 3, is_wide=True),
    "drop": Verb("delete an exchange, with its bindings or only if it has none",
                 {"exchange": Argument("tops", (*WIRED_EXCHANGES,)), "if_unused": Argument(0, FLAG)}, 2, is_wide=True),
    "send": Verb("publish `count` messages to such an exchange, perhaps from a second thread `beside` what follows",
                 {"to": Argument("tops", (*WIRED_EXCHANGES,)), "key": Argument("a.b", KEYS), "headers": Argument("none", (*HEADERS,)),
                  "count": _count(1, 1, 1, 5), "size": _SIZE, "beside": Argument(0, FLAG), **_VIA}, 12, is_wide=True),
    "rivals": Verb("publish `count` messages to two consumers, of which the second has priority, and ack each `ack`-th",
                   {**_QUEUE, "count": _count(3, 1, 3, 10), "size": _SIZE, **_PREFETCH, **_EACH}, 5, is_wide=True),
    "linger": Verb("kill a process while a consumer of the queue is there, which the next one must serve",
                   {**_QUEUE, "count": _count(3, 1, 3, 10), "size": _SIZE, "victim": Argument("queue", ("queue", *VICTIMS[2:]))}, 3, "kill", is_wide=True),
    "own": Verb("use an exclusive queue over AMQP, and `keep` it or end the connection, with which it goes",
                {"count": _count(3, 1, 3), "size": _SIZE, "how": Argument("connection", ("connection", "socket", "keep"))}, 3, is_wide=True),
    "brief": Verb("consume from a queue that is deleted with its last consumer",
                  {"count": _count(3, 1, 3), "size": _SIZE, **_PREFETCH, "ack": Argument(1, FLAG)}, 2, is_wide=True),
    "flip": Verb("end the process and flip one bit in a file of this kind", {"file": Argument(".rdq", FILES), "bit": Argument(0, (0, 77, 1_003, 9_999, 54_321))}, 2, "flip"),
}  # fmt: skip
"""Every verb of a script."""

FAULTS = tuple(dict.fromkeys(verb.fault for verb in VERBS.values() if verb.fault))
"""The kinds of faults."""
HONEST_FAULTS = tuple(fault for fault in FAULTS if fault != "flip")
"""Faults after which every promise holds; a flipped bit may cost messages, which then has to be told."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a script: a verb with its arguments."""

    verb: str
    arguments: tuple[tuple[str, int | str], ...] = ()
    """All of the verb's, in the order of VERBS."""

    def __str__(self) -> str:
        known = VERBS[self.verb].arguments
        told = [f"{name}={value}" for name, value in self.arguments if value != known[name].default]
        return " ".join([self.verb, *told])

    def word(self, name: str) -> str:
        """The value of an argument that is a word."""
        return str(dict(self.arguments)[name])

    def number(self, name: str) -> int:
        """The value of an argument that is a number."""
        return int(dict(self.arguments)[name])


Script = tuple[Step, ...]


def step(verb: str, **given: int | str) -> Step:
    """Make a step with these arguments; the others have their defaults."""
    return Step(
        verb, tuple((name, given.get(name, each.default)) for name, each in VERBS[verb].arguments.items())
    )


def parse(text: str) -> Script:
    """Parse a script; raises CallerError with the wrong line and the expected form."""
    steps = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            steps.append(_parse(words))
        except ValueError as error:
            raise CallerError(f"line {number} of the script, {line.strip()!r}: {error}.") from None
    return tuple(steps)


def _parse(words: list[str]) -> Step:
    verb, *rest = words
    if verb not in VERBS:
        raise ValueError(f"{verb!r} is no verb; the verbs are {', '.join(VERBS)}")
    given: dict[str, int | str] = {}
    for word in rest:
        name, is_given, value = word.partition("=")
        known = VERBS[verb].arguments
        if name not in known or not is_given:
            names = ", ".join(f"{each}=" for each in known)
            raise ValueError(
                f"{word!r} is no argument of {verb}"
                + (f", which takes {names}" if names else ", which takes none")
            )
        given[name] = _value(name, known[name], value)
    return step(verb, **given)


def _value(name: str, argument: Argument, text: str) -> int | str:
    if isinstance(argument.default, int):
        if not (text.isdecimal() and argument.least <= int(text) <= argument.most):
            raise ValueError(
                f"{name} must be a number from {argument.least} to {argument.most:,}, not {text!r}"
            )
        return int(text)
    words = (*argument.choices, *argument.more)
    if text not in words:
        raise ValueError(f"{name} must be one of {', '.join(map(str, dict.fromkeys(words)))}, not {text!r}")
    return text


def write(script: Iterable[Step]) -> str:
    """Format a script as a text that `parse` reads back."""
    return "".join(f"{each}\n" for each in script)
