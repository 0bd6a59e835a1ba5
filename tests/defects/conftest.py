"""A store with its queues, under threads and in simulation, for the tests of RabbitMQ's defects (docs/defects.md)."""

from dataclasses import replace

import pytest

from tests.message_store.actors_kit import StoreHost
from tests.message_store.kit import SMALL, new_disk


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
