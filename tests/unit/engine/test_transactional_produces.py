"""Produces that begin a transaction in a partition, through the network: they wait until their
coordinator has answered, and go on with its errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kbroker._net import WrappedRequest
from kbroker.core._live_objects import live_counts
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from tests.unit.engine.following import LONG_MS, follow, nothing_waits, replicated
from tests.unit.engine.transactional import (
    ID,
    PLAIN,
    PRODUCER,
    Coordinator,
    batch,
    codes,
    ends,
    received,
    send,
)
from tests.unit.engine.wire import PRODUCE_BY_ID, PRODUCE_VERSIONS, produce_frame, produced_in
from tests.unit.net.harness import Rig, eventually

every_version = pytest.mark.parametrize("version", PRODUCE_VERSIONS)


# --- one request ----------------------------------------------------------------------------------


@every_version
def test_the_first_batch_waits_until_the_coordinator_has_answered(
    rig: Rig, coordinator: Coordinator, version: int
) -> None:
    topic = rig.create("t", 2)
    client = rig.client()
    send(client, (topic, {0: batch(), 1: batch()}), version=version)
    asked = coordinator.next()
    assert (asked.transactional_id, asked.producer_id, asked.epoch) == (ID, PRODUCER, 0)
    assert asked.partitions == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert asked.adds == (version >= 12)
    assert ends(topic) == [0, 0]
    assert rig.hot.statistics()["parked_now"] == 1
    asked.answer()
    assert [(p.error, p.base_offset) for p in received(client, version)] == [(0, 0), (0, 0)]
    assert ends(topic) == [2, 2]
    nothing_waits(rig)


@every_version
def test_batches_after_it_wait_no_more(rig: Rig, coordinator: Coordinator, version: int) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}), version=version)
    coordinator.next().answer()
    assert codes(client, version) == [0]
    for number in range(1, 4):
        send(client, (topic, {0: batch(2 * number)}), version=version)
        assert codes(client, version) == [0]
    assert coordinator.asked == []
    assert ends(topic) == [8]


@every_version
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (ErrorCode.NETWORK_EXCEPTION, "NETWORK_EXCEPTION"),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "COORDINATOR_LOAD_IN_PROGRESS"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.NOT_COORDINATOR, "NOT_COORDINATOR"),
    ],
)
def test_a_refusal_that_is_over_soon_is_tried_again(
    rig: Rig, coordinator: Coordinator, version: int, code: ErrorCode, message: str
) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}), version=version)
    coordinator.next().answer(code)
    (got,) = received(client, version)
    assert (got.error, got.base_offset, got.log_start_offset) == (
        ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1,
    )  # fmt: skip
    if version >= 8:
        text = "Unable to verify the partition has been added to the transaction. "
        assert got.message == f"{text}Underlying error: {message}"
    assert ends(topic) == [0]
    send(client, (topic, {0: batch()}), version=version)  # its next attempt
    coordinator.next().answer()
    assert codes(client, version) == [0]


@every_version
def test_other_errors(rig: Rig, coordinator: Coordinator, version: int) -> None:
    topic = rig.create("t", 4)
    client = rig.client()
    send(client, (topic, {index: batch() for index in range(4)}), version=version)
    coordinator.next().answer(
        p0=ErrorCode.TRANSACTION_ABORTABLE,
        p1=ErrorCode.INVALID_PRODUCER_EPOCH,
        p2=ErrorCode.CONCURRENT_TRANSACTIONS,
    )
    got = received(client, version)
    abortable = ErrorCode.TRANSACTION_ABORTABLE if version >= 11 else ErrorCode.INVALID_TXN_STATE
    concurrent = (
        ErrorCode.CONCURRENT_TRANSACTIONS if version >= 12 else ErrorCode.NOT_ENOUGH_REPLICAS
    )
    assert [each.error for each in got] == [
        abortable, ErrorCode.INVALID_PRODUCER_EPOCH, concurrent, ErrorCode.NONE,
    ]  # fmt: skip
    if 8 <= version < 11:
        assert got[0].message == "Partition was not added to the transaction"
    assert ends(topic) == [0, 0, 0, 2]


@every_version
def test_nothing_of_the_request_is_appended_before(
    rig: Rig, coordinator: Coordinator, version: int
) -> None:
    topic, other = rig.create("t", 2), rig.create("u")
    client = rig.client()
    send(client, (topic, {0: batch()}), version=version)
    coordinator.next().answer()
    assert codes(client, version) == [0]
    send(client, (topic, {0: batch(2), 1: batch()}), (other, {0: PLAIN}), version=version)
    asked = coordinator.next()
    assert asked.partitions == [TopicPartition("t", 1)]
    assert ends(topic) + ends(other) == [2, 0, 0]
    asked.answer(ErrorCode.TRANSACTION_ABORTABLE)
    refused = ErrorCode.TRANSACTION_ABORTABLE if version >= 11 else ErrorCode.INVALID_TXN_STATE
    assert codes(client, version) == [0, refused, 0]
    assert ends(topic) + ends(other) == [4, 0, 2 - 1]


def test_topics_are_asked_for_by_name(rig: Rig, coordinator: Coordinator) -> None:
    topic, other = rig.create("t"), rig.create("other topic")
    send(rig.client(), (topic, {0: batch()}), (other, {0: batch()}), version=PRODUCE_BY_ID)
    partitions = coordinator.next().partitions
    assert partitions == [TopicPartition("t", 0), TopicPartition("other topic", 0)]


@every_version
def test_a_request_writes_for_one_producer(
    rig: Rig, coordinator: Coordinator, version: int
) -> None:
    topic = rig.create("t", 3)
    client = rig.client()
    for other in (batch(producer=8), batch(epoch=1)):
        send(client, (topic, {0: batch(), 1: other, 2: PLAIN}), version=version)
        assert codes(client, version) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3
    assert coordinator.asked == []
    assert ends(topic) == [0, 0, 0]


@every_version
def test_an_id_is_needed(rig: Rig, coordinator: Coordinator, version: int) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}), version=version, transactional_id=None)
    assert codes(client, version) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    send(client, (topic, {0: PLAIN}), version=version)  # without a transaction
    assert codes(client, version) == [0]
    assert coordinator.asked == []


@pytest.mark.parametrize("version", [3, 9, 11, 12, 13])
def test_verification_may_be_switched_off(rig: Rig, coordinator: Coordinator, version: int) -> None:
    rig.hot.verify_transactions(False)
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}), version=version)
    if version >= 12:
        coordinator.next().answer()  # adding is another matter
    assert codes(client, version) == [0]
    assert coordinator.asked == []
    rig.hot.verify_transactions(True)
    send(client, (topic, {0: batch(producer=8)}), version=version)
    coordinator.next().answer()
    assert codes(client, version) == [0]


def test_a_response_to_acks_0_is_not_waited_for(rig: Rig, coordinator: Coordinator) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}), acks=0)
    coordinator.next().answer()
    eventually(lambda: ends(topic) == [2], "it is appended")
    send(client, (topic, {0: batch(2)}))
    assert codes(client) == [0]


def test_an_error_of_acks_0_ends_the_connection(rig: Rig, coordinator: Coordinator) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}), acks=0)
    coordinator.next().answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert client.ended()
    assert ends(topic) == [0]


def test_it_waits_for_its_followers_afterwards(rig: Rig, coordinator: Coordinator) -> None:
    topic = replicated(rig)
    client = rig.client()
    send(client, (topic, {0: batch()}))
    coordinator.next().answer()
    eventually(lambda: ends(topic) == [2], "it is appended")
    assert not client.has_bytes()
    follow(rig, topic.logs[0])
    assert codes(client) == [0]
    nothing_waits(rig)


# --- order ----------------------------------------------------------------------------------------


def test_a_train_waits_as_a_whole_and_asks_once(rig: Rig, coordinator: Coordinator) -> None:
    topic = rig.create("t", 2)
    client = rig.client()
    frames = [(0, 0), (0, 2), (1, 0), (0, 4), (1, 2)]
    client.send(
        b"".join(
            produce_frame(
                9,
                [(topic, {index: batch(sequence)})],
                acks=-1,
                timeout_ms=LONG_MS,
                transactional_id=ID,
                correlation_id=number,
            )
            for number, (index, sequence) in enumerate(frames)
        )
    )
    left = len(frames)
    while left:
        asked = coordinator.next()
        asked.answer()
        while left and not coordinator.asked:
            number, answer = produced_in(9, client.receive())
            assert number == len(frames) - left
            assert [each.error for each in answer.values()] == [0]
            left -= 1
    assert ends(topic) == [6, 4]


def test_a_channel_is_not_read_while_its_request_is_verified(
    rig: Rig, coordinator: Coordinator
) -> None:
    topic, other = rig.create("t"), rig.create("u")
    client = rig.client()
    send(client, (topic, {0: batch()}), correlation_id=1)
    asked = coordinator.next()
    client.send(produce_frame(9, [(other, {0: PLAIN})], correlation_id=2))
    second = rig.client()
    second.send(produce_frame(9, [(other, {0: PLAIN})]))
    produced_in(9, second.receive())
    assert ends(other) == [1]  # the other connection's
    asked.answer()
    assert [produced_in(9, client.receive())[0] for _ in range(2)] == [1, 2]


# --- what may end the wait ------------------------------------------------------------------------


def test_the_deadline_ends_the_wait(rig: Rig, coordinator: Coordinator) -> None:
    topic = rig.create("t", 2)
    client = rig.client()
    send(client, (topic, {0: batch(), 1: PLAIN}))
    asked = coordinator.next()
    rig.expire_all(client)
    assert codes(client) == [ErrorCode.NOT_ENOUGH_REPLICAS, 0]
    asked.answer()  # too late
    assert ends(topic) == [0, 1]
    nothing_waits(rig)


def test_a_connection_that_goes_takes_its_request_with_it(
    rig: Rig, coordinator: Coordinator
) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}))
    asked = coordinator.next()
    client.reset()
    eventually(lambda: rig.hot.statistics()["parked_now"] == 0, "the wait ends")
    asked.answer()
    assert ends(topic) == [0]
    nothing_waits(rig)


def test_a_producer_that_sends_no_more_is_answered_at_once(
    rig: Rig, coordinator: Coordinator
) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}))
    coordinator.next()
    client.end_sending()
    assert codes(client) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert client.ended()


def test_the_end_of_the_broker_ends_the_wait(rig: Rig, coordinator: Coordinator) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}))
    asked = coordinator.next()
    rig.stop()
    assert ends(topic) == [0]
    assert live_counts()["parked_requests"] == 0
    asked.answer()  # too late


def test_a_topic_that_is_deleted_meanwhile(rig: Rig, coordinator: Coordinator) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}))
    asked = coordinator.next()
    rig.delete("t")
    asked.answer()
    assert codes(client) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_another_broker_leads_meanwhile(rig: Rig, coordinator: Coordinator) -> None:
    topic = rig.create("t")
    client = rig.client()
    send(client, (topic, {0: batch()}))
    asked = coordinator.next()
    topic.logs[0].set_leadership(2, False, 1, 1)
    asked.answer()
    assert codes(client) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert ends(topic) == [0]


def test_a_broker_that_leads_no_partition_of_it_asks_for_nothing(
    rig: Rig, coordinator: Coordinator
) -> None:
    topic = rig.create("t")
    topic.logs[0].set_leadership(2, False, 1, 1)
    client = rig.client()
    send(client, (topic, {0: batch()}))
    assert codes(client) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert coordinator.asked == []


def test_a_request_that_cannot_be_kept_is_answered_at_once(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As everything that waits; here since the broker is about to stop."""
    rig = make_rig()
    coordinator = Coordinator()
    rig.verify = coordinator.verify
    topic = rig.create("t", 2)
    client = rig.client()
    rig.hot.close_parked()
    send(client, (topic, {0: batch(), 1: PLAIN}))
    assert codes(client) == [ErrorCode.NOT_ENOUGH_REPLICAS, 0]
    assert coordinator.asked == []


