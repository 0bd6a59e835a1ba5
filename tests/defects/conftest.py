"""A store with its queues, under threads and in simulation, for the tests of RabbitMQ's defects (docs/defects.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tests.support.schedulers import both_schedulers, scheduler
from tests.support.store import SMALL, new_disk
from tests.support.store_actors import StoreHost


@both_schedulers
def runtime(request):
    with scheduler(request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def logs():
    with capture_logs() as captured:
        yield captured


@pytest.fixture(params=["combine", "compact"])
def collector(request):
    return request.param


@pytest.fixture
def host(runtime, collector):
    host = StoreHost(runtime, new_disk(), replace(SMALL, msg_store_gc=collector))
    host.start()
    return host
