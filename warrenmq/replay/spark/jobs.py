"""The jobs of this package: what Spark's UI says of them, and jobs beside others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")
_DESCRIPTION = "spark.job.description"


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Jobs that run inside have this description; through Spark Connect, which has no job descriptions, a tag."""
    if not hasattr(spark, "sparkContext") or type(spark).__module__.startswith("pyspark.sql.connect"):
        tag = f"warrenmq: {text}".replace(",", ";")  # a tag may hold no comma
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, f"warrenmq: {text}")
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]


@contextmanager
def beside(
    spark: SparkSession,
    job: Callable[Concatenate[SparkSession, _Given], _Found],
    *args: _Given.args,
    **kwargs: _Given.kwargs,
) -> Iterator[Future[_Found]]:
    """Run a job while the block runs its own, in a thread whose jobs have the pool, group and tags of this one's."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(inheritable_thread_target(spark)(job), spark, *args, **kwargs)
