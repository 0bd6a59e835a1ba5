import pytest
import structlog

from tests.support.schedulers import both_schedulers, scheduler


@both_schedulers
def runtime(request):
    with scheduler(request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def logs():
    """What people would read; also keeps it out of the output."""
    with structlog.testing.capture_logs() as captured:
        yield captured
