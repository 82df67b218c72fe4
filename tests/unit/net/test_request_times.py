"""Where a request's time goes: Kafka's parts, every frame counted, quantiles of late."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

import pytest

from kbroker._net import WrappedRequest
from kbroker.net._request_figures import PARTS, ApiTimes, PartTimes, RequestFigures
from kbroker.types import ApiKey
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import Ask, fetch_frame, produce_frame
from tests.unit.net.harness import COLD_KEY, Client, Rig, cold_frame, eventually

QUANTILES = (0.5, 0.99)
HELD_MS = 30.0
# Long beside what a busy machine takes for a handler's few lines.
LONG_MS = 1_000.0


def figures_of(rig: Rig) -> RequestFigures:
    return RequestFigures(rig.server, QUANTILES)


def times(figures: RequestFigures, key: int) -> ApiTimes:
    return {api.api_key: api for api in figures.read()}[key]


def sums_ms(api: ApiTimes) -> dict[str, float]:
    return {name: part.sum_ms for name, part in zip(PARTS, api.parts, strict=True)}


def answered(rig: Rig, count: int) -> None:
    eventually(lambda: rig.total("responses") == count, f"{count} answers have left")


def wait_ms(duration_ms: float) -> float:
    """Lets time pass that a meter is to show; how much it was."""
    started = time.monotonic()
    while (passed := (time.monotonic() - started) * 1000) < duration_ms:
        pass
    return passed


def sleep_ms(duration_ms: float) -> None:
    """The same without keeping others from their work."""
    threading.Event().wait(duration_ms / 1000)


def ask(client: Client, correlation_id: int = 1) -> None:
    client.send(cold_frame(b"x", correlation_id))
    client.receive_cold()


def test_apis_without_requests_have_no_times(rig: Rig) -> None:
    assert figures_of(rig).read() == []


def test_the_parts_add_up(rig: Rig) -> None:
    figures = figures_of(rig)
    client = rig.client()
    for i in range(20):
        ask(client, i)
    answered(rig, 20)
    api = times(figures, COLD_KEY)
    assert api.total == 20
    assert api.versions == [(0, 20)]
    found = sums_ms(api)
    total = found.pop("total_time")
    assert total > 0
    assert sum(found.values()) == pytest.approx(total, rel=0.1, abs=0.2)


def test_a_handlers_work_is_local(make_rig: Callable[..., Rig]) -> None:
    def dispatch(request: WrappedRequest) -> None:
        wait_ms(HELD_MS)
        request.respond(b"")

    rig = make_rig(dispatch=dispatch)
    figures = figures_of(rig)
    ask(rig.client())
    answered(rig, 1)
    found = sums_ms(times(figures, COLD_KEY))
    assert found["local_time"] >= HELD_MS
    assert found["remote_time"] == 0
    assert found["total_time"] >= found["local_time"]


def test_time_after_a_handler_has_let_go_is_remote(make_rig: Callable[..., Rig]) -> None:
    held: list[WrappedRequest] = []
    rig = make_rig(dispatch=held.append)
    figures = figures_of(rig)
    client = rig.client()
    client.send(cold_frame(b"x"))
    eventually(lambda: held, "dispatched")
    sleep_ms(LONG_MS)
    held.pop().respond(b"")
    client.receive_cold()
    answered(rig, 1)
    found = sums_ms(times(figures, COLD_KEY))
    assert found["remote_time"] > found["local_time"]
    assert found["remote_time"] + found["local_time"] >= LONG_MS * 0.9


def test_a_long_poll_waits_remotely(rig: Rig) -> None:
    figures = figures_of(rig)
    topic = rig.create("t")
    client = rig.client()
    client.send(fetch_frame(12, [Ask(topic, 0)], max_wait_ms=60_000, min_bytes=1))
    rig.wait_parked(1)
    sleep_ms(LONG_MS)
    rig.client().send(produce_frame(9, [(topic, {0: build_batch([b"x"])})]))
    client.receive()
    answered(rig, 2)
    fetch = sums_ms(times(figures, ApiKey.FETCH))
    assert fetch["remote_time"] >= LONG_MS * 0.9
    assert fetch["local_time"] < LONG_MS * 0.9
    assert sums_ms(times(figures, ApiKey.PRODUCE))["remote_time"] == 0


def test_every_frame_of_a_train_counts(rig: Rig) -> None:
    figures = figures_of(rig)
    topic = rig.create("t")
    frames = [
        produce_frame(9, [(topic, {0: build_batch([b"x"])})], correlation_id=i) for i in range(40)
    ]
    client = rig.client()
    client.send(b"".join(frames))
    for _ in frames:
        client.receive()
    answered(rig, 40)
    api = times(figures, ApiKey.PRODUCE)
    assert (api.total, api.versions) == (40, [(9, 40)])
    for part in range(len(PARTS)):
        assert sum(n for _, n in figures.histogram(ApiKey.PRODUCE, part)) == 40, PARTS[part]


def test_requests_without_an_answer_count(rig: Rig) -> None:
    figures = figures_of(rig)
    topic = rig.create("t")
    client = rig.client()
    client.send(produce_frame(9, [(topic, {0: build_batch([b"x"])})], acks=0) * 3)
    answered(rig, 3)
    assert times(figures, ApiKey.PRODUCE).total == 3


def test_quantiles_are_near_and_fade(make_rig: Callable[..., Rig]) -> None:
    slow_ms = [HELD_MS]

    def dispatch(request: WrappedRequest) -> None:
        slow_ms.append(wait_ms(slow_ms[0]))
        request.respond(b"")

    rig = make_rig(dispatch=dispatch)
    figures = figures_of(rig)
    client = rig.client()

    def local() -> PartTimes:
        return times(figures, COLD_KEY).parts[PARTS.index("local_time")]

    def ask_five(before: int) -> float:
        """The median of five requests' local times, each as far as the sum grew by it."""
        sums = [local().sum_ms if before else 0.0]
        for number in range(before + 1, before + 6):
            ask(client, number)
            answered(rig, number)
            sums.append(local().sum_ms)
        return sorted(end - begin for begin, end in itertools.pairwise(sums))[2]

    slow = ask_five(0)
    assert slow >= HELD_MS
    assert local().sum_ms >= sum(slow_ms[1:])
    assert local().quantiles_ms[0] == pytest.approx(slow, rel=0.1, abs=0.5)
    # An hour later only what is new speaks; the counts stay.
    figures.tick(1.0)
    figures.tick(0.0)
    slow_ms[0] = 0.0
    quick = ask_five(5)
    assert local().quantiles_ms[0] == pytest.approx(quick, rel=0.1, abs=0.5)
    assert times(figures, COLD_KEY).total == 10


def test_times_of_a_closed_connection_count_as_far_as_they_came(
    make_rig: Callable[..., Rig],
) -> None:
    held: list[WrappedRequest] = []
    rig = make_rig(dispatch=held.append)
    figures = figures_of(rig)
    client = rig.client()
    client.send(cold_frame(b"x"))
    eventually(lambda: held, "dispatched")
    client.reset()
    eventually(lambda: rig.total("connections") == 0, "the reset has been seen")
    held.pop().respond(b"late")
    eventually(lambda: [a.total for a in figures.read()] == [1], "counted")
