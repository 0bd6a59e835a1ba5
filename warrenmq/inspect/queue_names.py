"""Finds the queue that a folder belongs to: folders are named by a hash, so names are collected from files and tried.

A queue's `.queue_name` (from 3.7 on) has vhost and name, and ours have a `.definition` besides (vhost/queue_folders.py).

Where these are missing or damaged, the names that the node knows are hashed until one fits: what definitions.log declares
(ours), or the queue records in Mnesia's tables (RabbitMQ's), found by their bytes, which also tell whether a queue is
durable.

    from 3.7 on    base36(md5("queue" + vhost + queue))
    up to 3.6      base36(md5(term_to_binary({resource, vhost, queue, queue})))

Source: rabbit_queue_index:queue_dir, rabbit_priority_queue;
docs/reference/classic-queue.md#directories-and-file-names and #priority-queues.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from warrenmq.directory.layout import queue_folder, queue_folder_of_3_6
from warrenmq.vhost.queue_folders import QueueName

_PRIORITIES = 256
_RESOURCE = re.compile(rb"h\x04(?:d\x00\x08|w\x08|s\x08)resourcem(....)", re.DOTALL)
"""{resource, VHost, ...}: the length of the vhost's name follows."""
_QUEUE_ATOM = re.compile(rb"(?:d\x00\x05|w\x05|s\x05)queuem(....)", re.DOTALL)
_LONGEST_NAME = 1024


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def known_to_mnesia(table: bytes) -> list[tuple[str, str]]:
    """(vhost, queue) of each queue that a table's file names, without duplicates."""
    found: dict[tuple[str, str], None] = {}
    for match in _RESOURCE.finditer(table):
        vhost, at = _binary(table, match)
        if vhost is None or (atom := _QUEUE_ATOM.match(table, at)) is None:
            continue
        name, _ = _binary(table, atom)
        if name is not None:
            found[_text(vhost), _text(name)] = None
    return list(found)


def _binary(data: bytes, match: re.Match[bytes]) -> tuple[bytes | None, int]:
    """The binary whose length a match ended with, and where it ends."""
    end = match.end() + int.from_bytes(match[1], "big")
    if end > min(len(data), match.end() + _LONGEST_NAME):
        return None, end
    return data[match.end() : end], end


def find(folder: str, candidates: Iterable[tuple[str, str]]) -> QueueName | None:
    """Find the candidate that a folder belongs to, and its priority."""
    for vhost, name in candidates:
        for hashed in (queue_folder, queue_folder_of_3_6):
            if hashed(vhost, name) == folder:
                return QueueName(vhost, name)
    for vhost, name in candidates:
        for priority in range(_PRIORITIES):
            for hashed in (queue_folder, queue_folder_of_3_6):
                if hashed(vhost, name, priority) == folder:
                    return QueueName(vhost, name, priority)
    return None
