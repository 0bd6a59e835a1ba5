"""A lesson in cells: the two storage engines of RabbitMQ under the same load, by their traces; and what
settings would change.

    python examples/trace_compare.py [DIRECTORY]

Each `# %%` begins a cell.  Nothing here needs Spark; the simulation needs the extra `simulation`.
"""

from __future__ import annotations

# %% The same load, twice "classic" is how RabbitMQ stored until 3.11: the index is a journal, moved to
# segment files now and then, with small bodies in it; two message files that are mostly garbage become one.
# "modern" is 3.13 and 4: two files for each 4,096 messages of a queue, one of positions and one of small
# bodies; a message file is compacted in place.
#
# The actors run in the simulation, so a seed decides how publisher, consumer, queue and store meet, and each run is the same.
import logging
import sys
import tempfile
from pathlib import Path

import warrenmq
from warrenmq.cli import main as command
from warrenmq.replay import replay
from warrenmq.runtime import Simulation

logging.disable(logging.WARNING)
directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())


def in_step(broker: warrenmq.Broker) -> None:
    """Small jobs and large bodies, confirm by confirm.  Every third body is kept until the end, between garbage."""
    jobs, archive = broker.declare_queue("jobs"), broker.declare_queue("archive")
    kept = []
    for batch in range(60):
        jobs.publish_many([b"resize %d-%d.jpg" % (batch, number) for number in range(50)])
        archive.publish_many([b"\xff" * 5_000] * 10).result()
        for _ in range(50):
            jobs.get().ack()
        for number in range(10):
            delivery = archive.get()
            if number % 3:
                delivery.ack()
            else:
                kept.append(delivery)
    for delivery in kept:
        delivery.ack()


def in_a_crowd(broker: warrenmq.Broker, sim: Simulation) -> None:
    """The publisher waits for no confirm, and the consumer is as fast as it is."""
    pictures = broker.declare_queue("pictures")
    worked_off = sim.event()

    def work_off() -> None:
        with pictures.consume(prefetch=500) as consumer:
            for _ in range(3_000):
                next(consumer).ack()
        worked_off.set()

    sim.spawn(work_off)
    for confirm in [pictures.publish(b"\xff" * 6_000) for _ in range(3_000)]:
        confirm.result()
    worked_off.wait()


def trace_of(profile: str) -> str:
    return str(directory / f"trace-{profile}")


def run(profile: str, sim: Simulation) -> None:
    settings = {"profile": profile, "msg_store_file_size_limit": 256 << 10}
    with warrenmq.open(
        directory / profile, settings=settings, trace=trace_of(profile), runtime=sim
    ) as broker:
        in_step(broker)
        in_a_crowd(broker, sim)


for profile in ("classic", "modern"):
    with Simulation(seed=26) as sim:
        sim.run(lambda: run(profile, sim))  # noqa: B023  (it is called at once)

# %% Both keep every promise ...
for profile in ("classic", "modern"):
    found = replay(trace_of(profile), engine="python", picture=False)
    print(
        f"{profile}: {found.verdict}, {found.result.figures['messages']:,} messages in {found.result.figures['events']:,} events"
    )

# %% ... in different ways `warrenmq trace compare A B`, A is classic.  Virtual times say nothing of speed
# (`warrenmq bench` does), but what is written, synced, collected and paged is the engine's doing.  Both write
# a body once, or not at all where a flying counter saved the write.
command(["trace", "compare", trace_of("classic"), trace_of("modern")])

# %% What if the store had no flying counters?
# The recorded operations, decided anew: each body would have been written, and its record would have been garbage at once.
command(["trace", "what-if", trace_of("classic"), "--no-flying"])

# %% What if garbage were collected sooner?
# A lower threshold keeps files small and copies more of them: space against writing.  The column `model` is what the same
# model says of the setting as it was, so compare with that.
command(["trace", "what-if", trace_of("modern"), "--gc-threshold", "0.2"])
