"""The state of a watch in Spark's state store: a LiveStore (drive/live_store.py) of one data directory.

| state | key | value |
| --- | --- | --- |
| `states` | machine, key | the state of a key |
| `about` | name | runs, actors, places, and what waits |
| `found` | what was found | nothing: it was printed |
| `standing` | | a Standing, as JSON |

Spark keeps the changes of a batch with the number of the batch, or none of them.  A read of one key is a call
to the JVM beside the worker (0.2 ms) and one of all keys a few: so `about` is read whole, and a state when a
row speaks of its key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgpack  # type: ignore[import-untyped]
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from warrenmq.replay.drive import state_codec
from warrenmq.replay.drive.live import Standing
from warrenmq.replay.drive.machines import Key, State

STANDING = "standing"


class SparkStore:
    """The store of a batch of one data directory; `open` it first."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._saved = handle.getMapState("states", "machine string, key binary", "state binary")
        self._saved_about = handle.getMapState("about", "name string", "value binary")
        self._found = handle.getMapState("found", "what binary", "is_violation boolean")
        self._standing = handle.getValueState(STANDING, "standing string")
        self._states: dict[tuple[str, Key], State] = {}
        """States that rows of this batch spoke of."""
        self._about: dict[str, Any] = {}
        self.lines: list[str] = []
        """To be printed."""

    def open(self) -> None:
        """Begin with the batch of a directory; Spark has chosen it by then."""
        self._states.clear()
        self.lines.clear()
        self._about = {
            str(name): state_codec.unpack(bytes(value)) for (name,), (value,) in self._saved_about.iterator()
        }

    # states

    def load(self, machine: str, key: Key) -> State | None:
        known = self._states.get((machine, key))
        if known is not None:
            return known
        saved = self._saved.getValue((machine, _packed(key)))
        return None if saved is None else self.keep(machine, key, state_codec.unpack(bytes(saved[0])))

    def save(self, machine: str, key: Key, state: State) -> None:
        self.keep(machine, key, state)
        self._saved.updateValue((machine, _packed(key)), (state_codec.pack(state),))

    def forget(self, machine: str, key: Key) -> None:
        self._states.pop((machine, key), None)
        self._saved.removeKey((machine, _packed(key)))

    def keys(self, machine: str) -> list[Key]:
        saved = [
            tuple(msgpack.unpackb(bytes(key))) for name, key in list(self._saved.keys()) if name == machine
        ]
        return list(dict.fromkeys([*saved, *(key for name, key in self._states if name == machine)]))

    def keep(self, machine: str, key: Key, state: State) -> State:
        self._states[machine, key] = state
        return state

    # anything else

    def get(self, name: str, default: Any) -> Any:
        return self._about.get(name, default)

    def all_about(self, prefix: str) -> Iterator[Any]:
        return (self._about[name] for name in sorted(self._about) if name.startswith(prefix))

    def put(self, name: str, value: Any) -> None:
        self._about[name] = value
        self._saved_about.updateValue((name,), (state_codec.pack(value),))

    # findings

    def report(self, what: tuple[Any, ...], said: str, *, is_violation: bool = False) -> None:
        key = (_packed(what),)
        if not self._found.containsKey(key):
            self._found.updateValue(key, (is_violation,))
            self.put("violations", self.count_violations() + is_violation)
            self.lines.append(said)

    def count_violations(self) -> int:
        count: int = self.get("violations", 0)
        return count

    def keep_standing(self, standing: Standing) -> str:
        """Keep what the runs of the directory have come to, for a watch that goes on; returns it as JSON."""
        told = json.dumps(standing)
        self._standing.update((told,))
        return told


def standing_of(told: str) -> Standing:
    """The standing that `keep_standing` returned."""
    standing = Standing(*json.loads(told))
    return standing._replace(running=tuple((machine, pid) for machine, pid in standing.running))


def _packed(key: Iterable[Any]) -> bytes:
    packed: bytes = msgpack.packb(key)
    return packed
