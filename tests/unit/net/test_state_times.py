"""How long channels are in each state, distinguished by their last request."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from kbroker._state import State
from tests.unit.engine.following import follow, nothing_waits, replicated, send
from tests.unit.engine.wire import Ask, fetch_frame
from tests.unit.net.harness import Rig, cold_frame, eventually

WAIT_S = 0.1


def state_s(rig: Rig) -> Counter[tuple[str, State]]:
    """Over all network threads."""
    found: Counter[tuple[str, State]] = Counter()
    for processor in rig.server.statistics()["processors"]:
        for (asked, name), ns in processor["state_ns"].items():
            found[asked, State[name]] += ns / 1e9  # type: ignore[assignment]
    return found


def pause() -> None:
    threading.Event().wait(WAIT_S)


@pytest.mark.parametrize(
    "pipelined, waits_in",
    [
        (False, State.MUTED_AND_RESPONSE_PENDING),
        (True, State.REQCACHED_AND_RESPONSE_PENDING),
    ],
)
def test_a_produce_that_waits_for_its_follower(
    make_rig: Callable[..., Rig], pipelined: bool, waits_in: State
) -> None:
    rig = make_rig(pipelined=pipelined)
    topic = replicated(rig)
    began = time.monotonic()  # a channel is in its first state as soon as it is accepted
    client = rig.client()
    send(client, topic)
    rig.wait_parked(1)
    pause()
    assert state_s(rig)["Produce", waits_in] == 0  # it is still in it
    follow(rig, topic.logs[0])
    client.receive()
    eventually(lambda: state_s(rig)["Produce", waits_in], "the answer has left")
    found = state_s(rig)
    assert found["Produce", waits_in] >= 0.9 * WAIT_S
    assert sum(found.values()) <= time.monotonic() - began
    assert {asked for asked, _ in found} == {"Produce"}
    nothing_waits(rig)


def test_a_wait_is_of_the_waiting_request_not_of_the_next(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(pipelined=True)
    topic = replicated(rig)
    client = rig.client()
    send(client, topic)
    rig.wait_parked(1)
    pause()
    client.send(cold_frame())
    eventually(
        lambda: state_s(rig)["Produce", State.REQCACHED_AND_RESPONSE_PENDING] >= 0.9 * WAIT_S,
        "the request after it has come",
    )
    follow(rig, topic.logs[0])
    client.receive()
    client.receive()
    nothing_waits(rig)


def test_time_counts_under_the_last_kind_of_request(rig: Rig) -> None:
    """A producer that was silent is not taken for the consumer that it becomes later."""
    topic = rig.create("t")
    client = rig.client()
    eventually(lambda: rig.total("connections") == 1, "its time has begun")
    for asked, ask in (
        ("Produce", lambda: send(client, topic, acks=1)),
        ("Fetch", lambda: client.send(fetch_frame(12, [Ask(topic, 0, 0)]))),
        ("other", lambda: client.send(cold_frame())),
    ):
        before, answers = state_s(rig), rig.total("responses")
        pause()
        ask()
        client.receive()
        eventually(lambda: rig.total("responses") > answers, "it has left")  # noqa: B023
        grown = state_s(rig) - before
        assert grown[asked, State.NOT_MUTED] >= 0.9 * WAIT_S
        assert {named for named, _ in grown} == {asked}
