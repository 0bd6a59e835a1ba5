import pytest


@pytest.fixture(autouse=True)
def _logs_are_kept(logs):
    """Actors that crash are what these tests are about."""
