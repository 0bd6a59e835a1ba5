"""A durable queue: publish, wait for the confirm, open the directory again, consume, acknowledge.

python examples/quickstart.py [DIRECTORY]
"""

from __future__ import annotations

import sys

import warrenmq


def main(directory: str) -> None:
    with warrenmq.open(directory) as broker:
        jobs = broker.declare_queue("jobs")
        confirm = jobs.publish(b"resize cat.jpg")
        confirm.result(timeout=5)  # on disk now: whatever happens, the job is kept
        print("confirmed: resize cat.jpg")

        jobs.publish_many([b"resize dog.jpg", b"resize owl.jpg"]).result(timeout=5)
        print("confirmed: two more, with one sync")

    with warrenmq.open(directory) as broker:
        jobs = broker.declare_queue("jobs")  # it is there already, with all its messages
        with jobs.consume(prefetch=100) as consumer:
            for delivery in consumer:
                print(f"done: {delivery.body.decode()}")
                delivery.ack()
                if delivery.body == b"resize owl.jpg":
                    break


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
