"""The room for requests that wait: clients' fetches get half of it, and nothing else counts there.

The bound is that of a few requests, so that a test fills it. A request for which there is no room
is answered at once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.errors import ErrorCode
from tests.unit.engine.following import (
    BATCH,
    FOLLOWER,
    LONG_MS,
    codes,
    follow,
    nothing_waits,
    replicated,
)
from tests.unit.engine.wire import Ask, fetch, fetch_frame, fetched_in, produce_frame
from tests.unit.net.harness import Client, Rig, Topic, eventually

ROOM_BYTES = 16 * 1024
HALF_BYTES = ROOM_BYTES // 2
REQUESTS_MAX = 200  # far more than there is room for


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig(hot={"parked_bytes_max": ROOM_BYTES})


@pytest.fixture
def quiet(rig: Rig) -> Topic:
    """Fetches wait there: nothing is produced to it, and its follower knows the high watermark."""
    topic = replicated(rig, "quiet")
    fetch(rig.client(), 17, [Ask(topic)], replica_id=FOLLOWER)
    return topic


@pytest.fixture
def written(rig: Rig) -> Topic:
    return replicated(rig, "written")


def sent(rig: Rig, frame: bytes) -> tuple[Client, bool]:
    """Its client, and whether it waits."""
    client = rig.client()
    before = rig.hot.statistics()["parked_now"]
    client.send(frame)
    eventually(lambda: rig.hot.statistics()["parked_now"] > before or client.has_bytes())
    return client, rig.hot.statistics()["parked_now"] > before


def consume(rig: Rig, topic: Topic) -> tuple[Client, bool]:
    return sent(rig, fetch_frame(17, [Ask(topic)], max_wait_ms=LONG_MS))


def replicate(rig: Rig, topic: Topic) -> tuple[Client, bool]:
    return sent(rig, fetch_frame(17, [Ask(topic)], max_wait_ms=LONG_MS, replica_id=FOLLOWER))


def produce(rig: Rig, topic: Topic) -> tuple[Client, bool]:
    frame = produce_frame(9, [(topic, {0: BATCH})], acks=-1, timeout_ms=LONG_MS)
    return sent(rig, frame)


def fill(rig: Rig, topic: Topic, send: Callable[[Rig, Topic], tuple[Client, bool]]) -> list[Client]:
    """Those that wait, and as the last one the client that was answered."""
    clients = []
    for _ in range(REQUESTS_MAX):
        client, waits = send(rig, topic)
        clients.append(client)
        if not waits:
            return clients
    raise AssertionError("there is no bound")


def parked_bytes(rig: Rig) -> int:
    return rig.hot.statistics()["parked_bytes"]


def test_consumers_wait_in_half_of_the_room(rig: Rig, quiet: Topic) -> None:
    *waiting, answered = fill(rig, quiet, consume)
    assert fetched_in(17, answered.receive()).only.error == 0
    assert HALF_BYTES * 3 // 4 < parked_bytes(rig) <= HALF_BYTES
    waiting.pop().close()
    eventually(lambda: rig.hot.statistics()["parked_now"] == len(waiting))
    _, waits = consume(rig, quiet)  # in the room that was given back
    assert waits
    _, waits = consume(rig, quiet)
    assert not waits


def test_a_follower_waits_where_consumers_have_filled_their_half(rig: Rig, quiet: Topic) -> None:
    fill(rig, quiet, consume)
    follower, waits = replicate(rig, quiet)
    assert waits
    quiet.logs[0].append(BATCH)
    rig.hot.wake(quiet.logs[0])
    records = fetched_in(17, follower.receive()).only.records
    assert records is not None and len(records) == len(BATCH)


def test_followers_take_no_room_from_consumers(rig: Rig, quiet: Topic) -> None:
    while parked_bytes(rig) <= HALF_BYTES:
        _, waits = replicate(rig, quiet)
        assert waits
    _, waits = consume(rig, quiet)
    assert waits


def test_all_that_waits_has_a_bound(rig: Rig, quiet: Topic) -> None:
    fill(rig, quiet, replicate)
    assert HALF_BYTES < parked_bytes(rig) <= ROOM_BYTES
    _, waits = consume(rig, quiet)
    assert not waits


def test_produces_that_wait_take_no_room_from_consumers(
    rig: Rig, quiet: Topic, written: Topic
) -> None:
    while parked_bytes(rig) <= HALF_BYTES:
        _, waits = produce(rig, written)
        assert waits
    _, waits = consume(rig, quiet)
    assert waits


def test_produces_wait_where_consumers_have_filled_their_half(
    rig: Rig, quiet: Topic, written: Topic
) -> None:
    consumers = fill(rig, quiet, consume)[:-1]
    *waiting, answered = fill(rig, written, produce)
    assert codes(answered) == [ErrorCode.REQUEST_TIMED_OUT]
    assert HALF_BYTES < parked_bytes(rig) <= ROOM_BYTES
    follow(rig, written.logs[0])
    assert [codes(client) for client in waiting] == [[0]] * len(waiting)
    rig.expire_all(*consumers)
    nothing_waits(rig)
