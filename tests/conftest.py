"""For all tests: no alarm because this machine is short of something, and the same examples every time.

Hypothesis looks further when it is told to:

    python3 tests/run.py --hypothesis-profile explore      # new examples, and ten times as many where none is named
"""

import os

import pykka
import pytest
import structlog
from hypothesis import settings

# Tests of alarms set their own limits; the others must not wait until this machine has more memory or disk.
os.environ.setdefault("WARRENMQ_VM_MEMORY_HIGH_WATERMARK", "1.0")
os.environ.setdefault("WARRENMQ_DISK_FREE_LIMIT", "0")

# No deadline in either: a machine that is busy with something else makes no test fail.
settings.register_profile("steady", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, max_examples=1_000, print_blob=True)
settings.load_profile("steady")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Where tests are shared out over processes, a file stays together, and so do all that need Spark: one JVM is enough."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group("spark" if item.path.parent.name == "spark" else str(item.path)))


@pytest.fixture(autouse=True)
def _logs_go_where_they_went():
    """The command line has logs go to the stderr that a test has just then."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _no_actor_outlives_its_test():
    """Pykka's registry is the process's: what one test leaves in it, `stop_all` in another one waits for."""
    yield
    left = pykka.ActorRegistry.get_all()
    for ref in left:
        pykka.ActorRegistry.unregister(ref)
    assert left == []
