"""The watch as a query of Structured Streaming.

    source    which rows are new, in the driver: a place of trace/tail.py is the offset
    tasks     unpack their blocks and summarise them (batch_summary.py): a few hundred bytes a block come out, no rows
    rules     by data directory, in the workers: Live (drive/live.py) takes the summaries; what it knows is in Spark's state store
    batch     the lines, printed in the driver

No rule looks at the runs of two data directories, so those of one are decided by one task, whichever worker
has it.  A query that is started again, anywhere from where its checkpoint can be read, goes on where Spark's
log of batches ends.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TextIO
from urllib.parse import quote

from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from warrenmq.errors import CallerError
from warrenmq.replay.drive.batch_summary import PART_PIECES, Batch, batches, summarise_batch
from warrenmq.replay.drive.live import Live, Standing
from warrenmq.replay.drive.watch import INTERVAL, SQLITE, STREAM, are_losses, are_over, last_line, line_of
from warrenmq.replay.spark.addresses import is_of_spark, load, local_name
from warrenmq.replay.spark.session import SHUFFLE_PARTITIONS
from warrenmq.replay.spark.state_store import STANDING, SparkStore, standing_of
from warrenmq.trace.reader import require_live
from warrenmq.trace.tail import Place, Tail

_UNCHOSEN = ("200", str(SHUFFLE_PARTITIONS))
"""The shuffle partitions of sessions whose user has not chosen any: Spark's default, and that of our own sessions."""
_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""The store that has keys of several kinds, of which a batch writes what has changed."""
_PLAIN = "/:@,;$&+=!*'()~"
"""Letters, beside those of words, that stay as they are in the path of an address."""


class DirectoryBatch(NamedTuple):
    """New parts of one run, with the directory that decides them."""

    directory: str
    is_one_of_several: bool
    """There are other directories, or virtual hosts, in the trace."""
    batch: Batch
    """Its number counts the runs of the directory."""


@dataclass
class SummarisedPart(InputPartition):
    """The pieces that one task summarises, of one run or of several: a task costs more than some hundred pieces."""

    batches: list[DirectoryBatch]


class BatchSource(DataSource):
    """Summaries of the new parts of a trace, pickled."""

    @classmethod
    def name(cls) -> str:
        return "warrenmq-trace-summaries"

    def schema(self) -> str:
        return "directory string, is_one_of_several boolean, summaries binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        return SummaryStream(json.loads(self.options["traces"]))


class SummaryStream(DataSourceStreamReader):
    """Lives in the driver."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._tail = Tail(*paths)

    def initialOffset(self) -> Place:  # noqa: N802 - Spark's name
        return {}

    def latestOffset(self, start: Place, limit: ReadLimit) -> Place:  # noqa: N802, ARG002 - Spark's name; all there is
        return self._tail.look(start)

    def partitions(self, start: Place, end: Place) -> Sequence[InputPartition]:
        planned: list[SummarisedPart] = []
        pieces = 0
        for each in self._batches(start, end):
            pieces += len(each.batch.parts)
            if not planned or pieces > PART_PIECES:
                planned.append(SummarisedPart([]))
                pieces = len(each.batch.parts)
            planned[-1].batches.append(each)
        return planned

    def _batches(self, start: Place, end: Place) -> Iterator[DirectoryBatch]:
        numbers: dict[int, tuple[str, int]] = {}
        """A run's number in the trace -> its directory, and its number among those of the directory."""
        met: dict[str, int] = {}
        for place in sorted(end.values(), key=lambda place: int(place["n"])):
            directory = place["of"]
            met[directory] = met.get(directory, -1) + 1
            numbers[place["n"]] = directory, met[directory]
        scopes = {files.run.scope for files in self._tail.runs.values()}
        for batch in batches(self._tail, start, end):
            directory, batch.number = numbers[batch.number]
            yield DirectoryBatch(directory, len(scopes) > 1, batch)

    def read(self, partition: InputPartition) -> Iterator[tuple[str, bool, bytes]]:
        if isinstance(partition, SummarisedPart):
            for directory, is_one_of_several, batch in partition.batches:
                yield directory, is_one_of_several, pickle.dumps(summarise_batch(batch))


