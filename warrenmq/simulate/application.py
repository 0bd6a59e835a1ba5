"""The client application of a simulated run: carries out a script and reports its operations and observations to the model."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.broker.consumer import Delivery
from warrenmq.errors import Blocked, Error, Nacked, NotFound
from warrenmq.message.properties import Properties
from warrenmq.simulate.amqp_client import AmqpClient, AmqpConfirm, AmqpDelivery, ConnectionLost
from warrenmq.simulate.faults import Faults
from warrenmq.simulate.model import MAIN, Message, PromiseBroken, QueueModel, State, body_of
from warrenmq.simulate.script import QUEUES, VERBS
from warrenmq.simulate.topology import ARGUMENTS, EXCHANGES, POLICED, POLICIES, TTL_MS, route

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from warrenmq.broker.broker import QueueHandle
    from warrenmq.settings import Settings
    from warrenmq.simulate.model import Copy
    from warrenmq.simulate.script import Script, Step
    from warrenmq.testing import SimulatedMachine

PATIENCE = 60.0
"""Seconds of virtual time in which every answer must have come; a slow disk holds one for less than a second."""
_TTL_MARGIN = 2.0
"""Seconds after their time within which such messages may still come: a slow disk holds up the queue, or the answer."""
_ARRIVED = 0.3
"""Seconds after which a dead letter is where it goes, unless the disk is full."""
_ACKED = 1.5
"""Seconds after which an ack is on disk: 200 ms, and what a slow disk takes."""
_RELEASED = 3.0
"""Seconds after which a delayed message that is due is where it goes."""


class Application:
    """A client application with one main thread, extra publisher threads where the script asks for them, and a client over AMQP.

    models      what the client knows of each queue that it declared
    held        deliveries that are not settled, in the order in which they came
    is_damaged  a bit was flipped: messages may be lost if the broker tells so
    lost        messages that were lost so
    """

    def __init__(self, machine: SimulatedMachine, settings: Mapping[str, Settings]) -> None:
        self._machine = machine
        self._settings = settings
        self._faults = Faults(machine)
        self._rng = Random(f"amqp {machine.seed}")
        self._broker = machine.open()
        self._amqp: AmqpClient | None = None
        self._exchanges: set[str] = set()
        """Those that were declared."""
        self._bound: set[tuple[str, str]] = set()
        """Queues and the exchanges that they were bound to; bindings last as long as their queue."""
        self._policies: dict[str, str] = {}
        """The policies that hold: queue -> name of the policy in scripts."""
        self._changing = ""
        """The queue whose policy is being changed: the old one or the new one may hold."""
        self._later: list[tuple[Message, tuple[str, ...], float]] = []
        """Delayed messages, the queues that they may come to, and when they are due."""
        self._deleted: set[str] = set()
        """Queues whose deletion has returned, and that were not declared again."""
        self._number = 0
        self._publishers = MAIN
        self._waiting: list[tuple[Confirm | AmqpConfirm, list[Message], dict[str, set[int]]]] = []
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
        self.held: list[tuple[str, Copy, Delivery | AmqpDelivery]] = []
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

    def _client(self) -> AmqpClient | None:
        """The client over AMQP; None while an alarm may hold its connection up, as only a later step clears that."""
        if self._faults.may_block:
            return None
        if self._amqp is None:
            self._publishers += 1
            self._amqp = AmqpClient(self._broker, self._publishers, self._rng)
        return self._amqp

    # -- what an application does

    def _queue(self, name: str) -> QueueHandle:
        """Return a handle to a queue, declaring it on first use."""
        if name not in self.models:
            if name == "d":
                self._queue("dead")
            self._deleted.discard(name)
            queue = self._broker.declare_queue(name, arguments=ARGUMENTS.get(name))
            self.models[name] = model = QueueModel(
                name,
                may_drop=name == "t",
                has_ttl=name == "t",
                is_ordered=name != "dead",
                one_journal=name != "p",
            )
            if name in self._policies:
                model.policy(self._policies[name])
            for message, queues, due_at in self._later:
                if name in queues:
                    model.sent_later(message, due_at, may_be_gone=True)
            return queue
        return self._broker.queue(name)

    def _destination(self, to: str) -> tuple[str, str, tuple[str, ...]]:
        """Return an exchange, a routing key, and the queues that they reach."""
        exchange, key, queues = route(to)
        for name in queues:
            self._queue(name)
        if exchange:
            self._exchange(exchange)
        return exchange, key, queues

    def _exchange(self, name: str) -> None:
        exchange = EXCHANGES[name]
        if exchange.alternate:
            self._exchange(exchange.alternate)
        if name not in self._exchanges:
            self._broker.declare_exchange(name, exchange.type, arguments=exchange.arguments)
            self._exchanges.add(name)
        for queue, key in exchange.bindings:
            if (queue, name) not in self._bound:
                self._queue(queue)
                self._broker.bind(queue, name, key)
                self._bound.add((queue, name))

    def _messages(
        self, count: int, size: int, publisher: int = MAIN, *, persistent: bool = True, priority: int = 0
    ) -> list[Message]:
        first = self._number + 1
        self._number += count
        return [
            Message(n, body_of(n, size), persistent, priority, publisher) for n in range(first, first + count)
        ]

    def _sent(
        self, messages: list[Message], confirm: Confirm | AmqpConfirm, before: dict[str, set[int]]
    ) -> None:
        for message in messages:
            if isinstance(
                confirm, Confirm
            ):  # over AMQP a message may be on its way until its confirm has come
                message.confirm = confirm
        self._waiting.append((confirm, messages, before))

    def _before(self, messages: list[Message], queues: tuple[str, ...]) -> dict[str, set[int]]:
        """Record a message in the model before it is published, as it may arrive even if the call never returns."""
        before = {}
        refused = self._faults.may_refuse or any(
            self.models[each].rejects for each in queues if each in self.models
        )
        self._may_nack |= refused
        for name in queues:
            model = self.models.get(name)
            if model is None:  # deleted since
                continue
            if all(message.persistent for message in messages):
                before[name] = model.settled_so_far()
            for message in messages:
                model.sent(message, self._now(), may_be_refused=refused)
        return before

    def _not_sent(self, messages: list[Message], queues: tuple[str, ...]) -> None:
        for name in queues:
            if name in self.models:
                for message in messages:
                    self.models[name].copies.pop(message.number, None)

    def _publish(
        self, to: str, messages: list[Message], call: Callable[[str, str], Confirm | AmqpConfirm]
    ) -> Confirm | AmqpConfirm:
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
        properties = Properties(priority=priority) if priority else None
        persistent = bool(step.number("persistent"))
        confirm: Confirm | AmqpConfirm
        if step.word("via") == "amqp":
            if (client := self._client()) is None:
                return
            messages = self._messages(
                1, step.number("size"), client.publisher, persistent=persistent, priority=priority
            )
            confirm = self._publish(step.word("to"), messages, lambda exchange, key: client.publish(
                exchange, key, [messages[0].body], persistent=messages[0].persistent, properties=properties
            ))  # fmt: skip
        else:
            messages = self._messages(1, step.number("size"), persistent=persistent, priority=priority)
            confirm = self._publish(step.word("to"), messages, lambda exchange, key: self._broker.publish(
                exchange, key, messages[0].body, persistent=messages[0].persistent, timeout=self._faults.timeout,
                properties=properties,
            ))  # fmt: skip
        if step.number("wait") and not self._faults.may_refuse:
            self._wait_for(confirm)

    def publish_many(self, step: Step) -> None:
        client = None
        if step.word("via") == "amqp" and (client := self._client()) is None:
            return
        messages = self._messages(
            step.number("count"), step.number("size"), client.publisher if client else MAIN
        )
        bodies = [message.body for message in messages]

        def publish(exchange: str, key: str) -> Confirm | AmqpConfirm:
            if client is not None:
                return client.publish(exchange, key, bodies, persistent=True, properties=None)
            return self._broker.publish_many(exchange, key, bodies, timeout=self._faults.timeout)

        self._publish(step.word("to"), messages, publish)

    def later(self, step: Step) -> None:
        self._publishers += 1  # delayed messages come in the order of their times
        (message,) = self._messages(1, step.number("size"), self._publishers)
        exchange, key, queues = self._destination(step.word("to"))
        seconds = step.number("ms") / 1000
        due_at = self._now() + seconds
        # a queue that is deleted meanwhile leaves it to the alternate exchange
        otherwise = tuple(queue for queue, _ in EXCHANGES["rest"].bindings) if exchange == "keys" else ()
        may_come_to = tuple(dict.fromkeys(queues + otherwise))
        self._later.append((message, may_come_to, due_at))
        for name in may_come_to:
            self.models[name].sent_later(message, due_at, may_be_gone=name not in queues)
        confirm = self._broker.publish(
            exchange, key, message.body, delay=seconds, timeout=self._faults.timeout
        )
        self._sent([message], confirm, {})

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

    def _wait_for(self, confirm: Confirm | AmqpConfirm) -> None:
        try:
            confirm.result(timeout=PATIENCE)
        except ConnectionLost:
            pass
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
                for message in messages:
                    message.confirm = confirm
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
        delivery: Delivery | AmqpDelivery | None
        if step.word("via") == "amqp":
            if (client := self._client()) is None:
                return
            delivery = client.get(name)
        else:
            delivery = queue.get()
        self._note_confirms()
        if delivery is None:
            self.models[name].nothing_came()
            if self.models[name].has_ttl and not self._faults.clock_jumped and not self._faults.ever_refused:
                self.models[name].expired_too_soon(self._now() - TTL_MS / 1000)
        else:
            self._take(name, delivery)

    def _take(self, name: str, delivery: Delivery | AmqpDelivery) -> Copy:
        copy = self.models[name].delivered(delivery.body, redelivered=delivery.redelivered)
        if self._now() < copy.due_at and not self._faults.clock_jumped:
            raise PromiseBroken(
                "too soon",
                f"queue {name} delivered message {copy.message.number} {copy.due_at - self._now():.3f} s before its delay was over",
            )
        if copy.has_ttl and copy.came_at is not None and not self._faults.clock_jumped:
            age = self._now() - copy.came_at
            if age > TTL_MS / 1000 + _TTL_MARGIN:
                raise PromiseBroken(
                    "expired",
                    f"queue {name} delivered message {copy.message.number} {age:.1f} s after it had come; messages live {TTL_MS} ms",
                )
        self.held.append((name, copy, delivery))
        return copy

    def ack(self, step: Step) -> None:
        if not self.held:
            return
        name, copy, delivery = self.held.pop(step.number("pick") % len(self.held))
        if isinstance(delivery, Delivery):
            self.models[name].settled(copy, self._now())
            delivery.ack()
            return
        acked, multiple = [(name, copy)], bool(step.number("multiple"))
        if multiple:
            older = [
                each for each in self.held if isinstance(each[2], AmqpDelivery) and each[2].tag < delivery.tag
            ]
            acked += [each[:2] for each in older]
            self.held = [each for each in self.held if each not in older]
        for each, its in acked:
            self.models[each].settled(its, self._now(), over_amqp=True)
        delivery.ack(multiple=multiple)

    def nack(self, step: Step) -> None:
        if self.held:
            name, copy, delivery = self.held.pop(step.number("pick") % len(self.held))
            self.models[name].requeued(copy)
            delivery.nack()

    def reject(self, step: Step) -> None:
        if self.held:
            name, copy, delivery = self.held.pop(step.number("pick") % len(self.held))
            self.models[name].settled(copy, self._now())
            if name == "d" or self.models[name].dead_letters:
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
        if step.word("via") == "amqp":
            if (client := self._client()) is not None:
                self._consume_over_amqp(client, name, step)
            return
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

    def _consume_over_amqp(self, client: AmqpClient, name: str, step: Step) -> None:
        """`consume` over AMQP; what the channel has got when the consumer is cancelled stays on the channel, held."""
        model, unacked, prefetch = self.models[name], 0, step.number("prefetch")
        self._broker.queue(name).info()
        model.asked()
        consumer = client.subscribe(name, prefetch)
        for number in range(1, step.number("count") + 1):
            if (delivery := client.next(0.1)) is None:
                break
            self._note_confirms()
            copy = self._take(name, delivery)
            unacked += 1
            if number % step.number("ack") == 0:
                unacked -= 1
                self.held.pop()
                model.settled(copy, self._now(), over_amqp=True)
                delivery.ack()
        client.cancel(consumer)
        while (delivery := client.next()) is not None:
            self._take(name, delivery)
            unacked += 1
        if prefetch and unacked > prefetch:
            raise PromiseBroken(
                "prefetch",
                f"a consumer of queue {name} with prefetch {prefetch} was given {unacked} messages that it had not acked",
            )

    def hang_up(self, step: Step) -> None:
        """End the client's channel or connection: what it holds goes back to the queues."""
        if self._amqp is None or self._faults.may_block:
            return
        how = step.word("how")
        self._amqp.hang_up(how)
        if how == "channel":
            self._publishers += 1
            self._amqp.publisher = self._publishers
        else:
            self._amqp = None
        self._note_confirms()
        back = [each for each in self.held if isinstance(each[2], AmqpDelivery)]
        self.held = [each for each in self.held if isinstance(each[2], Delivery)]
        for name, copy, _ in back:
            self.models[name].requeued(copy)
        for name in {name: None for name, _, _ in back}:
            self._broker.queue(name).info()  # behind what the channel sent when it ended

    def policy(self, step: Step) -> None:
        name, key = step.word("queue"), step.word("is")
        if key == self._policies.get(name, "none"):
            return
        queue = self._queue(name)
        model = self.models[name]
        if key == "dead":
            if model.may_drop:
                return  # what expires or is dropped later would be dead-lettered, too
            self._queue("dead")
        self._changing = name
        model.policy(key)
        self._may_nack |= model.rejects
        if key == "none":
            self._broker.clear_policy(f"of {name}")
            self._policies.pop(name)
        else:
            self._broker.set_policy(f"of {name}", f"^{name}$", POLICIES[key], apply_to="queues")
            self._policies[name] = key
        self._changing = ""
        model.check_length(queue.info().ready)

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
        except Nacked:
            if not any(self.models[name].rejects for name in queues):
                raise
            before = self._before(messages, queues)
        for message in messages:
            assert isinstance(message.confirm, Confirm)
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
        self._gone(name)
        self._deleted.add(name)
        self._may_nack = True
        self.held = [each for each in self.held if each[0] != name]

    def _gone(self, name: str) -> None:
        """A queue was deleted, and its bindings with it."""
        del self.models[name]
        self._bound = {each for each in self._bound if each[0] != name}

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
            self._close()
            clean = True
        else:
            self._machine.crash(power_cut=False)
            clean = False
        profile = step.word("profile")
        if profile != "same":
            self._machine.settings = self._settings[profile]
        self._open_again(clean=clean)

    def _close(self) -> None:
        """Stop the broker cleanly, and its connection before it."""
        if self._amqp is not None:
            self._amqp.hang_up("connection")
        self._broker.close()

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
        asleep = self._broker.vhost.asleep
        self._machine.wait_until(
            lambda: (sim.is_registered(last) and sim.whereis(last) is not before) or victim in asleep
        )
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
            self._exchanges.clear()
            self._deleted.clear()
        self._open_again()

    def _wait_for_threads(self) -> None:
        """Let other publishers of the application come to their end, and dead letters to their queue."""
        self._machine.sleep(1.0)
        self._dead_letters_arrived()

    def _open_again(self, *, clean: bool = False) -> None:
        self._note_confirms()
        self._waiting.clear()  # the process whose confirms these were has ended
        self._amqp = None
        self._faults.after_end()
        self._broker = self._machine.open()
        for name in sorted(self._deleted):
            self._check_deleted(name)
        self._check_policies()
        self._look_again({name: model.sent_so_far() for name, model in self.models.items()}, clean=clean)

    def _check_policies(self) -> None:
        """Check that the policies that were set are there; one whose change was cut off may hold or not."""
        keys = {json.dumps(definition, sort_keys=True): key for key, definition in POLICIES.items()}
        there = {
            each.name.removeprefix("of "): keys[json.dumps(dict(each.definition), sort_keys=True)]
            for each in self._broker.policies()
        }
        expected = dict(self._policies)
        if self._changing or self.is_damaged:
            for name in [self._changing] if self._changing else POLICED:
                if name in there:
                    expected[name] = there[name]
                else:
                    expected.pop(name, None)
                if name in self.models:
                    self.models[name].policy(there.get(name, "none"))
        self._changing = ""
        if there != expected:
            raise PromiseBroken("policy", f"after a restart the policies {there} hold, and not {expected}")
        self._policies = expected

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
                self._gone(name)
                return []
            if not self.is_damaged:
                raise PromiseBroken(
                    "queue lost", f"queue {name} is not there, though its declare had returned"
                ) from None
            queue = self._broker.declare_queue(name, arguments=ARGUMENTS.get(name))
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
        model.check_length(queue.info().ready)
        for copy in model.copies.values():
            if copy.was_found:
                copy.is_redelivered = True
        return lost

    def _check_dead_letters(self) -> None:
        """Forget which messages were rejected, once they are in no queue."""
        if not self.is_damaged:
            for number in [*self._rejected]:
                if not any(number in model.copies for model in self.models.values()):
                    del self._rejected[number]

    def _finish(self) -> None:
        self._faults.end_all()
        if self._faults.may_refuse:
            raise AssertionError("a fault outlived the script")
        if self._raised:
            raise self._raised[0]
        self._wait_for_threads()
        self.settle()
        self._wait_for_dues()
        self._close()
        self._open_again(clean=True)
        self._broker.close()

    def _wait_for_dues(self) -> None:
        """Let every delayed message come."""
        if self._later and not self._faults.ever_refused and not self._faults.clock_jumped:
            due_at = max(due_at for _, _, due_at in self._later)
            self._machine.sleep(max(0.0, due_at - self._now()) + _RELEASED)
            for model in self.models.values():
                if not model.rejects:
                    model.dues_came()


_WITHOUT_CHECKSUM = (".qi", ".jif", ".idx")
_ENDS = ("crash", "crash_at", "restart", "flip")
_DO: dict[str, Callable[[Application, Step], None]] = {
    verb: getattr(Application, verb, Application.fault) for verb in VERBS
}
