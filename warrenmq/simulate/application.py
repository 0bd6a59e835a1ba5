"""The client application of a simulated run: carries out a script and reports its operations and observations to the model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.errors import Blocked, Error, Nacked, NotFound
from warrenmq.message.properties import Properties
from warrenmq.simulate.faults import Faults
from warrenmq.simulate.model import MAIN, Message, PromiseBroken, QueueModel, State, body_of
from warrenmq.simulate.script import QUEUES, VERBS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warrenmq.actors.sending.confirms import Confirm
    from warrenmq.broker.broker import QueueHandle
    from warrenmq.broker.consumer import Delivery
    from warrenmq.settings import Settings
    from warrenmq.simulate.model import Copy
    from warrenmq.simulate.script import Script, Step
    from warrenmq.testing import SimulatedMachine

PATIENCE = 60.0
"""Seconds of virtual time in which every answer must have come; a slow disk holds one for less than a second."""
TTL_MS = 50
"""How long messages of queue `t` live."""
_TTL_MARGIN = 2.0
"""Seconds after their time within which such messages may still come: a slow disk holds up the queue, or the answer."""
_ARRIVED = 0.3
"""Seconds after which a dead letter is where it goes, unless the disk is full."""
_ACKED = 1.5
"""Seconds after which an ack is on disk: 200 ms, and what a slow disk takes."""
_ARGUMENTS: dict[str, dict[str, object]] = {
    "p": {"x-max-priority": 2},
    "t": {"x-message-ttl": TTL_MS},
    "d": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
}
_BOUND = ("a", "b")
"""Queues that the fanout exchange `all` leads to."""


class Application:
    """A client application with one main thread, and extra publisher threads where the script asks for them.

    models      what the client knows of each queue that it declared
    held        deliveries that are not settled, in the order in which they came
    is_damaged  a bit was flipped: messages may be lost if the broker tells so
    lost        messages that were lost so
    """

    def __init__(self, machine: SimulatedMachine, settings: Mapping[str, Settings]) -> None:
        self._machine = machine
        self._settings = settings
        self._faults = Faults(machine)
        self._broker = machine.open()
        self._has_exchange = False
        self._bound: set[str] = set()
        """Queues that were bound to it; bindings last as long as their queue."""
        self._deleted: set[str] = set()
        """Queues whose deletion has returned, and that were not declared again."""
        self._number = 0
        self._publishers = MAIN
        self._waiting: list[tuple[Confirm, list[Message], dict[str, set[int]]]] = []
        """Confirms that are due: their messages, and per queue what was settled before they were sent."""
        self._being_deleted = ""
        """The queue whose deletion has not returned: it may be there or not."""
        self._may_nack = False
        """A queue was deleted or killed, which may nack what had been sent to it."""
        self._rejected: Counter[int] = Counter()
        self._is_silent = False
        """The bit was in a file whose entries have no checksum, in RabbitMQ's layout: what it cost nothing can tell."""
        self._raised: list[BaseException] = []
        """By other threads of the application."""
        self.models: dict[str, QueueModel] = {}
        self.held: list[tuple[str, Copy, Delivery]] = []
        self.is_damaged = False
        self.lost = 0

    def do(self, script: Script) -> None:
        """Carry out every step, then stop cleanly, restart and check all queues.  Raises PromiseBroken."""
        place = 0
        while place < len(script):
            place = self._do_until_an_end(script, place)
        self._finish()

    def _do_until_an_end(self, script: Script, place: int) -> int:
        """Carry out one step, or a `crash_at` with the steps up to the next end of the broker.  Returns the index of the next step."""
        step = script[place]
        if step.verb != "crash_at":
            self._do(step)
            return place + 1
        end = next((n for n in range(place + 1, len(script)) if script[n].verb in _ENDS), len(script))
        reached = place
        with self._machine.crash_at(step.number("operation"), power_cut=bool(step.number("cut"))) as outage:
            for reached in range(place + 1, end):
                self._do(script[reached])
        if outage.came:
            self._open_again()
            return reached + 1
        return end

    def _do(self, step: Step) -> None:
        if self._raised:
            raise self._raised[0]
        try:
            _DO[step.verb](self, step)
        except Blocked:
            if not self._faults.may_block:
                raise
        except (Nacked, TimeoutError, OSError, Error):
            if not self._faults.may_refuse:
                raise

    # -- what an application does

    def _queue(self, name: str) -> QueueHandle:
        """Return a handle to a queue, declaring it on first use."""
        if name not in self.models:
            if name == "d":
                self._queue("dead")
            self._deleted.discard(name)
            queue = self._broker.declare_queue(name, arguments=_ARGUMENTS.get(name))
            self.models[name] = QueueModel(
                name, expires=name == "t", is_ordered=name != "dead", one_journal=name != "p"
            )
            return queue
        return self._broker.queue(name)

    def _destination(self, to: str) -> tuple[str, str, tuple[str, ...]]:
        """Return an exchange, a routing key, and the queues that they reach."""
        if to != "all":
            self._queue(to)
            return "", to, (to,)
        for name in _BOUND:
            self._queue(name)
        if not self._has_exchange:
            self._broker.declare_exchange("all", "fanout")
            self._has_exchange = True
        for name in _BOUND:
            if name not in self._bound:
                self._broker.bind(name, "all")
                self._bound.add(name)
        return "all", "", _BOUND

    def _messages(
        self, count: int, size: int, publisher: int = MAIN, *, persistent: bool = True, priority: int = 0
    ) -> list[Message]:
        first = self._number + 1
        self._number += count
        return [
            Message(n, body_of(n, size), persistent, priority, publisher) for n in range(first, first + count)
        ]

    def _sent(self, messages: list[Message], confirm: Confirm, before: dict[str, set[int]]) -> None:
        for message in messages:
            message.confirm = confirm
        self._waiting.append((confirm, messages, before))

    def _before(self, messages: list[Message], queues: tuple[str, ...]) -> dict[str, set[int]]:
        """Record a message in the model before it is published, as it may arrive even if the call never returns."""
        before = {}
        for name in queues:
            model = self.models.get(name)
            if model is None:  # deleted since
                continue
            if all(message.persistent for message in messages):
                before[name] = model.settled_so_far()
            for message in messages:
                model.sent(message, self._now(), may_be_refused=self._faults.may_refuse)
        return before

    def _not_sent(self, messages: list[Message], queues: tuple[str, ...]) -> None:
        for name in queues:
            if name in self.models:
                for message in messages:
                    self.models[name].copies.pop(message.number, None)

    def _publish(self, to: str, messages: list[Message], call: Callable[[str, str], Confirm]) -> Confirm:
        exchange, key, queues = self._destination(to)
        before = self._before(messages, queues)
        try:
            confirm = call(exchange, key)
        except Blocked:
            self._not_sent(messages, queues)
            raise
        if self._faults.must_block:
            raise PromiseBroken(
                "alarm", f"a publish to {to} was taken, though the memory alarm has been set for long"
            )
        self._sent(messages, confirm, before)
        return confirm

    def publish(self, step: Step) -> None:
        priority = step.number("priority")
        messages = self._messages(
            1, step.number("size"), persistent=bool(step.number("persistent")), priority=priority
        )
        (message,) = messages
        confirm = self._publish(step.word("to"), messages, lambda exchange, key: self._broker.publish(
            exchange, key, message.body, persistent=message.persistent, timeout=self._faults.timeout,
            properties=Properties(priority=priority) if priority else None,
        ))  # fmt: skip
        if step.number("wait") and not self._faults.may_refuse:
            self._wait_for(confirm)

    def publish_many(self, step: Step) -> None:
        messages = self._messages(step.number("count"), step.number("size"))
        bodies = [message.body for message in messages]
        self._publish(step.word("to"), messages, lambda exchange, key: self._broker.publish_many(
            exchange, key, bodies, timeout=self._faults.timeout
        ))  # fmt: skip

    def burst(self, step: Step) -> None:
        self._destination(step.word("to"))
        self._publishers += 1
        publisher, broker = self._publishers, self._broker

        def publish() -> None:
            try:
                for _ in range(step.number("count")):
                    messages = self._messages(1, step.number("size"), publisher)
                    self._publish(step.word("to"), messages, lambda exchange, key, body=messages[0].body: broker.publish(  # type: ignore[misc]
                        exchange, key, body, timeout=self._faults.timeout
                    ))  # fmt: skip
            except Error:
                pass  # the broker was closed, or killed, under this thread
            except Exception as error:  # noqa: BLE001 - raised by the script's own thread
                self._raised.append(error)

        self._machine.sim.spawn(publish, f"publisher {publisher}")

    def settle(self, _step: Step | None = None) -> None:
        """Wait for every outstanding confirm."""
        if not self._faults.may_refuse:
            for confirm, _, _ in list(self._waiting):
                self._wait_for(confirm)
            self._may_nack = False
        self._note_confirms()

    def _wait_for(self, confirm: Confirm) -> None:
        try:
            confirm.result(timeout=PATIENCE)
        except (Nacked, Blocked):
            if not self._faults.ever_refused and not self._may_nack:
                raise
        except TimeoutError:
            raise PromiseBroken("no confirm", f"a publish had no answer within {PATIENCE:g} s") from None

    def _note_confirms(self) -> None:
        still = []
        for confirm, messages, before in self._waiting:
            if not confirm.done():
                still.append((confirm, messages, before))
            elif confirm.exception() is None:
                for model in self.models.values():
                    model.confirmed(messages, self._now())
                for name, numbers in before.items():
                    if name in self.models:
                        self.models[name].known_gone(numbers)
            else:
                self._uncertain(messages)
        self._waiting = still

    def _uncertain(self, messages: list[Message]) -> None:
        for model in self.models.values():
            for message in messages:
                if (copy := model.copies.get(message.number)) is not None:
                    copy.is_certain = False

    def get(self, step: Step) -> None:
        name = step.word("queue")
        queue = self._queue(name)
        self.models[name].asked()
        delivery = queue.get()
        self._note_confirms()
        if delivery is None:
            self.models[name].nothing_came()
            if name == "t" and not self._faults.clock_jumped and not self._faults.ever_refused:
                self.models[name].expired_too_soon(self._now() - TTL_MS / 1000)
        else:
            self._take(name, delivery)

    def _take(self, name: str, delivery: Delivery) -> Copy:
        copy = self.models[name].delivered(delivery.body, redelivered=delivery.redelivered)
        if name == "t" and copy.came_at is not None and not self._faults.clock_jumped:
            age = self._now() - copy.came_at
            if age > TTL_MS / 1000 + _TTL_MARGIN:
                raise PromiseBroken(
                    "expired",
                    f"queue t delivered message {copy.message.number} {age:.1f} s after it had come; messages live {TTL_MS} ms",
                )
        self.held.append((name, copy, delivery))
        return copy

    def ack(self, step: Step) -> None:
        if self.held:
            name, copy, delivery = self.held.pop(step.number("pick") % len(self.held))
            self.models[name].settled(copy, self._now())
            delivery.ack()

    def nack(self, step: Step) -> None:
        if self.held:
            name, copy, delivery = self.held.pop(step.number("pick") % len(self.held))
            self.models[name].requeued(copy)
            delivery.nack()

    def reject(self, step: Step) -> None:
        if self.held:
            name, copy, delivery = self.held.pop(step.number("pick") % len(self.held))
            self.models[name].settled(copy, self._now())
            if name == "d":
                self._dead_lettered(copy.message)
            delivery.reject(requeue=False)

    def _dead_lettered(self, message: Message) -> None:
        self._rejected[message.number] += 1
        dead = self.models.get("dead")
        if dead is None:  # deleted: the message goes nowhere
            return
        if self._rejected[message.number] > 1:
            dead.repeated.add(message.number)
        dead.dead_lettered(message)

    def consume(self, step: Step) -> None:
        name = step.word("queue")
        queue = self._queue(name)
        queue.info()  # consumers are served before an earlier nack is handled: the order of mail in RabbitMQ
        self.models[name].asked()
        unacked, prefetch = 0, step.number("prefetch")
        with queue.consume(prefetch=prefetch) as consumer:
            for number in range(1, step.number("count") + 1):
                delivery = consumer.get(timeout=0.1)
                self._note_confirms()
                if delivery is None:
                    break
                copy = self._take(name, delivery)
                unacked += 1
                if prefetch and unacked > prefetch:
                    raise PromiseBroken(
                        "prefetch",
                        f"a consumer of queue {name} with prefetch {prefetch} was given {unacked} messages that it had not acked",
                    )
                if number % step.number("ack") == 0:
                    unacked -= 1
                    self.held.pop()
                    self.models[name].settled(copy, self._now())
                    delivery.ack()
        for copy in self.models[name].copies.values():
            if copy.state is State.READY and copy.is_redelivered is False:
                copy.is_redelivered = None  # the message may have been in delivery to the consumer

    def tx(self, step: Step) -> None:
        if self._faults.may_block:
            return  # the end of a transaction waits for its confirms, which wait for a later step
        exchange, key, queues = self._destination(step.word("to"))
        messages = self._messages(step.number("count"), step.number("size"))

        class RolledBack(Exception):
            """Raised inside a transaction's block to roll it back."""

        try:
            with self._broker.tx():
                before: dict[str, set[int]] = {}
                for message in messages:
                    confirm = self._broker.publish(exchange, key, message.body, timeout=self._faults.timeout)
                    message.confirm = confirm
                if not step.number("commit"):
                    raise RolledBack
                before = self._before(messages, queues)
        except RolledBack:
            return
        for message in messages:
            assert message.confirm is not None
            self._waiting.append((message.confirm, [message], before))

    def purge(self, step: Step) -> None:
        name = step.word("queue")
        queue = self._queue(name)
        self.models[name].asked()
        self.models[name].purging()
        queue.purge()
        self.models[name].purged()

    def delete(self, step: Step) -> None:
        name = step.word("queue")
        self._queue(name)
        self._being_deleted = name
        self._broker.delete_queue(name)
        self._being_deleted = ""
        del self.models[name]
        self._bound.discard(name)
        self._deleted.add(name)
        self._may_nack = True
        self.held = [each for each in self.held if each[0] != name]

    def sleep(self, step: Step) -> None:
        seconds = step.number("ms") / 1000
        self._machine.sleep(min(seconds, _ARRIVED))
        self._note_confirms()
        if seconds >= _ARRIVED:
            self._dead_letters_arrived()
            self._machine.sleep(seconds - _ARRIVED)

    def _dead_letters_arrived(self) -> None:
        if "dead" in self.models and not self._faults.ever_refused:
            self.models["dead"].dead_letters_arrived()

    def _now(self) -> float:
        """Virtual seconds; no jump of the wall clock changes them."""
        return self._machine.sim.monotonic_ns() / 1e9

    def fault(self, step: Step) -> None:
        self._faults.do(step)
        if self._faults.may_refuse:
            for model in self.models.values():
                model.may_refuse()

    # -- ends of processes

    def restart(self, step: Step) -> None:
        if not self._faults.may_refuse:
            self.settle()
            self._wait_for_threads()
            self._broker.close()
            clean = True
        else:
            self._machine.crash(power_cut=False)
            clean = False
        profile = step.word("profile")
        if profile != "same":
            self._machine.settings = self._settings[profile]
        self._open_again(clean=clean)

    def crash(self, step: Step) -> None:
        if not self._faults.ever_refused:
            for model in self.models.values():
                model.acks_are_safe(self._now() - _ACKED)
        self._machine.crash(power_cut=bool(step.number("cut")))
        self._open_again()

    def kill(self, step: Step) -> None:
        victim = step.word("victim")
        if self._faults.may_refuse:
            return  # a broker cannot start on a disk that refuses writes
        one_queue = victim in QUEUES
        if one_queue and victim not in self.models:
            return
        name = queue_name(victim) if one_queue else victim
        last = name if one_queue else "vhost_process"
        sim = self._machine.sim
        if not sim.is_registered(name) or not sim.is_registered(last):
            return  # it is being restarted already
        names = (victim,) if one_queue else tuple(self.models)
        sent = {each: self.models[each].surely_sent() for each in names}
        self._may_nack = True
        before = sim.whereis(last)
        self._note_confirms()
        sim.kill(sim.whereis(name))
        self._machine.wait_until(lambda: sim.is_registered(last) and sim.whereis(last) is not before)
        for (
            _,
            _,
            settled,
        ) in self._waiting:  # a successor's confirm says nothing of acks that its predecessor had
            for each in names:
                settled.pop(each, None)
        self._faults.after_kill()
        self._look_again(sent, clean=False, is_safe=not one_queue)

    def flip(self, step: Step) -> None:
        self._machine.crash(power_cut=False)
        if (path := self._faults.flip(step.word("file"), step.number("bit"))) is not None:
            self.is_damaged = True
            self._is_silent |= path.endswith(_WITHOUT_CHECKSUM)
            self._bound.clear()
            self._deleted.clear()
        self._open_again()

    def _wait_for_threads(self) -> None:
        """Let other publishers of the application come to their end, and dead letters to their queue."""
        self._machine.sleep(1.0)
        self._dead_letters_arrived()

    def _open_again(self, *, clean: bool = False) -> None:
        self._note_confirms()
        self._waiting.clear()  # the process whose confirms these were has ended
        self._faults.after_end()
        self._broker = self._machine.open()
        for name in sorted(self._deleted):
            self._check_deleted(name)
        self._look_again({name: set(model.copies) for name, model in self.models.items()}, clean=clean)

    def _check_deleted(self, name: str) -> None:
        try:
            self._broker.queue(name)
        except NotFound:
            return
        raise PromiseBroken(
            "queue returned", f"queue {name} is there after a restart, though it had been deleted"
        )

    def _look_again(self, sent: Mapping[str, set[int]], *, clean: bool, is_safe: bool = True) -> None:
        """Read these queues whole, compare with what must be there, and put all back; `sent`: what each was sent before its end;
        `is_safe`: not only one queue ended.
        """
        self._note_confirms()
        self.held = [each for each in self.held if each[0] not in sent]
        lost: set[int] = set()
        for name, before in sent.items():
            lost.update(self._found(name, before, clean=clean, is_safe=is_safe))
        self._check_dead_letters()
        if lost and not self._is_silent and not self._broker.stats().damage:
            raise PromiseBroken(
                "lost without a word",
                f"after damage messages {sorted(lost)} are gone, and stats() names no damage",
            )
        self.lost += len(lost)

    def _found(self, name: str, sent: set[int], *, clean: bool, is_safe: bool) -> list[int]:
        model = self.models[name]
        try:
            queue = self._broker.queue(name)
        except NotFound:
            if name == self._being_deleted:
                del self.models[name]
                self._bound.discard(name)
                return []
            if not self.is_damaged:
                raise PromiseBroken(
                    "queue lost", f"queue {name} is not there, though its declare had returned"
                ) from None
            queue = self._broker.declare_queue(name, arguments=_ARGUMENTS.get(name))
        deliveries = list(iter(queue.get, None))
        lost = model.found(
            [(each.body, each.redelivered) for each in deliveries],
            sent,
            clean=clean,
            is_safe=is_safe,
            may_lose=self.is_damaged,
        )
        for delivery in reversed(deliveries):
            delivery.nack()
        for copy in model.copies.values():
            if copy.was_found:
                copy.is_redelivered = True
        return lost

    def _check_dead_letters(self) -> None:
        """Check that each message rejected from queue `d` is in `d` or in `dead`, unless it was settled there."""
        if "d" not in self.models or "dead" not in self.models or self.is_damaged:
            return
        source, dead = self.models["d"], self.models["dead"]
        for number in [*self._rejected]:
            if number not in dead.copies and number not in source.copies:
                del self._rejected[number]

    def _finish(self) -> None:
        self._faults.end_all()
        if self._faults.may_refuse:
            raise AssertionError("a fault outlived the script")
        if self._raised:
            raise self._raised[0]
        self._wait_for_threads()
        self.settle()
        self._broker.close()
        self._open_again(clean=True)
        self._broker.close()


_WITHOUT_CHECKSUM = (".qi", ".jif", ".idx")
_ENDS = ("crash", "crash_at", "restart", "flip")
_DO: dict[str, Callable[[Application, Step], None]] = {
    verb: getattr(Application, verb, Application.fault) for verb in VERBS
}
