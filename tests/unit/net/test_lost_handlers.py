"""Handlers that are dead: the others go on, and after the last of all no request waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kbroker import own_thread
from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode
from kbroker.own_thread import OwnThread
from kbroker.server.handler_pool import HandlerPool
from tests.support.record_batches import build_batch
from tests.unit.engine.transactional import batch, codes, send
from tests.unit.engine.wire import produce_one
from tests.unit.net.harness import Rig, cold_frame, eventually


@pytest.fixture(autouse=True)
def one_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_thread, "THREAD_LIVES_MAX", 1)


def raises(*_: object) -> None:
    raise SystemExit("of this test")


def lose_a_handler(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """One comes back to Python with a request, and its loop raises; the request is answered."""
    before = dead(rig)
    with monkeypatch.context() as patch:
        patch.setattr(HandlerPool, "_dispatch_all", raises)
        client = rig.client()
        client.send(cold_frame(b"x"))
        assert client.ended()
        eventually(lambda: len(dead(rig)) == len(before) + 1, "it is dead")


def dead(rig: Rig) -> list[OwnThread]:
    return [each for each in rig.pool.threads if each.dead]


def test_the_others_serve_when_a_handler_is_lost_and_a_resize_brings_a_new_one(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(handlers=2)
    topic = rig.create("t")
    lose_a_handler(rig, monkeypatch)
    eventually(lambda: rig.pool.size == 1, "the pool is without it")
    for _ in range(5):
        assert produce_one(rig.client(), topic, build_batch()).error == 0
    eventually(lambda: not dead(rig)[0].is_alive(), "it has ended")
    rig.pool.resize(2)
    assert dead(rig) == []
    client = rig.client()
    client.send(cold_frame(b"x"))
    assert client.receive_cold() == (1, b"x")


def test_requests_that_none_is_left_to_serve_are_ended(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(handlers=2)
    topic = rig.create("t")
    for _ in range(2):
        lose_a_handler(rig, monkeypatch)
    for frame in (cold_frame(b"x"), cold_frame(b"y")):
        client = rig.client()
        client.send(frame)
        assert client.ended()
    assert produce_one(rig.client(), topic, build_batch()).error == 0  # what needs no Python
    rig.pool.resize(2)
    eventually(lambda: not any(each.is_alive() for each in dead(rig)), "another has taken over")
    client = rig.client()
    client.send(cold_frame(b"x"))
    assert client.receive_cold() == (1, b"x")


def test_a_coordinator_that_none_is_left_to_ask_holds_up_nothing(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(handlers=1)
    topic = rig.create("t")
    lose_a_handler(rig, monkeypatch)
    client = rig.client()
    send(client, (topic, {0: batch()}))
    assert codes(client) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert produce_one(rig.client(), topic, build_batch()).error == 0


def test_a_deadline_that_cannot_be_set_is_due_at_once_whatever_was_raised(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    expired: list[int] = []
    monkeypatch.setattr(rig.pool, "_watch_deadline", raises)
    monkeypatch.setattr(rig.pool, "_hot", type("Hot", (), {"expire": staticmethod(expired.append)}))
    rig.pool._watch(7)
    assert expired == [7]


def test_the_callback_of_one_write_costs_no_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = HandlerPool(rig.hot, 0, raises, rig.ticks.append)
    codes: list[ErrorCode] = []
    settled = [(raises, ErrorCode.NONE), (codes.append, ErrorCode.NONE)]
    monkeypatch.setattr(pool, "_hot", SimpleNamespace(take_settled=lambda _: settled))
    pool._call_settled(0)
    assert codes == [ErrorCode.NONE]
    assert pool.failures.count == 1


class Hung:
    """A handler's thread that stays inside a request, as far as a pool looks at it."""

    ident = 1
    name = "hung"

    def __init__(self, clock: ManualClock, waited_s: list[float]) -> None:
        self._clock, self._waited_s = clock, waited_s

    def join(self, timeout_s: float) -> None:
        self._waited_s.append(timeout_s)
        self._clock.advance(round(timeout_s * 1000))

    def is_alive(self) -> bool:
        return True


def test_handlers_that_hang_are_waited_for_together(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, waited_s = ManualClock(), list[float]()
    pool = HandlerPool(rig.hot, 0, raises, rig.ticks.append, clock=clock)
    monkeypatch.setattr(pool, "_threads", {at: Hung(clock, waited_s) for at in range(4)})
    pool.join()
    assert waited_s == [5, 0, 0, 0]