def test_many_wait_beside_one_another(rig: Rig, coordinator: Coordinator) -> None:
    topic = rig.create("t")
    clients = [rig.client() for _ in range(40)]
    for number, client in enumerate(clients):
        send(client, (topic, {0: batch(producer=100 + number)}))
    eventually(lambda: len(coordinator.asked) == len(clients), "each is asked for")
    for asked in reversed(coordinator.asked):
        asked.answer()
    assert [codes(client) for client in clients] == [[0]] * len(clients)
    assert ends(topic) == [2 * len(clients)]


def test_a_coordinator_that_answers_at_once(make_rig: Callable[..., Rig]) -> None:
    """On the thread of the handler that asks, as the coordinator of this broker may."""
    rig = make_rig(handlers=3)

    def verify(
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        done(dict.fromkeys(partitions, ErrorCode.NONE))

    rig.verify = verify
    topic = rig.create("t")
    clients = [rig.client() for _ in range(8)]
    for turn in range(25):
        for number, client in enumerate(clients):
            send(client, (topic, {0: batch(producer=1000 * number + turn)}), version=12)
        assert [codes(client, 12) for client in clients] == [[0]] * len(clients)
    assert ends(topic) == [2 * 8 * 25]
    nothing_waits(rig)


def test_a_topic_that_stores_another_codec(rig: Rig, coordinator: Coordinator) -> None:
    """Python looks into the batch once it has been verified, and its guard is still known then."""
    topic = rig.create("t", stored_codec=0)
    held: list[WrappedRequest] = []
    rig.dispatch = held.append
    client = rig.client()
    send(client, (topic, {0: batch(codec="gzip")}))
    assert held == []
    coordinator.next().answer()
    eventually(lambda: held, "it goes to Python")
    ((ordinal, *_),) = rig.hot.produce_batches(held[0])
    unknown, _ = rig.hot.produce_checked(held[0], {}, {ordinal: bytearray(batch())}, {})
    assert unknown == []
    assert codes(client) == [0]
    assert coordinator.asked == []
    assert ends(topic) == [2]
