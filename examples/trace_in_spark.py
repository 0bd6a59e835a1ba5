"""A lesson in cells: what RabbitMQ's store does, seen in the trace of a short run, with Spark.

    python examples/trace_in_spark.py [DIRECTORY]

Each `# %%` begins a cell: run them one by one in an editor or a notebook, or all at once from a terminal.  It needs the
extras `simulation`, `spark` and `java`; the last cell also `report`.
"""

from __future__ import annotations

# %% A run to look at
# Two queues.  "jobs" has small messages, which are kept in the queue's own files.  "pictures" has large ones: their bodies
# go to the message store, which all queues share.  Every step that an actor takes is a row of the trace.
#
# The actors run in the simulation: one thread, virtual time, and a seed that decides in which order they run.  So the same
# things happen on every machine, and the cells below can speak of them.
import logging
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import warrenmq
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.replay import check, events, lifecycles, read, replay, write_report
from warrenmq.replay.report.summary import print_summary
from warrenmq.replay.spark.session import spark_session
from warrenmq.runtime import Simulation

logging.disable(logging.CRITICAL)  # the crash below is on purpose
directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())


def workload() -> None:
    broker = warrenmq.open(directory / "data", trace=directory / "trace", runtime=sim)
    jobs, pictures = broker.declare_queue("jobs"), broker.declare_queue("pictures")

    # A publisher that waits for each confirm: every message is synced by itself, at once, for the queue has
    # nothing else to do.
    for number in range(100):
        jobs.publish(b"resize %d.jpg" % number).result()
    pictures.publish(b"\xff" * 6_000).result()

    # And one that does not wait, with a consumer that is as fast: many messages share a sync, and some need none.
    def work_off() -> None:
        with pictures.consume(prefetch=500) as consumer:
            for _ in range(2_001):
                next(consumer).ack()
        worked_off.set()

    worked_off = sim.event()
    sim.spawn(work_off)
    for confirm in [pictures.publish(b"\xff" * 6_000) for _ in range(2_000)]:
        confirm.result()
    worked_off.wait()

    # Forty jobs are done, and twenty are delivered, when the queue's process is killed.  Its supervisor starts another.
    for _ in range(40):
        jobs.get().ack()
    _unacked = [jobs.get() for _ in range(20)]
    name = queue_name("jobs")
    killed = sim.whereis(name)
    sim.kill(killed)
    while not sim.is_registered(name) or sim.whereis(name) is killed:
        sim.event().wait(0.01)
    jobs.publish(b"the first after the crash").result()
    for _ in range(50):
        jobs.get().ack()
    broker.close()


with Simulation(seed=126) as sim:
    sim.run(workload)

# %% The rows, as a DataFrame
# The rows of each actor.  A session of your own will do as well as this one, which finds a Java by itself.
opened = ExitStack()
spark = opened.enter_context(spark_session(short=True))
rows = read(spark, directory / "trace").cache()
rows.groupBy("kind").count().orderBy("count", ascending=False).show(truncate=False)

# %% One message on its way
# The first picture: a client sends it, the queue takes it in and casts its body to the store.  The store appends it to a
# file, syncs that and reports back.  The queue syncs its index.  When both are on disk, the publisher gets its confirm.
first = events(rows, "PUBLISH").where("actor = 'queue:pictures'").orderBy("seq").first()
its_id = f"{first.first_seq_id} between first_seq_id and first_seq_id + count - 1"
confirmed = events(rows, "CONFIRM").where(f"actor = 'queue:pictures' and {its_id}").first()
its = f"msg = {first.message} or ev = 'CONFIRM' and seq = {confirmed.seq}"
syncs = f"ev in ('FILE_SYNC', 'QI_SYNC') and t between {first.t} and {confirmed.t}"
rows.where(f"{its} and actor <> 'queue:jobs' or {syncs}").orderBy("t").select("actor", "ev", "flag").show(
    truncate=False
)

