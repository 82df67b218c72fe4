"""Clients that are throttled: the answer names the time, and the channel is not read for it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kbroker._net import WrappedRequest
from kbroker.types import ApiKey
from tests.unit.engine.following import BATCH, follow, nothing_waits, replicated, send
from tests.unit.engine.wire import Ask, answer_in, fetch_frame, produced_in
from tests.unit.net.harness import Rig, cold_frame, eventually

SOME_MS = 300
LONG_MS = 60_000


class Throttle:
    """A dispatch that throttles hot requests, as a test's rule does, and has C serve them."""

    def __init__(self, *times_ms: int) -> None:
        self.times_ms = list(times_ms)
        self.rig: Rig | None = None

    def __call__(self, request: WrappedRequest) -> None:
        assert self.rig is not None
        if request.api_key not in (ApiKey.PRODUCE, ApiKey.FETCH):
            request.respond(request.body)
            return
        if self.times_ms:
            request.throttle(self.times_ms.pop(0))
        cold, ticks = self.rig.hot.pass_on(request)
        assert not cold
        self.rig.ticks.extend(ticks)


@pytest.fixture(params=[True, False], ids=["pipelined", "stock"])
def throttled(request: pytest.FixtureRequest, make_rig: Callable[..., Rig]) -> Callable[..., Rig]:
    def make(*times_ms: int) -> Rig:
        throttle = Throttle(*times_ms)
        rig = throttle.rig = make_rig(dispatch=throttle, pipelined=request.param)
        rig.server.set_cold(ApiKey.PRODUCE)
        rig.server.set_cold(ApiKey.FETCH)
        return rig

    return make


def time_told(key: ApiKey, version: int, payload: bytes) -> int:
    throttle_ms = answer_in(key, version, payload)[1].throttle_time
    return round(throttle_ms.total_seconds() * 1000)


@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_the_answer_comes_at_once_and_then_nothing_is_read(
    throttled: Callable[..., Rig], version: int
) -> None:
    rig = throttled(SOME_MS)
    topic = rig.create("t")
    client = rig.client()
    began = time.monotonic()
    send(client, topic, version=version)
    assert time_told(ApiKey.PRODUCE, version, client.receive()) == SOME_MS
    client.send(cold_frame(b"after it"))
    assert client.receive_cold()[1] == b"after it"
    assert time.monotonic() - began >= SOME_MS / 1000
    send(client, topic, version=version)
    assert time_told(ApiKey.PRODUCE, version, client.receive()) == 0


@pytest.mark.parametrize("version", [4, 12])
def test_of_a_fetch_too(throttled: Callable[..., Rig], version: int) -> None:
    rig = throttled(SOME_MS)
    topic = rig.create("t")
    topic.logs[0].append(BATCH)
    client = rig.client()
    began = time.monotonic()
    client.send(fetch_frame(version, [Ask(topic, 0, 0)]))
    assert time_told(ApiKey.FETCH, version, client.receive()) == SOME_MS
    client.send(cold_frame())
    client.receive_cold()
    assert time.monotonic() - began >= SOME_MS / 1000


def test_other_clients_do_not_wait_and_a_closed_channel_leaves_the_list(
    throttled: Callable[..., Rig],
) -> None:
    rig = throttled(LONG_MS, LONG_MS)
    topic = rig.create("t")
    for _ in range(2):
        client = rig.client()
        send(client, topic)
        client.receive()
        client.send(cold_frame())
        other = rig.client()
        other.send(cold_frame(b"at once"))
        assert other.receive_cold()[1] == b"at once"
        assert not client.has_bytes()
        client.reset()  # an end that has no bytes before it; one that has is seen when it is read
        eventually(lambda: rig.total("connections") == 1, "its end is seen")
        other.close()
        eventually(lambda: rig.total("connections") == 0, "and the other's")


def test_cached_answers_leave_during_a_throttle(make_rig: Callable[..., Rig]) -> None:
    """The second of three that wait for a follower is throttled: all three are answered, and what
    comes after them waits for the end."""
    throttle = Throttle(0, SOME_MS, 0)
    rig = throttle.rig = make_rig(dispatch=throttle)
    rig.server.set_cold(ApiKey.PRODUCE)
    topic = replicated(rig)
    client = rig.client()
    for number in range(3):
        send(client, topic, correlation_id=number)
        rig.wait_parked(number + 1)
    began = time.monotonic()
    follow(rig, topic.logs[0])
    answers = [client.receive() for _ in range(3)]
    assert [produced_in(9, each)[0] for each in answers] == [0, 1, 2]
    assert [time_told(ApiKey.PRODUCE, 9, each) for each in answers] == [0, SOME_MS, 0]
    client.send(cold_frame())
    client.receive_cold()
    assert time.monotonic() - began >= SOME_MS / 1000
    nothing_waits(rig)


def test_the_later_of_two_deadlines_counts(make_rig: Callable[..., Rig]) -> None:
    throttle = Throttle(2 * SOME_MS, SOME_MS)
    rig = throttle.rig = make_rig(dispatch=throttle)
    rig.server.set_cold(ApiKey.PRODUCE)
    topic = replicated(rig)
    client = rig.client()
    for number in range(2):
        send(client, topic, correlation_id=number)
        rig.wait_parked(number + 1)
    began = time.monotonic()
    follow(rig, topic.logs[0])
    for _ in range(2):
        client.receive()
    client.send(cold_frame())
    client.receive_cold()
    assert time.monotonic() - began >= 2 * SOME_MS / 1000
    send(client, topic)  # and the channel is as any other
    rig.wait_parked(1)
    follow(rig, topic.logs[0])
    assert produced_in(9, client.receive())[0] == 1
