"""The tables of a connection's phases."""

import pytest
from pamqp.commands import Connection

from warrenmq.amqp.connection.phases import LOOSE, Phase, after_error, check_tuning, judge
from warrenmq.amqp.wire.codec import make
from warrenmq.amqp.wire.errors import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    FRAME_ERROR,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    AmqpError,
)
from warrenmq.settings import Settings

METHODS = [each for each in vars(Connection).values() if isinstance(each, type)]
HANDLED = {
    (Phase.STARTING, Connection.StartOk),
    (Phase.SECURING, Connection.SecureOk),
    (Phase.TUNING, Connection.TuneOk),
    (Phase.OPENING, Connection.Open),
    (Phase.RUNNING, Connection.Close),
    (Phase.RUNNING, Connection.UpdateSecret),
    (Phase.CLOSING, Connection.Close),
    (Phase.CLOSED, Connection.Close),
    (Phase.CLOSED, Connection.CloseOk),
}


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.name)
def test_each_phase_takes_its_own_methods(phase, kind):
    method = kind.__new__(kind)
    if (phase, kind) in HANDLED:
        assert judge(phase, method)
    elif phase in LOOSE:
        assert not judge(phase, method)
    else:
        with pytest.raises(AmqpError) as raised:
            judge(phase, method)
        assert raised.value.code == CHANNEL_ERROR
        assert raised.value.text == f"unexpected method in connection state {phase.value}"


@pytest.mark.parametrize(
    ("phases", "code", "does"),
    [
        ([Phase.CLOSED], INTERNAL_ERROR, "ignore"),
        ([Phase.OPENING, Phase.RUNNING, Phase.CLOSING], FRAME_ERROR, "close"),
        ([Phase.OPENING, Phase.RUNNING, Phase.CLOSING], NOT_ALLOWED, "close"),
        ([Phase.STARTING, Phase.SECURING], ACCESS_REFUSED, "refuse"),
        ([Phase.INIT, Phase.STARTING, Phase.SECURING, Phase.TUNING], FRAME_ERROR, "drop"),
        ([Phase.TUNING], NOT_ALLOWED, "drop"),
    ],
)
def test_the_phase_decides_whether_an_error_is_sent_to_the_client(phases, code, does):
    assert {after_error(phase, code) for phase in phases} == {does}


def tuned(frame_max=131072, channel_max=2047, heartbeat=60):
    return make(Connection.TuneOk, frame_max=frame_max, channel_max=channel_max, heartbeat=heartbeat)


@pytest.mark.parametrize(
    "method",
    [tuned(), tuned(frame_max=4096), tuned(channel_max=1), tuned(heartbeat=0), tuned(heartbeat=600)],
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_a_client_may_ask_for_less(method):
    check_tuning(method, Settings())


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (tuned(frame_max=4095), "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)"),
        (tuned(frame_max=131073), "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)"),
        (tuned(frame_max=0), "negotiated frame_max = 0 is higher than the maximum allowed value (131072)"),
        (tuned(channel_max=0), "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"),
        (tuned(channel_max=3000), "negotiated channel_max = 3000 is higher than the maximum allowed value (2047)"),
    ],
)  # fmt: skip
def test_a_client_may_not_ask_for_more(method, said):
    with pytest.raises(AmqpError) as raised:
        check_tuning(method, Settings())
    assert (raised.value.code, raised.value.text) == (NOT_ALLOWED, said)
