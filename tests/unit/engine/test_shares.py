"""What share-partitions need of the hot path: waits for records, beside followers and producers."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Final

import pytest

from kbroker.engine._shares import HotShares, RecordsWatch
from kbroker.errors import ErrorCode, InvariantError
from tests.unit.engine.test_gathering import BATCH, FOR_EVER_NS, LONG_MS, Follower, append, led
from tests.unit.engine.wire import produce_frame, produced_in
from tests.unit.net.harness import Client, Gate, Rig, cold_frame, eventually

MakeRig = Callable[..., Rig]
TP_CLEAR: Final = 51  # of typeslots.h


@pytest.fixture
def patient(make_rig: MakeRig) -> Rig:
    """Whose moments never end by themselves."""
    return make_rig(hot={"gather_ns": FOR_EVER_NS, "linger_ns": FOR_EVER_NS})


def test_a_wait_for_records_lets_a_fetch_go_that_lingers(patient: Rig) -> None:
    """As the wait of a consumer does, and the partition goes on advancing after it."""
    topic = led(patient, BATCH)
    follower = Follower(patient, topic)
    follower.asks()
    patient.wait_parked(1)
    append(patient, topic.logs[0], BATCH)
    ended: list[ErrorCode] = []
    HotShares(patient.hot).await_records(topic.logs[0], 1, False, 1, LONG_MS, ended.append)
    assert follower.receives() == 1
    follower.asks()
    eventually(lambda: ended == [ErrorCode.NONE], "the wait has ended")
    producer = patient.client()
    producer.send(produce_frame(9, [(topic, {0: BATCH})], acks=-1, timeout_ms=LONG_MS))
    assert follower.receives() == 1
    follower.asks()
    assert produced_in(9, producer.receive())


@pytest.mark.parametrize("leave", [Client.end_sending, Client.reset])
def test_a_client_that_has_left_is_known(
    make_rig: MakeRig, leave: Callable[[Client], None]
) -> None:
    gate = Gate()
    rig = make_rig(dispatch=gate)
    client, hot = rig.client(), HotShares(rig.hot)
    client.send(cold_frame())
    gate.wait_for(1)
    (request,) = gate.held
    assert not hot.has_left(request)
    leave(client)
    eventually(lambda: hot.has_left(request), "the client has left")
    gate.release()
    with pytest.raises(InvariantError):
        hot.has_left(request)


def test_a_connection_has_ended_with_its_last_answer(make_rig: MakeRig) -> None:
    """Not when its Processor wakes next, after up to 300 ms: a session's records wait for it."""
    gate = Gate()
    rig = make_rig(dispatch=gate)
    hot, took_s = HotShares(rig.hot), []
    for _ in range(5):
        client = rig.client()
        client.send(cold_frame())
        gate.wait_for(1)
        (request,) = gate.held
        ended: list[ErrorCode] = []
        hot.await_end(request, False, ended.append)
        client.reset()
        eventually(lambda: hot.has_left(request), "the client has left")  # noqa: B023
        assert not ended
        released_s = time.monotonic()
        gate.release()
        eventually(lambda: ended, "its connection has ended")  # noqa: B023
        took_s.append(time.monotonic() - released_s)
    assert min(took_s) < 0.15


def test_the_collector_does_not_take_the_hot_path_from_a_wait() -> None:
    """Its request points into the hot path, and `done` may be what refers to the wait."""
    slot_of = ctypes.pythonapi.PyType_GetSlot
    slot_of.restype, slot_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
    assert slot_of(HotShares, TP_CLEAR) is not None
    assert slot_of(RecordsWatch, TP_CLEAR) is None