class DirectoryRules(StatefulProcessor):
    """The rules on the runs of a data directory; returns lines to be printed, and with the last one what the
    runs have come to.
    """

    returns = "directory string, line string, standing string"

    def __init__(self, *, as_json: bool) -> None:
        self._line = partial(line_of, as_json=as_json)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._store = SparkStore(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002 - Spark's names
        its = list(rows)
        self._store.open()
        live = Live(self._store, one_of_several=any(row["is_one_of_several"] for row in its))
        live.take((pickle.loads(bytes(row["summaries"])) for row in its), self._line)  # noqa: S301 - our tasks'
        standing = self._store.keep_standing(live.standing())
        said = [Row(directory=key[0], line=line, standing=None) for line in self._store.lines]
        return iter([*said, Row(directory=key[0], line=None, standing=standing)])

    def close(self) -> None:
        pass  # Spark closes its stores


class StreamedWatch:
    """The driver's side of a watch in Spark: it prints, and knows the standing of each directory."""

    def __init__(self, *, as_json: bool = False, to: TextIO | None = None) -> None:
        self.as_json = as_json
        self.standings: dict[str, Standing] = {}
        self._to = to or sys.stdout

    def take(self, rows: Sequence[Any]) -> None:
        """Print what a batch found."""
        for row in rows:
            if row["line"] is not None:
                print(row["line"], file=self._to, flush=True)
            else:
                self.standings[row["directory"]] = standing_of(row["standing"])

    @property
    def violations(self) -> int:
        """Found since the checkpoint began."""
        return sum(each.violations for each in self.standings.values())

    @property
    def closed(self) -> bool:
        """Every run of the trace was closed, or was killed and is over."""
        return are_over(self.standings.values())

    @property
    def losses(self) -> bool:
        """True if the last line names losses or damage."""
        return are_losses(self.standings.values())

    def summary(self) -> str:
        """The last line."""
        return last_line(self.standings.values(), as_json=self.as_json)


def watch(
    spark: SparkSession,
    paths: list[str],
    checkpoint: str,
    taken_by: StreamedWatch,
    *,
    wait: Callable[[float], None],
    until_closed: bool = False,
) -> None:
    """Check a trace while it is written, as drive.watch.watch does; `checkpoint` is a directory, or an
    address that Spark can write to.
    """
    require_live(paths)
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise CallerError("a watch prints where its session is, so it cannot run through Spark Connect.")
    if os.path.exists(os.path.join(local_name(checkpoint), SQLITE)):
        raise CallerError(f"{checkpoint} is the checkpoint of the other engine; say another --checkpoint.")
    place = f"{checkpoint if is_of_spark(checkpoint) else 'file:' + os.path.abspath(checkpoint)}/{STREAM}"
    taken_by.standings.update(_standings(spark, checkpoint, place))
    spark.dataSource.register(BatchSource)
    with _settings_of_the_state_store(spark):
        query = (
            spark.readStream.format(BatchSource.name())
            .option("traces", json.dumps([os.path.abspath(path) for path in paths]))
            .load()
            .groupBy("directory")
            .transformWithState(
                DirectoryRules(as_json=taken_by.as_json), DirectoryRules.returns, "Append", "None"
            )
            .writeStream.outputMode("append")
            .foreachBatch(lambda frame, _: taken_by.take(frame.collect()))
            .option("checkpointLocation", place)
            .trigger(processingTime=f"{round(INTERVAL * 1000)} milliseconds")
            .start()
        )
    try:
        while query.isActive:
            if until_closed and taken_by.closed:
                query.processAllAvailable()
                return
            wait(INTERVAL)
        query.awaitTermination()  # raises what ended it
    finally:
        query.stop()


def _standings(spark: SparkSession, checkpoint: str, place: str) -> dict[str, Standing]:
    """The standing of each directory when the last batch of a checkpoint was done."""
    try:
        done = load(spark.read.format("binaryFile"), [f"{checkpoint}/{STREAM}/commits"])
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return {}
        raise
    if done.select("path").isEmpty():
        return {}
    with _plainly_named(place) as named:
        kept = spark.read.format("statestore").option("stateVarName", STANDING).load(named)
        rows = kept.selectExpr("key.directory", "value.standing").collect()
    return {row["directory"]: standing_of(row["standing"]) for row in rows}


@contextmanager
def _plainly_named(place: str) -> Iterator[str]:
    """A name of this place for Spark's reader of states, which looks for one with a space, or the like, under %20."""
    path = local_name(place)
    if quote(path, safe=_PLAIN) == path:
        yield place
    elif is_of_spark(path):
        raise CallerError(f"the address of a checkpoint can have no letters such as spaces: {path}.")
    else:
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(path, os.path.join(folder, STREAM))
            yield f"file:{folder}/{STREAM}"


@contextmanager
def _settings_of_the_state_store(spark: SparkSession) -> Iterator[None]:
    """Set for a query that is started inside what its state store needs; a checkpoint keeps them.

    Each partition has a store that every batch writes, and a worker that it starts: the default number of
    them, 200, would take tens of seconds a batch, and a directory needs no more than one.
    """
    settings = dict(_SETTINGS)
    if spark.conf.get("spark.sql.shuffle.partitions") in _UNCHOSEN:
        settings["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1)
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)
