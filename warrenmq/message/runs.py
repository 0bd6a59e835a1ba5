"""Runs of consecutive sequence ids: traces and index acks tell of runs, not of single messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from warrenmq.message.queue_message import Fetched


def runs(seqs: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first, count) of each run of consecutive numbers."""
    first = count = 0
    for seq in seqs:
        if count and seq == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = seq, 1
    if count:
        yield first, count


def tagged_runs(seqs: Iterable[int], tags: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    """(first, count, tag of the first) of each run of consecutive numbers with consecutive tags."""
    first = count = tag = 0
    for seq in seqs:
        if count and seq == first + count and tags[seq] == tag + count:
            count += 1
            continue
        if count:
            yield first, count, tag
        first, count, tag = seq, 1, tags[seq]
    if count:
        yield first, count, tag


def owned_runs(owners: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """(first, count, owner) of each run of consecutive numbers of one owner, from pairs (number, owner)."""
    first = count = owner = 0
    for seq, its in owners:
        if count and seq == first + count and its == owner:
            count += 1
            continue
        if count:
            yield first, count, owner
        first, count, owner = seq, 1, its
    if count:
        yield first, count, owner


def delivery_runs(fetched: Sequence[Fetched]) -> Iterator[tuple[int, Sequence[Fetched]]]:
    """(place of the first, messages) of each run of consecutive numbers that are alike."""
    first, redelivered, place = fetched[0].seq_id, fetched[0].redelivered, 0
    for at, each in enumerate(fetched):
        if each.seq_id != first + at - place or each.redelivered is not redelivered:
            yield place, fetched[place:at]
            first, redelivered, place = each.seq_id, each.redelivered, at
    yield place, fetched[place:] if place else fetched


def publication_runs(complete: Sequence[tuple[int, int, int, object]]) -> Iterator[tuple[int, int, int]]:
    """(first, count, msg) of publications (first, count, msg, anything); those next to each other in one."""
    first, count, msg = 0, 0, 0
    for next_first, next_count, next_msg, _ in complete:
        if count and next_first == first + count:
            count += next_count
            continue
        if count:
            yield first, count, msg
        first, count, msg = next_first, next_count, next_msg
    yield first, count, msg


def message_runs(messages: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """(first, count, message) of each run of consecutive sequence ids whose message ids are consecutive, too,
    or not known (0); from pairs (sequence id, message id).
    """
    for _, run in groupby(enumerate(messages), _line):
        ((_, (first, message)), *others) = run
        yield first, 1 + len(others), message


def _line(placed: tuple[int, tuple[int, int]]) -> tuple[int, int | None]:
    """The line that a pair lies on, by its place among all pairs; pairs of one run share it."""
    place, (seq_id, message) = placed
    return seq_id - place, message - seq_id if message else None
