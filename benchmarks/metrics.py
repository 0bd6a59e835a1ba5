"""Measures the pages of the management API with many queues: wall and processor time of the whole process,
the shortest of three.

python -m benchmarks.metrics [--queues 5000]
"""

from __future__ import annotations

import argparse
import http.client
import tempfile
import time

import warrenmq
from warrenmq.amqp import serve
from warrenmq.management import manage

PAGES = "/metrics", "/metrics/per-object", "/api/queues", "/api/queues?page=1&page_size=100"
GUEST = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}


def page(host: str, port: int, path: str) -> tuple[float, float, int]:
    """Milliseconds of wall and processor time, and bytes."""
    connection = http.client.HTTPConnection(host, port)
    wall, spent = time.perf_counter(), time.process_time()
    connection.request("GET", path, headers=GUEST)
    size = len(connection.getresponse().read())
    connection.close()
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - spent) * 1e3, size


def main() -> None:
    """Measure, and print a line for each page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", type=int, default=5_000)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        warrenmq.open(f"{folder}/data", settings={"scheduler": "pool"}) as broker,
        serve(broker, port=0) as server,
        manage(server, port=0) as management,
    ):
        for number in range(args.queues):
            broker.declare_queue(f"q{number}", durable=False)
        for path in PAGES:
            each = [page(management.host, management.port, path) for _ in range(3)]
            wall, spent = min(one[0] for one in each), min(one[1] for one in each)
            print(f"{path}: {wall:.0f} ms, {spent:.0f} ms of processor time, {each[0][2] / 1000:,.0f} KB")


if __name__ == "__main__":
    main()
