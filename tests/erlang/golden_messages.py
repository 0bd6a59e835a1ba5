"""The golden messages of a real RabbitMQ, each with the bytes that it was read from."""

import hashlib

from tests.support import golden


def queues(case):
    """(queue, full rows of its messages) for each queue of the manifest."""
    for queue in golden.manifest(case)["queues"]:
        yield queue, golden.messages(queue)


def record(case, queue, message):
    """(the bytes at the message's `at`, the name of the file)."""
    name, begin, length = message["at"]
    files = golden.files(case)
    for folder in _folders(queue, message):
        if f"{folder}/{name}" in files:
            return files[f"{folder}/{name}"][begin : begin + length], name
    msg = f"{case} has no {name} for {queue['name']}"
    raise AssertionError(msg)


def _folders(queue, message):
    for each in queue["dirs"]:
        if each["priority"] == message.get("priority_dir"):
            yield each["dir"]
        vhost = each["dir"].rpartition("/queues/")[0]
        yield f"{vhost}/msg_store_persistent"
        yield f"{vhost}/msg_store_transient"


def stored_term(data, name):
    """(the message's Erlang term, the id in the record around it) of one record."""
    kind = name.rpartition(".")[2]
    if kind in {"rdq", "rdt"}:
        return data[24:-1], data[8:24]
    if kind == "qs":
        return data[8:], None
    begin = 40 if kind == "jif" else 34  # the id follows the sequence id
    return data[begin:], data[begin - 32 : begin - 16]


def sha256(data):
    return hashlib.sha256(data).hexdigest()
