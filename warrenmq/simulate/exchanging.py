"""The steps of wide scripts that bind, unbind and delete exchanges, and publish to them, perhaps beside a change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from warrenmq.errors import NotFound, PreconditionFailed, Returned
from warrenmq.message.properties import Properties
from warrenmq.simulate.messages import MAIN, PromiseBroken
from warrenmq.simulate.publishing import AnyConfirm, Publishing
from warrenmq.simulate.script import Step
from warrenmq.simulate.session import Session
from warrenmq.simulate.topology import Route
from warrenmq.simulate.wires import HEADERS, WIRED_EXCHANGES, WIRES, Wiring


class Exchanging:
    """Changes the session's wiring (wires.py), and publishes to what must be reached by it."""

    def __init__(self, session: Session, publishing: Publishing) -> None:
        self._session = session
        self._publishing = publishing

    # -- steps

    def wire(self, step: Step) -> None:
        session, name = self._session, step.word("which")
        wire = WIRES[name]
        if not session.can_rewire:
            return
        with self._change() as wiring:
            self._exchange(wire.source)
            if wire.destination_type == "exchange":
                self._exchange(wire.destination)
            else:
                session.queue(wire.destination)
            wire.declare(session.broker)
            wiring.wires.add(name)

    def unwire(self, step: Step) -> None:
        session, name = self._session, step.word("which")
        if not session.can_rewire:
            return
        with self._change() as wiring:
            try:
                WIRES[name].remove(session.broker)
            except NotFound:
                if name in wiring.wires:
                    raise
            wiring.remove([name] if name in wiring.wires else [])

    def drop(self, step: Step) -> None:
        session, name = self._session, step.word("exchange")
        if_unused = bool(step.number("if_unused"))
        if not session.can_rewire:
            return
        with self._change() as wiring:
            is_refused = if_unused and wiring.leads_somewhere(name)
            try:
                session.broker.delete_exchange(name, if_unused=if_unused)
            except PreconditionFailed:
                if not is_refused:
                    raise
                return
            except NotFound:
                if name in wiring.exchanges:
                    raise
            if is_refused:
                raise PromiseBroken(
                    "in use", f"exchange {name} was deleted, though it has bindings and must be unused"
                )
            wiring.exchange_gone(name)
            try:
                session.broker.publish(name, "", b"to a deleted exchange", timeout=session.faults.timeout)
            except NotFound:
                return
        raise PromiseBroken("still routed", f"a publish to exchange {name}, which was deleted, was taken")

    def send(self, step: Step) -> None:
        session, to, wiring = self._session, step.word("to"), self._session.wiring
        if to not in wiring.exchanges or wiring.is_changing:
            if not session.can_rewire:
                return
            with self._change():
                self._exchange(to)
        if step.number("beside"):
            self._send_beside(step)
            return
        client = session.client() if step.word("via") == "amqp" else None
        if client is None and step.word("via") == "amqp":
            return
        publisher = MAIN if client is None else client.publisher
        messages = session.messages(step.number("count"), step.number("size"), publisher)
        key, headers = step.word("key"), HEADERS[step.word("headers")]
        for message in messages:
            message.headers = headers
        bodies, properties = [each.body for each in messages], Properties(headers=headers)
        mandatory = client is None and not session.faults.may_block
        queues = wiring.reached(to, key, headers)

        def publish(exchange: str, key: str) -> AnyConfirm:
            if client is not None:
                return client.publish(exchange, key, bodies, persistent=True, properties=properties)
            timeout = session.faults.timeout
            return session.broker.publish_many(
                exchange, key, bodies, properties=properties, mandatory=mandatory, timeout=timeout
            )

        if mandatory and not queues:
            self._check_returned(publish(to, key), to, key)
            return
        confirm = self._publishing.publish_messages(to, messages, publish, Route(to, key, queues))
        if mandatory:
            self._publishing.wait_for(confirm)

    def _check_returned(self, confirm: AnyConfirm, to: str, key: str) -> None:
        try:
            self._publishing.wait_for(confirm)
        except Returned:
            return
        raise PromiseBroken(
            "still routed", f"a publish to {to} with the key {key} was taken, though it matches no binding"
        )

    def _send_beside(self, step: Step) -> None:
        session, to, key = self._session, step.word("to"), step.word("key")
        publisher, broker, headers = session.next_publisher(), session.broker, HEADERS[step.word("headers")]

        def publish() -> None:
            for _ in range(step.number("count")):
                messages = session.messages(1, step.number("size"), publisher)
                messages[0].headers = headers
                was_there = self._is_surely_there(to)
                way = Route(to, key, session.wiring.reached(to, key, headers))
                try:
                    self._publishing.publish_messages(
                        to, messages, lambda exchange, key, body=messages[0].body: broker.publish(  # type: ignore[misc]
                            exchange, key, body, properties=Properties(headers=headers), timeout=session.faults.timeout
                        ), way,
                    )  # fmt: skip
                except NotFound:
                    if was_there and self._is_surely_there(to):
                        raise PromiseBroken(
                            "exchange lost", f"exchange {to} is not there, and was not deleted"
                        ) from None
                    return

        self._publishing.beside(publisher, publish)

    def _is_surely_there(self, exchange: str) -> bool:
        wiring = self._session.wiring
        return exchange in wiring.exchanges and not wiring.is_changing

    # -- changes

    def _exchange(self, name: str) -> None:
        """Declare an exchange that is not there."""
        wiring, exchange = self._session.wiring, WIRED_EXCHANGES[name]
        if name not in wiring.exchanges:
            self._session.broker.declare_exchange(name, exchange.type, auto_delete=exchange.auto_delete)
            wiring.exchanges.add(name)

    @contextmanager
    def _change(self) -> Iterator[Wiring]:
        """Have the wiring be in doubt until the block has ended; if it never does, or with an error, all
        exchanges are deleted later.
        """
        session = self._session
        session.rewiring()
        yield session.wiring
        session.wiring.is_changing = False
