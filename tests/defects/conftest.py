"""A store with its queues, under threads and in simulation, for the tests of RabbitMQ's defects (docs/defects.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.store import SMALL, new_disk
from tests.support.store_actors import StoreHost


@pytest.fixture(autouse=True)
def _logs_are_kept(logs):
    """Actors that crash are what these tests are about."""


@pytest.fixture(params=["combine", "compact"])
def collector(request):
    return request.param


@pytest.fixture
def host(runtime, collector):
    host = StoreHost(runtime, new_disk(), replace(SMALL, msg_store_gc=collector))
    host.start()
    return host
