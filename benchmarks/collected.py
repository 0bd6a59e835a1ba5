"""Measures the bytes that a replay in Spark collects to the driver, for traces of several sizes: they should
not grow with the rows.

    python -m benchmarks.collected --scale 1,4,16 --dir SCRATCH          # consistent traces of so many million events

Prints the rows and bytes (pickled) of each job that collects, and how far the driver's own memory rose.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MILLION = 1_000_000


@contextmanager
def collecting() -> Iterator[Counter[str]]:
    """Bytes that DataFrames collect inside, by the columns that were collected."""
    from pyspark.sql.classic.dataframe import DataFrame

    bytes_of: Counter[str] = Counter()
    collect = DataFrame.collect

    def counted(self: Any) -> Any:
        rows = collect(self)
        bytes_of[", ".join(self.columns)] += sum(len(pickle.dumps(tuple(row))) for row in rows)
        return rows

    DataFrame.collect = counted  # type: ignore[method-assign]
    try:
        yield bytes_of
    finally:
        DataFrame.collect = collect  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", metavar="MILLIONS", default="1,4,16")
    parser.add_argument("--dir", type=Path, help="where traces are made, and kept")
    args = parser.parse_args()

    from benchmarks.replay import made
    from warrenmq.replay import replay
    from warrenmq.replay.spark.session import spark_session

    with tempfile.TemporaryDirectory() as folder, spark_session(master="local[2]") as spark:
        for size in args.scale.split(","):
            events = int(float(size) * MILLION)
            subject = made(events, (args.dir or Path(folder)) / f"events-{events}", [])
            with collecting() as bytes_of:
                found = replay(subject.trace, engine="spark")
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            print(
                f"{subject.events:,} events, {found.verdict}: {bytes_of.total():,} bytes; the driver's Python {peak} MB"
            )
            for columns, n in bytes_of.most_common():
                print(f"  {n:12,}  {columns[:120]}")
            spark.catalog.clearCache()


if __name__ == "__main__":
    main()
