"""The fold of a trace is what the broker says of itself: file summary, message index, flying counters, cache, queues.

Lives with kills of actors and a power cut run in the simulation.  Whenever a store or a queue has handled a message it is asked for its
state; afterwards the rows that were there at that time are folded, and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.broker.lives import long_life
from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from warrenmq.actors.queue.process import QueueProcess
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.actors.store.client import MsgStoreClient
from warrenmq.actors.store.process import MsgStore
from warrenmq.broker.broker import Broker
from warrenmq.errors import Nacked
from warrenmq.lens.fold import Folding
from warrenmq.lens.tables import ACTOR, CACHE, ENTRY, FILE, FLYING, PUB, QUEUE, REC, STORE
from warrenmq.message_store.tables import trace_number
from warrenmq.queue_index.v2.index import QueueIndexV2
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.trace.events import State
from warrenmq.trace.reader import open_memory


class Said(NamedTuple):
    """The state that an actor reported when all rows before `t` were written."""

    run: int
    t: int
    kind: str
    name: str
    state: dict[str, Any]


class Watched:
    """Asks the actors of a host for their state whenever they have handled something."""

    def __init__(self, host: SimulatedHost, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = host
        self.said: list[Said] = []
        self.sending: set[str] = set()
        """Queues in the middle of sending to a store: they have counted, and not told the trace yet."""
        self.confirms: list[tuple[int, Confirm]] = []
        """(run, confirm) of each publish."""
        publish = Broker.publish

        def published(broker: Broker, *args: Any, **options: Any) -> Confirm:
            confirm = publish(broker, *args, **options)
            self.confirms.append((self.host.runs - 1, confirm))
            return confirm

        monkeypatch.setattr(Broker, "publish", published)
        self._wrap(monkeypatch, MsgStore, "_carry_out", self.of_store)
        self._wrap(monkeypatch, QueueProcess, "mailbox_empty", self.of_queue)
        send = MsgStoreClient.send

        def watched(client: MsgStoreClient) -> None:
            self.sending.add(client._owner)
            send(client)
            self.sending.discard(client._owner)

        monkeypatch.setattr(MsgStoreClient, "send", watched)

    def _wrap(
        self, monkeypatch: pytest.MonkeyPatch, kind: Any, name: str, state: Callable[[Any], Any]
    ) -> None:
        handled = getattr(kind, name)

        def watched(actor: Any) -> None:
            handled(actor)
            if actor.trace is not None and self.host.sim.is_registered(actor.name):
                self.said.append(
                    Said(self.host.runs - 1, actor.trace.now(), kind.__name__, actor.name, state(actor))
                )

        monkeypatch.setattr(kind, name, watched)

    def answers(self) -> list[tuple[int, int, int]]:
        """(publishes, confirmed, nacked) as the application heard it, by run."""
        heard = [Counter() for _ in range(self.host.runs)]
        for run, confirm in self.confirms:
            try:
                confirm.result(0)
                heard[run]["confirmed"] += 1
            except Nacked:
                heard[run]["nacked"] += 1
            heard[run]["sent"] += 1
        return [(each["sent"], each["confirmed"], each["nacked"]) for each in heard]

    def of_store(self, store: MsgStore) -> dict[str, Any]:
        state = store._state
        tables = state.tables
        busy = {file for job in state.gc.jobs for file in job.files}
        owner = {cref: client.owner for cref, client in state.clients.items()}
        return {
            "current": tables.files.current,
            "busy": busy,
            "sending": set(self.sending),
            "files": {
                number: (row.file_size, row.valid_total_size, row.locked)
                for number, row in tables.files.rows.items()
                if number not in busy
            },
            "records": {
                trace_number(msg_id): (refs, file, offset, size)
                for msg_id, (refs, file, offset, size) in tables.index.items()
                if refs and file not in busy
            },
            "flying": {
                (trace_number(msg_id), owner[cref]): value
                for cref, row in tables.flying._rows.items()
                for msg_id, value in row.items()
                if cref in owner
            },
            "cached": {trace_number(msg_id) for msg_id in tables.cache._bodies},
        }

    def of_queue(self, queue: QueueProcess) -> dict[str, Any]:
        vq = queue._state.vq
        return {
            "ready": vq.ready,
            "unacked": vq.unacked,
            "next": vq.next_seq_id,
            "memory": vq.memory(),
            "untold": bool(vq.paging_rows.unwritten),
            "unwritten": unwritten(vq.index),
        }


def unwritten(index: Any) -> tuple[Any, Any]:
    """Sequence ids of which an index has written no publish yet, and no ack; of version 1 how many they are."""
    if isinstance(index, QueueIndexV2):
        return sorted(index._buffer), sorted(index._acks)
    return index._journal.buffered_publishes, index._journal.buffered_acks


class Picture:
    """The fold's picture, in the terms of the actors' reports."""

    def __init__(self, folding: Folding) -> None:
        self.folding = folding
        self.tables = folding.tables
        self.unknown: set[str] = set()
        """Queues in which a recovery brought back messages that were done with: the trace does not say which ones."""

    def number(self, msg: int) -> int:
        return self.folding.number_of(msg)

    def queue(self, name: str) -> dict[str, Any]:
        entries = [value for key, value in self.tables[ENTRY].items() if str(key).rpartition("/")[0] == name]
        states = Counter(value[1] for value in entries)
        places = Counter(State(value[2]).name.lower() for value in entries if value[1] == "ready")
        return {
            "ready": states["ready"],
            "unacked": states["unacked"],
            "next": self.tables[QUEUE][name][1],
            "unwritten": self.unwritten(name),
            "memory": {state: places[state] for state in ("alpha", "beta", "gamma", "delta")},
        }

    def unwritten(self, name: str) -> tuple[list[int], list[int]]:
        publishes, acks = [], []
        for seq in sorted({*self.folding._scene.queues[name].dirty}):
            found = self.tables[ENTRY].get(f"{name}/{seq}")
            if found is not None and not found[3]:
                (acks if found[1] in {"acked", "dropped"} else publishes).append(seq)
        return publishes, acks

    def answers(self) -> tuple[int, ...]:
        """(publishes, confirmed, nacked) of the applications."""
        return tuple(sum(each[at] for each in self.tables[PUB].values()) for at in range(3))

    def files(self, store: str) -> dict[int, tuple[int, int, bool]]:
        return {
            int(str(key)[2:]): (size, size - garbage, state in {"locked", "compacting"})
            for key, (size, _, _, garbage, state) in self.tables[FILE].items()
            if str(key)[0] == store and state != "asleep"
        }

    def records(self, store: str) -> dict[int, tuple[int, int, int, int]]:
        found = {}
        for key, (message, size, references, why) in self.tables[REC].items():
            which, file, offset = str(key).split("/")
            if which == store and references and why != "asleep":
                found[message] = references, int(file), int(offset), size
        return found

    def flying(self, store: str) -> dict[tuple[int, str], int]:
        found = {}
        for key, value in self.tables[FLYING].items():
            which, message, queue = str(key).split("/", 2)
            if which == store:
                found[int(message), queue] = value
        return found

    def cached(self, store: str) -> set[int]:
        return {int(str(key)[2:]) for key in self.tables[CACHE] if str(key)[0] == store}


def compare_queue(picture: Picture, said: Said) -> None:
    state, name = dict(said.state), said.name.removeprefix("queue:")
    if any(
        not value[0] and str(key).rpartition("/")[0] == name for key, value in picture.tables[ENTRY].items()
    ):
        picture.unknown.add(name)
    shown = picture.queue(name)
    memory = state.pop("memory")
    if isinstance(state["unwritten"][0], int):
        shown["unwritten"] = tuple(map(len, shown["unwritten"]))
    state["memory"] = {name: getattr(memory, name) for name in ("alpha", "beta", "gamma", "delta")}
    if state.pop("untold"):  # the rows of what it paged follow
        del state["memory"], shown["memory"]
    assert shown == state, (said.name, picture.folding.number)


def compare_store(picture: Picture, said: Said) -> None:
    state, store = said.state, said.name.removeprefix("msg_store_")[0]
    where, busy, sending = (said.name, picture.folding.number), state["busy"], state["sending"]
    assert picture.tables[STORE][store][1] == state["current"], where
    assert {n: row for n, row in picture.files(store).items() if n not in busy} == state["files"], where
    records = {message: row for message, row in picture.records(store).items() if row[1] not in busy}
    assert records == {picture.number(msg): row for msg, row in state["records"].items()}, where
    shown = {key: value for key, value in picture.flying(store).items() if key[1] not in sending}
    told = {(picture.number(m), q): v for (m, q), v in state["flying"].items() if q not in sending}
    # SEND names the first message of a batch; which other transient ones are in it is not told
    if store == "t":
        assert shown.items() <= told.items(), where
        assert sending or picture.cached(store) <= set(map(picture.number, state["cached"])), where
        return
    assert shown.items() <= told.items(), where
    assert {queue for _, queue in told.keys() - shown.keys()} <= picture.unknown, where
    if not sending:
        assert picture.cached(store) == set(map(picture.number, state["cached"])), where


@pytest.mark.parametrize("profile", BOTH_PROFILES)
@pytest.mark.parametrize("seed", [1, 4, 8])
def test_the_picture_is_what_the_broker_says_of_itself(seed, profile, monkeypatch):
    host = SimulatedHost(seed, BOTH_PROFILES[profile])
    watched = Watched(host, monkeypatch)
    try:
        long_life(host)
    finally:
        host.close()
    trace = open_memory(host.sink.files())
    folding = Folding(trace.catalog.runs)
    picture = Picture(folding)
    rows = rows_in_order(trace)
    coming = next(rows, None)
    compared = Counter()
    answers: dict[int, tuple[int, ...]] = {}
    for said in watched.said:
        while coming is not None and (coming[0], coming[1].t) < (said.run, said.t):
            folding.step(*coming)
            answers[coming[0]] = picture.answers()
            coming = next(rows, None)
        (compare_queue if said.kind == "QueueProcess" else compare_store)(picture, said)
        compared[said.kind] += 1
    assert min(compared["QueueProcess"], compared["MsgStore"]) > 100
    for run, row in [coming, *rows]:
        folding.step(run, row)
        answers[run] = picture.answers()
    assert [*answers.values()] == watched.answers()
    assert any(nacked for _, _, nacked in watched.answers())
    assert not any(kind == "Nacks" for _, kind, *_ in picture.tables[ACTOR].values())
