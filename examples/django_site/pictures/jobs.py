"""The durable queue of the site."""

import functools
import threading

from django.conf import settings
from django.db import transaction

import warrenmq
from warrenmq.broker.retry import exponential

_opening = threading.Lock()


@functools.cache
def _queue() -> warrenmq.QueueHandle:
    broker = warrenmq.open(settings.JOBS_DIRECTORY, shared=True, unconfirmed="repeat")
    jobs, failed = broker.declare_queue("jobs"), broker.declare_queue("failed")
    jobs.retry_policy(max_attempts=4, backoff=exponential(0.1, longest=60), dead_letter=failed)
    return jobs


def queue() -> warrenmq.QueueHandle:
    """The queue of jobs, opened by the first use: `manage.py migrate` needs none, and AppConfig.ready would open one.

    Every process that uses it shares the directory.  A worker that gunicorn forks after that (--preload) attaches by itself.
    """
    with _opening:  # the threads of a worker may all come first
        return _queue()


def resize_later(picture: int) -> None:
    """Give a job for a picture to the workers once the transaction is committed; nothing if it is rolled back.

    A crash of the process between the commit and the publish leaves a picture without a job: `manage.py work
    --missed` finds it.
    """
    transaction.on_commit(lambda: queue().publish(b"%d" % picture).result(timeout=30))
