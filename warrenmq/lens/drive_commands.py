"""The commands of a Drive beside `turn` and `settle`: calls of applications, and faults of the machine.

    declare    queue, exchange, type             declares a queue, or an exchange of that type
    bind       queue, exchange, key
    publish    queue | exchange, key; size, count, persistent
    get        queue                             the delivery is held until it is acked or rejected
    consume    queue, prefetch                   the consumer holds what it is sent
    take       queue                             the next delivery of its consumer
    ack        queue                             the oldest delivery that is held
    reject     queue, requeue
    sleep      ms                                virtual time passes
    mark       text
    open       -                                 a broker in a new process, which recovers
    close      -                                 the broker stops in order
    kill       actor                             one actor ends where it stands
    crash      -                                 the process ends where it stands, as by SIGKILL
    power_cut  operations                        the machine goes dark: now, or before the n-th disk operation from now on that writes
    disk_full  free                              so many bytes are free from now on; -1 = plenty
    bit_flip   path, offset, bit                 one bit of a file rots; without a path the seed chooses
    memory     used                              bytes that the machine has in use (the watermark is a share of 16 GiB)

`publish`, `declare` and the like are done by a task of the application, which takes turns as actors do.  A
command gives turns, as the seed has it, until its task is done; with "hold": true it gives none, and the
reader chooses each.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from inspect import signature
from random import Random
from typing import Any

from warrenmq.broker.broker import Broker
from warrenmq.broker.consumer import Consumer
from warrenmq.broker.delivery import Delivery
from warrenmq.errors import CallerError, Error
from warrenmq.testing import SimulatedMachine
from warrenmq.testing.machine import DATA

LARGEST = 1 << 20
MOST_MESSAGES = 1_000
_PUBLISH_TIMEOUT = 1.0
"""Seconds of virtual time that a publish waits while an alarm is set."""
_ROTTEN = (".rdq", ".qi", ".qs", ".idx", ".jif")

_APPLICATION: dict[str, dict[str, type]] = {
    "declare": {"queue": str, "exchange": str, "type": str},
    "bind": {"queue": str, "exchange": str, "key": str},
    "publish": {"queue": str, "exchange": str, "key": str, "size": int, "count": int, "persistent": bool},
    "get": {"queue": str},
    "consume": {"queue": str, "prefetch": int},
    "take": {"queue": str},
    "ack": {"queue": str},
    "reject": {"queue": str, "requeue": bool},
    "sleep": {"ms": int},
    "mark": {"text": str},
    "open": {},
    "close": {},
}
_MACHINE: dict[str, dict[str, type]] = {
    "kill": {"actor": str},
    "crash": {},
    "power_cut": {"operations": int},
    "disk_full": {"free": int},
    "bit_flip": {"path": str, "offset": int, "bit": int},
    "memory": {"used": int},
}
COMMANDS: Mapping[str, Mapping[str, type]] = {**_APPLICATION, **_MACHINE}
"""Command -> its arguments and their types."""


class Commands:
    """Carries out commands on a simulated broker; keeps its consumers and unacked deliveries."""

    def __init__(
        self,
        machine: SimulatedMachine,
        finish: Callable[[Callable[[], bool]], bool],
        turn: Callable[[], None],
    ) -> None:
        """`finish(is_done)` runs turns until a task is done and records them as choices; `turn` runs one that
        is not recorded.
        """
        self._machine = machine
        self._finish = finish
        self._turn = turn
        self._broker: Broker | None = None
        self._held: dict[str, deque[Delivery]] = defaultdict(deque)
        self._consumers: dict[str, Consumer] = {}
        self._published = 0
        self._flips = 0
        self._opening = False

    @property
    def is_open(self) -> bool:
        """True while a broker is open."""
        return self._broker is not None

    def take_over(self, broker: Broker | None) -> None:
        """Continue with the broker that a script has opened."""
        self._broker = broker

    def carry_out(
        self, name: str, arguments: Mapping[str, Any], accepted: Callable[[], None], *, finish: bool = True
    ) -> dict[str, Any]:
        """Carry out a command; returns {"result": ...} or {"error": ...}, {} with `hold`.  `accepted` is
        called once the command is valid.
        """
        given = dict(arguments)
        hold = given.pop("hold", False)
        types = COMMANDS.get(name)
        if types is None:
            raise CallerError(
                f"there is no command {name!r}; there are: turn, settle, {', '.join(COMMANDS)}."
            )
        for key, value in given.items():
            if key not in types:
                raise CallerError(f"{name} has no argument {key!r}; it has: {', '.join(types) or 'none'}.")
            if type(value) is not types[key]:
                raise CallerError(f"{key} is {value!r}; give a value of type {types[key].__name__}.")
        do: Callable[..., Any] = getattr(self, f"_{name}")
        needed = [each.name for each in signature(do).parameters.values() if each.default is each.empty]
        if lacking := [each for each in needed if each not in given]:
            raise CallerError(f"{name} needs {' and '.join(lacking)}.")
        if name in _MACHINE:
            self._require(name, **given)
            accepted()
            return {"result": do(**given)}
        if name == "open":
            if self._broker is not None:
                raise CallerError("the broker is open; crash, power_cut or close ends it.")
            if self._opening:
                raise CallerError("the broker is being opened; give it turns.")
            self._opening = True
        elif self._broker is None:
            raise CallerError("there is no broker now; open starts one.")
        accepted()
        return self._by_task(do, given, finish=finish and not hold)

    def _by_task(self, do: Callable[..., Any], given: dict[str, Any], *, finish: bool) -> dict[str, Any]:
        answer: dict[str, Any] = {}

        def task() -> None:
            try:
                answer["result"] = do(**given)
            except (Error, OSError, ValueError, TypeError) as error:
                answer["error"] = str(error)

        self._machine.sim.spawn(task, "application", as_outside=True)
        if finish and not self._finish(lambda: bool(answer)):
            answer = {"error": "it is not done yet; give more turns."}
        return answer

    def _require(
        self,
        name: str,
        actor: str | None = None,
        path: str | None = None,
        offset: int | None = None,
        **_: Any,
    ) -> None:
        if actor is not None and not self._machine.sim.is_registered(actor):
            raise CallerError(f"there is no actor {actor!r} now.")
        if path is not None and path not in self._files():
            raise CallerError(f"there is no file {path!r}; there are: {', '.join(self._files())}.")
        if name == "bit_flip" and not self.with_messages():
            raise CallerError("there is no file with messages yet.")
        if offset is not None:
            size = self._machine.disk.size(f"{DATA}/{path}") if path is not None else 0
            if not 0 <= offset < size:
                raise CallerError(f"there is no byte {offset} in {path or 'a file that is not named'}.")

    # -- the application

    @property
    def _now(self) -> Broker:
        if self._broker is None:
            raise CallerError("there is no broker now; open starts one.")
        return self._broker

    def _declare(self, queue: str = "", exchange: str = "", type: str = "direct") -> str:
        if exchange:
            return self._now.declare_exchange(exchange, type).name
        return self._now.declare_queue(queue or "orders").name

    def _bind(self, queue: str, exchange: str, key: str = "") -> None:
        self._now.bind(queue, exchange, key)

    def _publish(
        self, queue: str = "", exchange: str = "", key: str = "", size: int = 100, count: int = 1,
        *, persistent: bool = True,
    ) -> int:  # fmt: skip
        if not 0 <= size <= LARGEST or not 0 < count <= MOST_MESSAGES:
            raise ValueError(f"size is at most {LARGEST} and count at most {MOST_MESSAGES}")
        for _ in range(count):
            self._published += 1
            body = bytes([65 + self._published % 26]) * size
            self._now.publish(
                exchange,
                key or ("" if exchange else queue),
                body,
                persistent=persistent,
                timeout=_PUBLISH_TIMEOUT,
            )
        return count

    def _get(self, queue: str) -> int | None:
        return self._hold(queue, self._now.queue(queue).get())

    def _consume(self, queue: str, prefetch: int = 10) -> None:
        self._consumers[queue] = self._now.queue(queue).consume(prefetch)

    def _take(self, queue: str) -> int | None:
        if queue not in self._consumers:
            raise ValueError(f"nothing consumes from {queue!r}; consume begins that")
        return self._hold(queue, self._consumers[queue].get(0))

    def _hold(self, queue: str, delivery: Delivery | None) -> int | None:
        if delivery is None:
            return None
        self._held[queue].append(delivery)
        return len(delivery.body)

    def _ack(self, queue: str) -> None:
        self._oldest(queue).ack()

    def _reject(self, queue: str, *, requeue: bool = True) -> None:
        self._oldest(queue).reject(requeue)

    def _oldest(self, queue: str) -> Delivery:
        if not self._held[queue]:
            raise ValueError(f"no delivery of {queue!r} is held; get or take one first")
        return self._held[queue].popleft()

    def _sleep(self, ms: int) -> None:
        self._machine.sleep(ms / 1000)

    def _mark(self, text: str) -> None:
        self._machine.mark(text)

    def _open(self) -> None:
        try:
            self._broker = self._machine.open()
        finally:
            self._opening = False

    def _close(self) -> None:
        broker, self._broker = self._now, None
        self._forget()
        broker.close()

    # -- the machine

    def _kill(self, actor: str) -> None:
        sim = self._machine.sim
        self._machine.mark(f"{actor} is killed")
        sim.kill(sim.whereis(actor))

    def _crash(self) -> None:
        self._machine.mark("the process is killed")
        self._machine.crash(power_cut=False)
        self._forget()

    def _power_cut(self, operations: int = 0) -> None:
        if operations > 0:
            with self._machine.crash_at(operations, power_cut=True) as outage:
                while self._machine.sim.can_run():
                    self._turn()
            if outage.came:
                self._machine.mark("the power was cut")
                self._forget()
                return
        self._machine.mark("the power is cut")
        self._machine.crash(power_cut=True)
        self._forget()

    def _forget(self) -> None:
        """Drop the consumers and unacked deliveries of a broker that has ended."""
        self._broker, self._opening = None, False
        self._held.clear()
        self._consumers.clear()

    def _disk_full(self, free: int = 0) -> None:
        self._machine.mark("the disk is full" if free >= 0 else "there is room on the disk")
        self._machine.disk.free_bytes = None if free < 0 else free

    def _bit_flip(self, path: str | None = None, offset: int | None = None, bit: int = 0) -> str:
        disk = self._machine.disk
        self._flips += 1
        draw = Random(f"rot {self._machine.seed} {self._flips}")
        if path is None:
            path = draw.choice(self.with_messages())
        size = disk.size(f"{DATA}/{path}")
        offset = draw.randrange(size) if offset is None and size else offset or 0
        self._machine.mark(f"a bit of {path[-100:]} rots")
        disk.flip_bit(f"{DATA}/{path}", offset, bit & 7)
        return f"{path} at byte {offset}"

    def _memory(self, used: int) -> None:
        self._machine.mark(f"{used:,} bytes of memory are in use")
        self._machine.memory.used_bytes = used

    def with_messages(self) -> list[str]:
        """The files that hold messages or index entries."""
        size = self._machine.disk.size
        return [path for path in self._files() if path.endswith(_ROTTEN) and size(f"{DATA}/{path}")]

    def _files(self) -> list[str]:
        prefix = f"{DATA}/"
        return [path.removeprefix(prefix) for path in self._machine.disk.paths() if path.startswith(prefix)]
