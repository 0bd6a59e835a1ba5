"""States in a checkpoint: what is written is read again, and nothing else can be."""

import dataclasses
import pickle
import sys
import zlib
from array import array
from collections import Counter
from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.errors import CallerError
from warrenmq.replay.drive import state_codec
from warrenmq.replay.drive.machines import FileEnd

KEYS = st.one_of(
    st.integers(-(1 << 80), 1 << 80), st.text(), st.binary(), st.tuples(st.integers(), st.text())
)
ATOMS = st.one_of(
    st.none(), st.booleans(), KEYS, st.floats(allow_nan=False), st.frozensets(KEYS), st.text(st.characters(codec="utf-16")),
    st.builds(array, st.just("q"), st.lists(st.integers(-5, 5))), st.builds(Counter, st.dictionaries(KEYS, st.integers(0, 9))),
    st.builds(FileEnd, *[st.integers()] * 5, st.booleans()),
)  # fmt: skip
VALUES = st.recursive(
    ATOMS, lambda inner: st.one_of(st.lists(inner), st.tuples(inner, inner), st.dictionaries(KEYS, inner))
)


def same(one, other):
    """Equal, and of the same kinds all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if dataclasses.is_dataclass(one):
        fields = [each.name for each in dataclasses.fields(one)]
    else:
        fields = getattr(one, "__slots__", ())
    return all(same(getattr(one, each), getattr(other, each)) for each in fields) if fields else one == other


@given(VALUES)
def test_a_value_is_read_as_it_was(value):
    assert same(state_codec.unpack(state_codec.pack(value)), value)


@given(st.binary())
def test_other_bytes_are_refused_or_a_value(found):
    for packed in (found, zlib.compress(found)):
        with suppress(CallerError):
            state_codec.unpack(packed)


@pytest.mark.parametrize(
    "name",
    ["os:system", "builtins:object", "warrenmq.errors:no_such", "warrenmq.no_such:X", "warrenmq.settings:os.system",
     "warrenmq.runtime.mailbox:Mailbox", ""],
)  # fmt: skip
def test_no_other_class_is_made(name):
    inner = msgpack.packb([name, 1, 2])
    with pytest.raises(CallerError):
        state_codec.unpack(zlib.compress(msgpack.packb(msgpack.ExtType(7, inner))))


def test_what_an_earlier_version_wrote_is_refused():
    with pytest.raises(CallerError, match="new checkpoint directory"):
        state_codec.unpack(zlib.compress(pickle.dumps({"a": [1, (2, 3)]})))


def test_what_cannot_be_read_again_is_not_written():
    for value in (object(), sys, {1: object()}, lambda: 0):
        with pytest.raises(TypeError):
            state_codec.pack(value)
