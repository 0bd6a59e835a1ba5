"""One small run in sentences: two queues share a body, a write is cancelled, files roll over, garbage is collected.

    python examples/trace_story.py                          # every row of the run
    python examples/trace_story.py msg_store_persistent     # only those of actors whose name begins so

The pages docs/message-store.md, docs/garbage-collection.md and docs/confirms.md quote what this prints.  The broker runs in a
simulation (the extra `simulation`), where a seed decides which actor runs next.  In most orders the store has handled a
write before the remove of the same message comes; the seeds are tried until one is found where it has not.
"""

from __future__ import annotations

import sys
import tempfile

import warrenmq
from warrenmq.testing import SimulatedMachine
from warrenmq.trace.reader import open_trace
from warrenmq.trace.schema import Row
from warrenmq.trace.sentences import Narrator

SMALL_FILES = warrenmq.Settings(msg_store_file_size_limit=20_000)
"""A file of the message store is full after four messages."""


def work(machine: SimulatedMachine) -> None:
    """Everything that the stories tell of, within a minute of virtual time."""
    with machine.open() as broker:
        jobs, audit = broker.declare_queue("jobs"), broker.declare_queue("audit")
        for queue in (jobs, audit):
            broker.bind(queue, "amq.fanout")
        broker.publish("amq.fanout", "", b"x" * 6000).result()  # one body, two references
        jobs.get().ack()
        audit.get().ack()
        audit.publish(b"y" * 6000)
        audit.get(timeout=1).ack()  # perhaps before the store has looked at the write
        for _ in range(7):
            jobs.publish(b"z" * 5000).result()
        for _ in range(6):
            jobs.get().ack()  # what they leave behind is garbage
        machine.sleep(60)


def sentences(folder: str) -> list[tuple[str, str, str]]:
    """(actor, time, sentence) of every row, in the order of their clocks."""
    with open_trace(folder) as trace:
        rows = [(chunk.run, Row(*row)) for chunk in trace.catalog.chunks for row in trace.rows(chunk)]
        rows.sort(key=lambda each: (each[1].t, each[1].who))
        narrator, runs = Narrator(trace.catalog), trace.catalog.runs
        return [
            (runs[run].actor_name(row.actor), narrator.time(run, row.t), narrator.sentence(run, row))
            for run, row in rows
        ]


def main() -> None:
    for seed in range(1000):
        with SimulatedMachine(seed, traced=True, settings=SMALL_FILES) as machine:
            work(machine)
            with tempfile.TemporaryDirectory() as folder:
                machine.save_trace(folder)
                told = sentences(folder)
        text = "\n".join(sentence for _, _, sentence in told)
        if "decided to ignore it" in text and "compacts file" in text:
            break
    for actor, time, sentence in told:
        if actor.startswith(tuple(sys.argv[1:] or [""])):
            print(time, sentence)


if __name__ == "__main__":
    main()
