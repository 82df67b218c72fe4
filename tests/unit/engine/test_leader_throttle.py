"""Followers that are out of sync get no more than the leader's rate (KIP-73)."""

from __future__ import annotations

import pytest

from kbroker.config.key import LONG_MAX
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import (
    FETCH_VERSIONS,
    Ask,
    Fetched,
    fetch,
    fetch_frame,
    fetched_in,
)
from tests.unit.net.harness import NODE_ID, Rig, Topic

LAGGING, IN_SYNC = 2, 3
LONG_MS = 600_000
BATCH = build_batch([b"x" * 100])
# A second's worth is saved up, and the first answer may be more: what comes then has to wait for
# longer than any test lasts.
SLOW = 1
every_version = pytest.mark.parametrize("version", FETCH_VERSIONS)


@pytest.fixture
def led(rig: Rig) -> Topic:
    return throttled(rig, "t")


def throttled(rig: Rig, name: str, batches: int = 5) -> Topic:
    topic = rig.create(name)
    topic.logs[0].set_leadership(NODE_ID, True, 0, 2, {LAGGING: False, IN_SYNC: True})
    topic.logs[0].throttle(True)
    for _ in range(batches):
        topic.logs[0].append(BATCH)
    return topic


def copied(rig: Rig, topic: Topic, broker: int = LAGGING, version: int = 17) -> bytes:
    records = fetch(rig.client(), version, [Ask(topic)], replica_id=broker).only.records
    assert records is not None
    return records


def test_without_a_rate_everything_comes(rig: Rig, led: Topic) -> None:
    for _ in range(3):
        assert len(copied(rig, led)) == 5 * len(BATCH)


@every_version
def test_a_rate_of_nothing(rig: Rig, led: Topic, version: int) -> None:
    rig.hot.throttle_leader(0)
    found = fetch(rig.client(), version, [Ask(led)], replica_id=LAGGING).only
    assert (found.error, found.records) == (0, b"")
    assert copied(rig, led, IN_SYNC, version), "acknowledgements wait for it"
    led.logs[0].throttle(False)
    assert copied(rig, led, version=version)


def test_sent_bytes_are_paid_for_by_all(rig: Rig, led: Topic) -> None:
    other, free = throttled(rig, "u"), throttled(rig, "v")
    free.logs[0].throttle(False)
    rig.hot.throttle_leader(SLOW)
    assert len(copied(rig, led)) == 5 * len(BATCH)
    assert copied(rig, led) == copied(rig, other) == b""
    assert copied(rig, free)
    assert copied(rig, other, IN_SYNC)


def test_bytes_for_others_cost_nothing(rig: Rig, led: Topic) -> None:
    rig.hot.throttle_leader(SLOW)
    led.logs[0].note_fetch(IN_SYNC, 5, 1)
    assert copied(rig, led, IN_SYNC)
    assert fetch(rig.client(), 17, [Ask(led)]).only.records  # a consumer's
    assert len(copied(rig, led)) == 5 * len(BATCH)


def test_another_rate_begins_with_no_debts(rig: Rig, led: Topic) -> None:
    rig.hot.throttle_leader(SLOW)
    assert copied(rig, led)
    rig.hot.throttle_leader(SLOW)  # the same, again
    assert copied(rig, led) == b""
    rig.hot.throttle_leader(1 << 40)
    assert copied(rig, led) and copied(rig, led)
    rig.hot.throttle_leader(LONG_MAX)
    assert copied(rig, led)


def test_a_follower_out_of_range_is_answered_so(rig: Rig, led: Topic) -> None:
    rig.hot.throttle_leader(0)
    assert fetch(rig.client(), 17, [Ask(led, 0, 6)], replica_id=LAGGING).only.error == 1


def waiting(rig: Rig, topic: Topic, offset: int = 0) -> Fetched:
    follower = rig.client()
    asks = [Ask(topic, 0, offset)]
    # The first one tells where the high watermark is, and is answered for that.
    fetch(follower, 17, asks, replica_id=LAGGING, max_wait_ms=0)
    follower.send(fetch_frame(17, asks, replica_id=LAGGING, max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    topic.logs[0].append(BATCH)
    topic.logs[0].roll()
    topic.logs[0].append(BATCH)
    rig.hot.wake(topic.logs[0])
    assert rig.hot.statistics()["parked_now"] == 1 and not follower.has_bytes()
    rig.expire_all(follower)
    return fetched_in(17, follower.receive()).only


def test_a_throttled_follower_waits_whatever_comes(rig: Rig, led: Topic) -> None:
    """Else it would be answered with nothing, and ask again, as fast as both can."""
    rig.hot.throttle_leader(0)
    found = waiting(rig, led)
    assert (found.error, found.records) == (0, b"")


def test_other_partitions_of_its_fetch_do_not_wait(rig: Rig, led: Topic) -> None:
    free = throttled(rig, "v", batches=0)
    free.logs[0].throttle(False)
    rig.hot.throttle_leader(0)
    follower = rig.client()
    asks = [Ask(led), Ask(free)]
    fetch(follower, 17, asks, replica_id=LAGGING)
    follower.send(fetch_frame(17, asks, replica_id=LAGGING, max_wait_ms=LONG_MS))
    rig.wait_parked(1)
    free.logs[0].append(BATCH)
    rig.hot.wake(free.logs[0])
    found = list(fetched_in(17, follower.receive()).partitions.values())
    assert [bool(each.records) for each in found] == [False, True]


def test_it_is_noted_all_the_same(rig: Rig, led: Topic) -> None:
    """How far it is: with that it may join those in sync."""
    rig.hot.throttle_leader(0)
    fetch(rig.client(), 17, [Ask(led, 0, 4)], replica_id=LAGGING)
    assert [each[2] for each in led.logs[0].followers() if each[0] == LAGGING] == [4]
    led.logs[0].set_leadership(NODE_ID, True, 0, 3, {LAGGING: True, IN_SYNC: True})
    assert copied(rig, led)
