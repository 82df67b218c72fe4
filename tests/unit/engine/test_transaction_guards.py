"""Guards of transactional produces, through the network: the events that end them, and the batches
that need none."""

from __future__ import annotations

import pytest

from kbroker._net import WrappedRequest
from kbroker.errors import ErrorCode
from kbroker.handlers.produce import ColdProduce
from kbroker.replica._open_transactions import abort, open_transactions
from tests.support.record_batches import build_batch
from tests.unit.engine.transactional import (
    ID,
    PRODUCER,
    Coordinator,
    batch,
    codes,
    ends,
    received,
    send,
)
from tests.unit.engine.wire import PRODUCE_VERSIONS, produce_frame, produced_in
from tests.unit.net.harness import Rig, Topic, eventually

every_version = pytest.mark.parametrize("version", PRODUCE_VERSIONS)


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


# --- what is left of a verification ---------------------------------------------------------------


def hanging(rig: Rig, coordinator: Coordinator, stored_codec: int = -1) -> Topic:
    """A partition in which a transaction of epoch 0 is open."""
    topic = rig.create("t", stored_codec=stored_codec)
    client = rig.client()
    send(client, (topic, {0: batch()}))
    coordinator.next().answer()
    assert codes(client) == [0]
    return topic


def may_abort(topic: Topic) -> bool:
    """Whether the leader may end it: not while a batch of that producer is being verified."""
    (seen,) = open_transactions(topic.logs[0])
    return abort(topic.logs[0], seen).error is ErrorCode.NONE


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.COORDINATOR_NOT_AVAILABLE]
)
def test_a_verification_that_is_over_keeps_no_hanging_transaction(
    rig: Rig, coordinator: Coordinator, code: ErrorCode
) -> None:
    topic = hanging(rig, coordinator)
    first, second = rig.client(), rig.client()
    send(first, (topic, {0: batch(epoch=1)}))
    asked = coordinator.next()
    assert not may_abort(topic)
    send(second, (topic, {0: batch(epoch=1)}))
    coordinator.next().answer(code)
    assert codes(second) != [0]
    assert not may_abort(topic)  # the first one waits still
    asked.answer(code)
    assert codes(first) != [0]
    assert may_abort(topic)


def test_a_train_waits_once(rig: Rig, coordinator: Coordinator) -> None:
    topic = hanging(rig, coordinator)
    client = rig.client()
    client.send(
        b"".join(
            produce_frame(
                9, [(topic, {0: batch(2 * number, epoch=1)})], acks=-1, transactional_id=ID,
                correlation_id=number,
            )
            for number in range(4)
        )
    )  # fmt: skip
    left = 4
    while left:
        coordinator.next().answer(ErrorCode.INVALID_TXN_STATE)
        while left and not coordinator.asked:
            produced_in(9, client.receive())
            left -= 1
    assert may_abort(topic)


def test_an_abandoned_verification_keeps_no_hanging_transaction(
    rig: Rig, coordinator: Coordinator
) -> None:
    topic = hanging(rig, coordinator)
    late, gone = rig.client(), rig.client()
    send(late, (topic, {0: batch(epoch=1)}))
    coordinator.next()
    rig.expire_all(late)
    assert codes(late) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    send(gone, (topic, {0: batch(epoch=1)}))
    coordinator.next()
    gone.reset()
    eventually(lambda: may_abort(topic), "nothing waits")


def test_a_batch_that_the_log_refuses_is_not_about_to_come(
    rig: Rig, coordinator: Coordinator
) -> None:
    topic = hanging(rig, coordinator)
    client = rig.client()
    send(client, (topic, {0: batch(5, epoch=1)}))
    coordinator.next().answer()
    assert codes(client) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert may_abort(topic)


def test_a_batch_that_python_cannot_unpack_is_not_about_to_come(
    rig: Rig, coordinator: Coordinator
) -> None:
    topic = hanging(rig, coordinator, stored_codec=0)
    held: list[WrappedRequest] = []
    rig.dispatch = held.append
    client = rig.client()
    send(client, (topic, {0: batch(epoch=1, codec="gzip")}))
    coordinator.next().answer()
    eventually(lambda: held, "it goes to Python")
    assert not may_abort(topic)

    class Fails:
        def __getattr__(self, name: str) -> None:
            raise RuntimeError(name)

    with pytest.raises(RuntimeError):
        ColdProduce(rig.hot, rig.ticks.append).handle(Fails(), held[0])  # type: ignore[arg-type]
    assert may_abort(topic)
    held[0].close_connection("as the registry does")
    assert client.ended()


def test_made_up_producers_shut_no_other_out(rig: Rig, coordinator: Coordinator) -> None:
    """However many have been refused; here it is the number that may wait at once."""
    topic = rig.create("t")
    log = topic.logs[0]
    for producer_id in range(10_000):
        _, guard = log.begin_verification(producer_id, 0, 0, bumps_epoch=False)
        log.end_verification(producer_id, guard, refused=producer_id % 2 == 0)
    client = rig.client()
    for producer_id in range(20_000, 20_003):
        send(client, (topic, {0: batch(producer=producer_id)}))
        coordinator.next().answer()
        assert codes(client) == [0]


def test_the_next_batch_does_not_overtake_one_that_is_tried_again(
    rig: Rig, coordinator: Coordinator
) -> None:
    """As in Apache Kafka: a client has more than one request on its way, and the partition does not
    know the producer yet."""
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch(0)}))
    coordinator.next().answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert codes(client) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    send(client, (topic, {0: batch(2)}))
    coordinator.next().answer()
    assert codes(client) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    for sequence in (0, 2):
        send(client, (topic, {0: batch(sequence)}))
        if sequence == 0:
            coordinator.next().answer()
        assert codes(client) == [0]
