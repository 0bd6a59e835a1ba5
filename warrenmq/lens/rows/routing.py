"""Rows of exchanges, bindings and routes; and marks, which have captions and no table."""

from __future__ import annotations

from warrenmq.lens.rows.handler import Handlers, words
from warrenmq.lens.scene import ActorNotes, Scene
from warrenmq.lens.tables import BINDING, EXCHANGE, ROUTE, Caption
from warrenmq.trace import events as e
from warrenmq.trace.events import Bound, Ev, ExchangeType
from warrenmq.trace.schema import Row

HANDLERS = Handlers()
_of = HANDLERS.of

_routed = e.Routed.getter("exchange", "routing_key")
_unrouted = e.Unrouted.getter("count", "exchange", "routing_key")
_declared, _deleted = e.ExchangeDeclared.getter("type", "exchange"), e.ExchangeDeleted.getter("exchange")
_ends = e.BindingMade.getter("to", "exchange", "destination", "routing_key")
_mark = e.Mark.getter("text")


_BETWEEN = "\x1f"
"""Stands between the parts of a binding's key."""


def _text(scene: Scene, number: int) -> str:
    return scene.runs[scene.run].texts.get(number, "")


@_of(Ev.MARK)
def _marked(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    return "Mark: {0}.", _text(scene, _mark(row)[0])


def _goes_through(scene: Scene, me: ActorNotes, exchange: str, key: str) -> None:
    scene.set(ROUTE, me.number, (exchange, key, 0))
    scene.move = me.anchor, f"exchange/{exchange}"


@_of(Ev.ROUTED)
def _route(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    exchange, key = (_text(scene, number) for number in _routed(row))
    _goes_through(scene, me, exchange, key)
    if not exchange:
        return "{0} publishes through the default exchange from here on.", me.name
    if not key:
        return "{0} publishes to exchange {1} from here on.", me.name, exchange
    return "{0} publishes to exchange {1} with the key {2} from here on.", me.name, exchange, key


@_of(Ev.UNROUTED)
def _routed_nowhere(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    count, exchange, key = _unrouted(row)
    if exchange:
        _goes_through(scene, me, _text(scene, exchange), _text(scene, key))
    where = _text(scene, exchange) or "the default exchange"
    said = "{0} publishes {n1:message} to {2}, and no queue is bound for that."
    if key:
        said = "{0} publishes {n1:message} to {2} with the key {3}, and no queue is bound for that."
    return said, me.name, count, where, _text(scene, key)


@_of(Ev.EXCHANGE_DECLARED)
def _exchange_there(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    kind, exchange = words(ExchangeType, (declared := _declared(row))[0], "new"), _text(scene, declared[1])
    scene.set(EXCHANGE, exchange, kind)
    return "The {0} exchange {1} is there.", kind, exchange


@_of(Ev.EXCHANGE_DELETED)
def _exchange_gone(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    exchange = _text(scene, _deleted(row)[0])
    scene.set(EXCHANGE, exchange, None)
    for key, binding in list(scene.tables[BINDING].items()):
        if exchange == binding[0] or binding[1::2] == (exchange, Bound.EXCHANGE.words):
            scene.set(BINDING, key, None)
    return "Exchange {0} is deleted.", exchange


@_of(Ev.BOUND, Ev.UNBOUND)
def _binding(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    to, *ends = _ends(row)
    what = words(Bound, to, "what")
    exchange, destination, name = (_text(scene, number) for number in ends)
    binding = exchange, destination, name, what
    scene.set(BINDING, _BETWEEN.join(binding), binding if row.event == Ev.BOUND else None)
    said = (
        "Exchange {0} leads to {1} {2}"
        if row.event == Ev.BOUND
        else "Exchange {0} no longer leads to {1} {2}"
    )
    said += " for the key {3}." if name else "."
    return said, exchange, what, destination, name
