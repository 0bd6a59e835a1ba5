"""For all tests: no alarm because this machine is short of something, and the same examples every time.

Hypothesis looks further when it is told to:

    python3 tests/run.py --hypothesis-profile explore      # new examples, and ten times as many where none is named
"""

import gc
import os
import shutil
import stat
import subprocess

import pykka
import pytest
import structlog
from hypothesis import settings

from tests.support import made_once
from tests.support.schedulers import both_schedulers, scheduler

# While tests are collected next to nothing becomes garbage, and looking for it takes a third of the time.
gc.set_threshold(200_000)

# Tests of alarms set their own limits; the others must not wait until this machine has more memory or disk.
os.environ.setdefault("WARRENMQ_VM_MEMORY_HIGH_WATERMARK", "1.0")
os.environ.setdefault("WARRENMQ_DISK_FREE_LIMIT", "0")

# No deadline in either: a machine that is busy with something else makes no test fail.
settings.register_profile("steady", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, max_examples=1_000, print_blob=True)
settings.load_profile("steady")


LONGEST = (
    "tests/spark",
    "tests/broker/test_power_cut.py",
    "tests/replay/test_prechecks.py",
    "tests/tools/test_specification.py",
    "tests/examples/test_examples_run.py",
    "tests/fuzz/test_fuzz_opening.py",
    "tests/broker/test_any_arguments.py",
    "tests/lens/test_lessons_in_a_browser.py",
    "tests/replay/test_what_is_missing.py",
    "tests/cli/test_recover.py",
    "tests/cli/test_serve.py",
    "tests/fuzz/test_fuzz_traces.py",
    "tests/shared/test_takeover.py",
    "tests/examples/test_tutorials.py",
    "tests/broker/test_damaged_definitions.py",
)
"""Files whose tests take tens of seconds, and files of few tests that take long: xdist gives out files by the number of their tests, so
these would come last, and one process would be left with them alone."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Over several processes a file stays together; one process has all that share a Spark session: one JVM is enough."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _assign_work_unit(self, node):
            longest = next((each for each in LONGEST if each in self.workqueue), None)
            if longest is not None:
                self.workqueue.move_to_end(longest, last=False)
            super()._assign_work_unit(node)

        def _split_scope(self, nodeid):
            scope = super()._split_scope(nodeid)
            return "tests/spark" if scope.startswith("tests/spark/") else scope

    return ByFile(config, log)


def pytest_collection_finish():
    gc.set_threshold(50_000)  # of what a test makes, most is gone by itself before so much is there
    _keep()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    if nextitem is None or nextitem.path != item.path:
        _keep()


def _keep():
    """Have no garbage collection look again at what is there when a file's tests begin: modules, tests, traces that are kept."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """A null device that is a file changes what programs say of it, and what is in it may tell whose it is."""
    if not stat.S_ISCHR((found := os.stat(os.devnull)).st_mode):
        with open(os.devnull, errors="backslashreplace") as file:
            begin = file.read(1000)
        terminalreporter.write_line(
            f"{os.devnull} is no device on this machine, but {found}: {begin!r}", red=True
        )


@pytest.fixture(scope="session", autouse=True)
def _one_process_makes_it_for_all(tmp_path_factory):
    if "PYTEST_XDIST_WORKER" in os.environ:  # else the folder above is one of all test runs
        made_once.folder = tmp_path_factory.getbasetemp().parent


@both_schedulers
def runtime(request):
    with scheduler(request.param) as made:
        yield made


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate of localhost and its key, as two files."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    path = str(tmp_path_factory.mktemp("tls") / "both.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", path, "-out", path + ".crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    return path + ".crt", path


@pytest.fixture
def logs():
    """Capture the log lines, which also keeps them out of the output."""
    with structlog.testing.capture_logs() as captured:
        yield captured


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
