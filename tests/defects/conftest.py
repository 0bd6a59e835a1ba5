"""A store with its queues, under threads and in simulation, for the tests of RabbitMQ's defects (docs/defects.md)."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.support.schedulers import both_schedulers, scheduler
from tests.support.store import new_disk
from tests.support.store_actors import StoreHost


@both_schedulers
def runtime(request):
    with scheduler(request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def logs():
    with capture_logs() as captured:
        yield captured


@pytest.fixture
def host(runtime):
    host = StoreHost(runtime, new_disk())
    host.start()
    return host
