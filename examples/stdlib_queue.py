"""warrenmq.Queue: the methods of the standard library's queue.Queue, and the items survive.

    python examples/stdlib_queue.py [DIRECTORY]

A worker thread takes jobs until the queue is empty.  A job without its task_done comes again the next time.
"""

from __future__ import annotations

import queue
import sys
import threading

import warrenmq


def work(jobs: warrenmq.Queue) -> None:
    while True:
        try:
            job = jobs.get(block=False)
        except queue.Empty:
            return
        print(f"resizing {job['picture']} to {job['width']}")
        jobs.task_done()


def main(directory: str) -> None:
    with warrenmq.Queue(directory, codec="json") as jobs:
        jobs.put({"picture": "cat.jpg", "width": 640})
        jobs.put_many({"picture": "dog.jpg", "width": width} for width in (320, 640, 1280))
        worker = threading.Thread(target=work, args=(jobs,))
        worker.start()
        jobs.join()
        worker.join()
        print(f"left: {jobs.qsize()}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