# %% The life of every message
# A row for each message in each incarnation of its queue.  "jobs" has had two.  The second recovered what the first left:
# what waited, and the 20 that were delivered, which come back to their old places and are marked as redelivered.
lives = lifecycles(rows).cache()
lives.groupBy("queue", "actor_id", "recovered", "state").count().orderBy("queue", "actor_id", "count").show()

# %% What a crash takes along
# A confirm waits for the disk, an ack does not: acks are written when there is a reason to, within 200 ms at the latest.
# So what was acked last is there again, too.  A consumer must be able to bear a message that comes twice.
of_jobs = lives.where("queue = 'jobs'")
one, two = (row.actor_id for row in of_jobs.select("actor_id").distinct().orderBy("actor_id").collect())
before, after = of_jobs.where(f"actor_id = {one}"), of_jobs.where(f"actor_id = {two}")
again = before.where("state = 'acked'").join(after, "seq_id").count()
lost = before.where("confirmed_t is not null and state <> 'acked'").join(after, "seq_id", "anti").count()
print(f"acked before the crash, and there again: {again}; confirmed and lost: {lost}")

# %% Group commit: what made an index sync, and how many records shared it?  MAILBOX_EMPTY: nothing else is to
# be done, so no confirm waits for company.  Each message of "jobs" was synced by itself; those of "pictures"
# came faster than a sync takes, and hundreds shared one.
events(rows, "QI_SYNC").createOrReplaceTempView("syncs")
spark.sql("""
    select actor, trigger, count(*) syncs, sum(records) records, round(avg(records), 1) records_a_sync
    from syncs group by all order by all
""").show()

# %% What the store did not have to write
# A flying counter holds, for each message, the writes minus the removes that are on their way to the store.  Where a
# message was consumed before its write was handled, the counter is 0 and the store IGNOREs the write.
events(rows, "STORE_WRITE").groupBy("decision").count().show()

# %% How long it takes, by queue
# Virtual time says nothing of that, so now the same load on threads and on the real disk.  Milliseconds from a publish to its
# confirm, from a publish to the delivery, and from the delivery to the ack.  Each confirm of "jobs" waits for a sync of its
# own.  Those of "pictures" wait for each other, but there are more in a second.
with warrenmq.open(directory / "timed", trace=directory / "trace-timed") as broker:
    jobs, pictures = broker.declare_queue("jobs"), broker.declare_queue("pictures")
    for _ in range(100):
        jobs.publish(b"resize").result()
        jobs.get().ack()

    def work_off_in_a_thread() -> None:
        with pictures.consume(prefetch=500) as consumer:
            for _ in range(2_000):
                next(consumer).ack()

    worker = threading.Thread(target=work_off_in_a_thread)
    worker.start()
    for confirm in [pictures.publish(b"\xff" * 6_000) for _ in range(2_000)]:
        confirm.result()
    worker.join()

lifecycles(read(spark, directory / "trace-timed")).createOrReplaceTempView("lives")
spark.sql("""
    select queue, count(confirm_us) confirmed,
           round(percentile(confirm_us, 0.5) / 1000, 2) confirm_p50, round(percentile(confirm_us, 0.99) / 1000, 2) confirm_p99,
           round(percentile(delay_us, 0.5) / 1000, 2) deliver_p50, round(percentile(ack_us, 0.5) / 1000, 2) ack_p50,
           round(count(confirm_us) / (unix_micros(max(confirmed_t)) - unix_micros(min(published_t))) * 1e6) confirms_a_second
    from lives group by queue order by queue
""").show()

# %% Was it right?
# No confirm before its sync, nothing confirmed and lost, first in first out, and a good dozen more: docs/replay.md.
print("violations:", check(rows).count())
opened.close()

# %% The table of `warrenmq replay`, and a page with plots
# One process is faster than Spark for a trace of this size.
result = replay(directory / "trace", engine="python")
print_summary(result)
write_report(result, directory / "report.html")
print("page:", directory / "report.html")
