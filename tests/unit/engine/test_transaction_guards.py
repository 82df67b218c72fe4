"""Guards of transactional produces, through the network: the events that end them, and the batches
that need none."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode
from tests.support.record_batches import build_batch
from tests.unit.engine.transactional import (
    PRODUCER,
    Coordinator,
    batch,
    codes,
    ends,
    received,
    send,
)
from tests.unit.engine.wire import PRODUCE_VERSIONS
from tests.unit.net.harness import Rig, Topic

every_version = pytest.mark.parametrize("version", PRODUCE_VERSIONS)


@pytest.fixture
def coordinator(rig: Rig) -> Coordinator:
    coordinator = Coordinator()
    rig.verify = coordinator.verify
    return coordinator


def end_transaction(
    topic: Topic, *, epoch: int = 0, version: int = 1, committed: bool = True
) -> None:
    topic.logs[0].append_marker(
        PRODUCER, epoch, 0, committed=committed, transaction_version=version, now_ms=1_000
    )


@every_version
def test_a_marker_ends_the_guard(rig: Rig, coordinator: Coordinator, version: int) -> None:
    """The answer was about the transaction that the marker has ended."""
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}), version=version)
    asked = coordinator.next()
    end_transaction(topic, epoch=int(version >= 12), version=1 + (version >= 12))
    asked.answer()
    refused = ErrorCode.INVALID_PRODUCER_EPOCH if version >= 12 else ErrorCode.INVALID_TXN_STATE
    assert codes(client, version) == [refused]
    assert ends(topic) == [1]
    send(client, (topic, {0: batch(epoch=1)}), version=version)
    coordinator.next().answer()
    assert codes(client, version) == [0]


@pytest.mark.parametrize("version", [12, 13])
def test_a_marker_of_the_same_epoch_keeps_the_guard_of_the_next_transaction(
    rig: Rig, coordinator: Coordinator, version: int
) -> None:
    """TV2: the marker has the epoch with which the next transaction has begun."""
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}), version=version)
    coordinator.next().answer()
    assert codes(client, version) == [0]
    send(client, (topic, {0: batch(epoch=1)}), version=version)
    asked = coordinator.next()
    end_transaction(topic, epoch=1, version=2)
    asked.answer()
    assert codes(client, version) == [0]
    assert ends(topic) == [5]


@every_version
def test_each_transaction_is_verified(rig: Rig, coordinator: Coordinator, version: int) -> None:
    topic = rig.create("t")
    client = rig.client()
    for number in range(3):
        send(client, (topic, {0: batch(2 * number)}), version=version)
        coordinator.next().answer()
        assert codes(client, version) == [0]
        end_transaction(topic, committed=number % 2 == 0)
    assert coordinator.asked == []


@every_version
def test_a_duplicate_is_answered_without_a_question(
    rig: Rig, coordinator: Coordinator, version: int
) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}), version=version)
    coordinator.next().answer()
    assert codes(client, version) == [0]
    end_transaction(topic)
    send(client, (topic, {0: batch()}), version=version)
    assert [(each.error, each.base_offset) for each in received(client, version)] == [(0, 0)]
    assert coordinator.asked == []
    assert ends(topic) == [3]


@every_version
def test_a_fenced_producer_is_answered_without_a_question(
    rig: Rig, coordinator: Coordinator, version: int
) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch(epoch=1)}), version=version)
    coordinator.next().answer()
    assert codes(client, version) == [0]
    send(client, (topic, {0: batch(2, epoch=0)}), version=version)
    assert codes(client, version) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert coordinator.asked == []


def test_a_batch_does_not_overtake_the_one_that_is_verified(
    rig: Rig, coordinator: Coordinator
) -> None:
    topic = rig.create("t")
    first, second = rig.client(), rig.client()
    send(first, (topic, {0: batch(0)}))
    asked = coordinator.next()
    send(second, (topic, {0: batch(2)}))
    coordinator.next().answer()
    assert codes(second) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    asked.answer()
    assert codes(first) == [0]


def test_a_plain_batch_in_an_open_transaction(rig: Rig, coordinator: Coordinator) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}))
    coordinator.next().answer()
    assert codes(client) == [0]
    plain = build_batch([b"v"], producer_id=PRODUCER, producer_epoch=0, base_sequence=2)
    send(client, (topic, {0: plain}))
    assert codes(client) == [ErrorCode.INVALID_TXN_STATE]
