"""Workers in processes of their own share one directory; the owner is killed in the middle, and nothing confirmed is lost.

python examples/with_multiprocessing.py [DIRECTORY]
"""

import multiprocessing
import os
import signal
import sys
import tempfile
from typing import Any

import warrenmq

JOBS, WORKERS = 600, 3


def work(directory: str) -> None:
    """Take jobs until there is a pill; each result is published before its job is acknowledged."""
    with warrenmq.open(directory, shared=True, unconfirmed="repeat") as broker:
        done = broker.declare_queue("done")
        with broker.declare_queue("jobs").consume(prefetch=20) as consumer:
            for job in consumer:
                if job.body == b"stop":
                    job.ack()
                    return
                done.publish(b"resized " + job.body).result()
                job.ack()


def own(directory: str, ready: Any) -> None:
    """Own the directory, by opening it first, and do nothing else."""
    with warrenmq.open(directory, shared=True):
        ready.set()
        signal.pause()


def main(directory: str) -> None:
    processes = multiprocessing.get_context("spawn")
    ready = processes.Event()
    owner = processes.Process(target=own, args=(directory, ready))
    owner.start()
    ready.wait()
    workers = [processes.Process(target=work, args=(directory,)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()

    with warrenmq.open(directory, shared=True, unconfirmed="repeat") as broker:
        jobs, done = broker.declare_queue("jobs"), broker.declare_queue("done")
        confirms = [jobs.publish(f"{number}.jpg".encode()) for number in range(JOBS // 2)]
        os.kill(owner.pid, signal.SIGKILL)  # whoever takes over, it all goes on
        confirms += [jobs.publish(f"{number}.jpg".encode()) for number in range(JOBS // 2, JOBS)]
        for confirm in confirms:
            confirm.result()

        results = set()  # a job that was on its way when the owner died may be done twice
        with done.consume(prefetch=100) as consumer:
            while len(results) < JOBS:
                delivery = consumer.get()
                results.add(delivery.body)
                delivery.ack()
        jobs.publish_many([b"stop"] * WORKERS).result()
        for worker in workers:
            worker.join()
        print("done:", len(results), "jobs")
    owner.join()
    print("exit codes of the workers:", [worker.exitcode for worker in workers])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
