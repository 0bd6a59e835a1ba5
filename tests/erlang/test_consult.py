"""Erlang terms written as text: what RabbitMQ's small files have, and nothing raises but BadTerm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import golden
from warrenmq.erlang.consult import consult
from warrenmq.erlang.term import BadTerm
from warrenmq.erlang.values import Atom

CASES = {
    "1.": [1],
    "-1. +2.": [-1, 2],
    "16#ff.": [255],
    "1.5e3.": [1500.0],
    "atom.": [Atom("atom")],
    "'rabbit@local host'.": [Atom("rabbit@local host")],
    r"'it\'s'.": [Atom("it's")],
    r'"ab\n\x41\x{20ac}\101\^A".': [[97, 98, 10, 65, 0x20AC, 65, 1]],
    "<<1,2, 255>>.": [b"\1\2\xff"],
    '<<"ab">>.': [b"ab"],
    '<<"\xf6">>.': ["ö".encode("latin-1")],
    '<<"ö"/utf8,1>>.': ["ö\x01".encode()],
    "<<>>.": [b""],
    "{}. [].": [(), []],
    "{a, [1, {2}]}.": [(Atom("a"), [1, (2,)])],
    "#{0 => 30, a => []}.": [{0: 30, Atom("a"): []}],
    "% a comment\n a. % another": [Atom("a")],
    "": [],
    "é.": BadTerm,
    "a": BadTerm,
    "{a.": BadTerm,
    "{a,}.": BadTerm,
    "[a}.": BadTerm,
    "<<256>>.": BadTerm,
    "<<a>>.": BadTerm,
    "<<1/utf8>>.": BadTerm,
    "<<1": BadTerm,
    "#{a}.": BadTerm,
    "#{[] => 1}.": BadTerm,
    "a => b.": BadTerm,
    ", a.": BadTerm,
    "99#1.": BadTerm,
    "2#9.": BadTerm,
    '"open.': BadTerm,
    r'"\x{ffffff}".': BadTerm,
    "1" * 2000 + ".": BadTerm,
    "[" * 1000 + "]" * 1000 + ".": BadTerm,
}


@pytest.mark.parametrize(("text", "terms"), CASES.items(), ids=[text[:30] for text in CASES])
def test_a_text_is_its_terms_or_is_refused(text, terms):
    if terms is BadTerm:
        with pytest.raises(BadTerm):
            consult(text.encode())
    else:
        assert consult(text.encode()) == terms


def test_an_error_names_the_place():
    with pytest.raises(BadTerm, match=r"^clean\.dot is damaged at byte 4: '\.' is missing\.$"):
        consult(b"{a} b.", "clean.dot")


@pytest.mark.parametrize("case", golden.CASES)
def test_the_golden_text_files_are_read(case):
    files = golden.files(case)
    entries = {vhost["dir"]: vhost["segment_entry_count"] for vhost in golden.manifest(case)["vhosts"]}
    for path, data in files.items():
        if path.endswith("/.config"):
            assert consult(data) == [(Atom("segment_entry_count"), entries[path.removesuffix("/.config")])]
        if path.endswith("/clean.dot"):
            clients, (_, module) = consult(data)
            assert module == "rabbit_msg_store_ets_index"
            assert all(len(client) == 16 for client in clients[1])


@given(st.text("ab'\"\\{}[]<>#=,.%1e- \n", max_size=40) | st.text(max_size=20))
def test_any_text_is_terms_or_a_bad_term(text):
    try:
        consult(text.encode())
    except BadTerm as bad:
        assert 0 <= bad.offset <= len(text)  # noqa: PT017 - some are terms


@given(st.binary(max_size=60))
def test_any_bytes_are_terms_or_a_bad_term(data):
    try:
        consult(data)
    except BadTerm:
        return
