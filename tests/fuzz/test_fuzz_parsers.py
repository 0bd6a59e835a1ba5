"""Readers of single files on bytes that were real once: they end, and raise nothing but CorruptFile.

How long this runs: tests/support/damage.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.erlang import golden_messages
from tests.support import golden
from tests.support.damage import OF_BYTES, apply, damages, examples, no_hanging
from tests.support.own_directories import directory
from tests.support.simulated import EVERY_KIND
from warrenmq.directory.definitions import Declared
from warrenmq.directory.layout import read_segment_entry_count
from warrenmq.erlang import (
    amqp10,
    amqp_table,
    consult,
    definitions,
    dets,
    disk_log,
    ets,
    mnesia,
    rabbit_message,
    term,
)
from warrenmq.errors import CorruptFile
from warrenmq.inspect import message, queue_names
from warrenmq.message import extent
from warrenmq.message import stored as stored_message
from warrenmq.message.properties import Properties
from warrenmq.queue_index.v1.reader import read_journal, read_segment
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.vhost import queue_folders


def in_golden(end: str, *cases: str) -> list[bytes]:
    return [
        data
        for case in cases or golden.CASES
        for path, data in golden.files(case).items()
        if path.endswith(end) and data
    ][:8]


def in_own(end: str) -> list[bytes]:
    made = (directory(kind, stop) for kind in EVERY_KIND for stop in ("closed", "killed"))
    return [data for each in made for path, data in each.files.items() if path.endswith(end) and data]


def terms() -> list[bytes]:
    """Stored messages of RabbitMQ, of every kind that the manifests have."""
    found = []
    for case in ("c05-v2-clean-a", "c08-types-vhosts-a", "c09-torn-v1-a"):
        for queue, messages in golden_messages.queues(case):
            for each in messages[:4]:
                data, name = golden_messages.record(case, queue, each)
                found.append(golden_messages.stored_term(data, name)[0])
    return [each for each in found if len(each) < 20_000]


def everything(found: Iterable[Any]) -> None:
    for _ in found:
        pass


def all_starts(data: bytes) -> None:
    for at in range(min(len(data), 200)):
        end = extent.stored_end(data, at)
        assert end is None or at < end <= len(data)


PARSERS: dict[str, tuple[Callable[[bytes], Any], Callable[[], list[bytes]]]] = {
    "term": (term.decode, terms),
    "rabbit_message": (rabbit_message.decode, terms),
    "rabbit_message, padded": (lambda data: rabbit_message.decode(data, zero_padded=True), terms),
    "message of either kind": (lambda data: message.decode(data, "", 0, 0), lambda: [*terms(), *ours()]),
    "stored_message": (stored_message.decode, lambda: [*ours()]),
    "extent": (all_starts, lambda: [*terms(), *ours()]),
    "properties": (amqp_table.properties_of_bytes, lambda: [b"\x10\x00\x02", *terms()]),
    "amqp10": (lambda data: _unless(amqp10.BadAmqp, amqp10.sections, data), lambda: [b"\x00\x53\x75\xa0\x03abc", *terms()]),
    "recovery.dets": (dets.read_recovery_terms, lambda: in_golden("recovery.dets")),
    "ETS dump": (lambda data: everything(ets.file_summaries(data)), lambda: in_golden("file_summary.ets")),
    "consult": (consult.consult, lambda: [*in_golden(".config"), *in_golden("clean.dot"), b'{a, [1, "b", <<"c">>, #{}]}.']),
    "disk_log": (lambda data: everything(disk_log.items(data)), lambda: [*in_golden(".DCD"), *in_golden(".LOG")]),
    "mnesia": (
        lambda data: mnesia.tables(["rabbit_durable_queue"], {"rabbit_durable_queue.DCD": data, "LATEST.LOG": data}),
        lambda: [*in_golden(".DCD"), *in_golden(".LOG")],
    ),
    "definitions of RabbitMQ": (
        lambda data: definitions.read({"rabbit_durable_queue.DCD": data, "rabbit_durable_route.DCD": data, "LATEST.LOG": data}),
        lambda: [*in_golden(".DCD"), *in_golden(".LOG")],
    ),
    "names in Mnesia": (queue_names.known_to_mnesia, lambda: in_golden("rabbit_durable_queue.DCD")),
    ".queue_name": (queue_folders.parse, lambda: in_golden(".queue_name")),
    ".config": (read_segment_entry_count, lambda: in_golden(".config")),
    "definitions.log": (lambda data: Declared().replay(data), lambda: in_own("definitions.log")),
    "journal": (lambda data: read_journal(data, 8), lambda: [*in_own(".jif"), *in_golden(".jif", "c09-torn-v1-a")]),
    "segment": (lambda data: read_segment(data, 8), lambda: [*in_own(".idx"), *in_golden(".idx", "c09-torn-v1-a")]),
    ".qi": (qi.parse, lambda: [*in_own(".qi"), *in_golden(".qi")]),
    ".qs": (qs.scan, lambda: [*in_own(".qs"), *in_golden(".qs")]),
}  # fmt: skip


def ours() -> list[bytes]:
    headers = {"n": 7, "t": ["x", None], "d": {"b": b"bytes"}}
    rich = stored_message.encode_head("amq.topic", ["a.b", "c"], Properties(headers=headers, priority=3))
    return [
        stored_message.encode(rich, b"body"),
        stored_message.encode(stored_message.encode_head("", ["q"], None), b"B" * 300),
    ]


def _unless(error: type[Exception], parse: Callable[[bytes], Any], data: bytes) -> None:
    with contextlib.suppress(error):
        parse(data)


@pytest.mark.parametrize("name", PARSERS)
@examples(25)
@given(data=st.data())
def test_bytes_that_were_real_once_are_read_or_refused(name: str, data: st.DataObject) -> None:
    parse, seeds = PARSERS[name]
    real = data.draw(st.sampled_from(_seeds(name, seeds)))
    damaged = apply({"file": real}, data.draw(damages({"file": real}, kinds=OF_BYTES)))["file"]
    with no_hanging(), contextlib.suppress(CorruptFile):
        parse(damaged)


@pytest.mark.parametrize("name", PARSERS)
@examples(15)
@given(data=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(name: str, data: bytes) -> None:
    with no_hanging(), contextlib.suppress(CorruptFile):
        PARSERS[name][0](data)


_CACHE: dict[str, list[bytes]] = {}


def _seeds(name: str, seeds: Callable[[], list[bytes]]) -> list[bytes]:
    if name not in _CACHE:
        _CACHE[name] = seeds()
        assert _CACHE[name], f"there is nothing to damage for {name}"
    return _CACHE[name]
