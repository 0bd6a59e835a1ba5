"""For the tests of the AMQP side."""

from pamqp.base import Frame


def pytest_make_parametrize_id(val):
    """A method as an argument is called by its name: its address would be another one in each process."""
    return val.name if isinstance(val, Frame) else None
