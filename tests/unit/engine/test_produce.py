"""Produce through the real hot path, in every version, with kio as the client."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest

from kbroker._net import WrappedRequest
from kbroker.errors import ErrorCode
from kbroker.types import ApiKey
from tests.support.record_batches import Record, build_batch, parse_batches, seal
from tests.unit.engine.wire import (
    PRODUCE_BY_ID,
    PRODUCE_VERSIONS,
    key_of,
    produce,
    produce_frame,
    produce_one,
    produced_in,
)
from tests.unit.net.harness import Rig, Topic, eventually, framed

LOG_APPEND_TIME = 0x08
UNKNOWN_ID = uuid.UUID(int=5)
every_version = pytest.mark.parametrize("version", PRODUCE_VERSIONS)


def values(topic: Topic, index: int = 0) -> list[bytes | None]:
    log = topic.logs[index]
    batches = parse_batches(log.read(log.log_start_offset)) if log.log_end_offset else []
    return [record.value for batch in batches for record in batch.records]


@every_version
def test_a_good_batch_is_appended_and_answered_with_its_offset(rig: Rig, version: int) -> None:
    topic = rig.create("t", partitions=2)
    client = rig.client()
    name = key_of(topic, 1, by_id=version >= PRODUCE_BY_ID)
    for expected in (0, 3):
        batch = build_batch([b"a", b"b", b"c"])
        answer = produce(client, version, [(topic, {1: batch})])
        assert list(answer) == [name]
        assert (answer[name].error, answer[name].base_offset) == (0, expected)
        assert answer[name].append_time_ms == -1
        assert answer[name].log_start_offset == (0 if version >= 5 else -1)
    assert values(topic, 1) == [b"a", b"b", b"c"] * 2
    assert topic.logs[0].log_end_offset == 0


@every_version
def test_an_unknown_topic_and_partition_do_not_hold_the_others_up(rig: Rig, version: int) -> None:
    topic = rig.create("t", partitions=1)
    unknown = Topic("nowhere", UNKNOWN_ID, [])
    batch = build_batch()
    by_id = version >= PRODUCE_BY_ID
    answer = produce(
        rig.client(), version, [(unknown, {0: batch}), (topic, {0: batch, 1: batch, -1: batch})]
    )
    missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {name: result.error for name, result in answer.items()} == {
        key_of(unknown, 0, by_id=by_id): missing,
        key_of(topic, 0, by_id=by_id): 0,
        key_of(topic, 1, by_id=by_id): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        key_of(topic, -1, by_id=by_id): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert topic.logs[0].log_end_offset == 1


@every_version
def test_answers_keep_the_order_of_the_request(rig: Rig, version: int) -> None:
    topics = [rig.create(name, partitions=4) for name in ("z", "a", "m")]
    order = (3, 0, 2, 1)
    batches = [(topic, {index: build_batch() for index in order}) for topic in topics]
    answer = produce(rig.client(), version, batches)
    by_id = version >= PRODUCE_BY_ID
    assert list(answer) == [key_of(t, i, by_id=by_id) for t in topics for i in order]


@every_version
def test_a_bad_crc_fails_alone(rig: Rig, version: int) -> None:
    topic = rig.create("t", partitions=2)
    good = build_batch([b"good"])
    bad = bytearray(build_batch([b"bad"]))
    bad[-1] ^= 1
    answer = produce(rig.client(), version, [(topic, {0: bytes(bad), 1: good})])
    by_id = version >= PRODUCE_BY_ID
    failed = answer[key_of(topic, 0, by_id=by_id)]
    assert (failed.error, failed.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert answer[key_of(topic, 1, by_id=by_id)].error == 0
    assert topic.logs[0].log_end_offset == 0


@every_version
@pytest.mark.parametrize("records", [None, b""])
def test_a_partition_without_records_is_invalid(
    rig: Rig, version: int, records: bytes | None
) -> None:
    topic = rig.create("t")
    answer = produce(rig.client(), version, [(topic, {0: records})])
    (result,) = answer.values()
    assert result.error == ErrorCode.INVALID_RECORD
    assert result.message is None  # as Apache Kafka: the code says it all


@every_version
@pytest.mark.parametrize("acks", [1, -1])
def test_acks_1_and_all_are_answered(rig: Rig, version: int, acks: int) -> None:
    topic = rig.create("t")
    (result,) = produce(rig.client(), version, [(topic, {0: build_batch()})], acks=acks).values()
    assert (result.error, result.base_offset) == (0, 0)


@every_version
def test_acks_0_is_not_answered_and_the_next_request_is(rig: Rig, version: int) -> None:
    topic = rig.create("t")
    client = rig.client()
    client.send(produce_frame(version, [(topic, {0: build_batch([b"quiet"])})], acks=0))
    client.send(
        produce_frame(version, [(topic, {0: build_batch([b"loud"])})], acks=1, correlation_id=9)
    )
    correlation_id, answer = produced_in(version, client.receive())
    (result,) = answer.values()
    assert (correlation_id, result.base_offset) == (9, 1)
    assert values(topic) == [b"quiet", b"loud"]


@every_version
def test_acks_0_with_an_error_closes(rig: Rig, version: int) -> None:
    client = rig.client()
    unknown = Topic("nowhere", UNKNOWN_ID, [])
    client.send(produce_frame(version, [(unknown, {0: build_batch()})], acks=0))
    assert client.ended()


@every_version
@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_other_acks_are_refused_for_each_partition(rig: Rig, version: int, acks: int) -> None:
    topic = rig.create("t", partitions=2)
    batch = build_batch()
    answer = produce(rig.client(), version, [(topic, {0: batch, 1: batch})], acks=acks)
    assert [r.error for r in answer.values()] == [ErrorCode.INVALID_REQUIRED_ACKS] * 2
    assert [r.base_offset for r in answer.values()] == [-1, -1]
    assert topic.logs[0].log_end_offset == 0


@every_version
def test_a_frame_cut_anywhere_closes_and_writes_nothing(rig: Rig, version: int) -> None:
    topic = rig.create("t", partitions=2)
    batches = [(topic, {0: build_batch([b"abc"]), 1: build_batch([b"def"])})]
    payload = produce_frame(version, batches)[4:]
    for length in range(8, len(payload)):
        client = rig.client()
        client.send(framed(payload[:length]))
        assert client.ended(), f"cut at {length} of {len(payload)}"
        client.close()
    assert [log.log_end_offset for log in topic.logs] == [0, 0]


@every_version
def test_counts_and_lengths_that_lie_close(rig: Rig, version: int) -> None:
    # Each four bytes in turn claim as much as they can; the batch itself is not touched.
    topic = rig.create("t")
    batch = build_batch([b"abc"])
    payload = produce_frame(version, [(topic, {0: batch})])[4:]
    for at in range(8, payload.index(batch)):
        lied = payload[:at] + b"\x7f\xff\xff\xff" + payload[at + 4 :]
        client = rig.client()
        client.send(framed(lied))
        client.end_sending()
        # Either an answer or the end, and never a dead broker.
        assert client.ended() or client.read(1 << 20)
        client.close()
    alive = produce_one(rig.client(), topic, build_batch())
    assert alive.error == 0


def test_a_train_with_a_malformed_frame_answers_those_before_it(rig: Rig) -> None:
    topic = rig.create("t")
    client = rig.client()
    good = [
        produce_frame(7, [(topic, {0: build_batch([b"%d" % i])})], correlation_id=i)
        for i in range(3)
    ]
    client.send(b"".join(good) + framed(good[0][4:-10]) + good[0])
    for i in range(3):
        correlation_id, answer = produced_in(7, client.receive())
        assert (correlation_id, [r.base_offset for r in answer.values()]) == (i, [i])
    assert client.ended()
    assert topic.logs[0].log_end_offset == 3


@pytest.mark.parametrize("version", [v for v in PRODUCE_VERSIONS if v >= 8])
def test_a_bad_record_is_named(rig: Rig, version: int) -> None:
    topic = rig.create("t", compacted=True)
    records = [Record(b"v", key=b"k"), Record(b"v", key=None)]
    (result,) = produce(rig.client(), version, [(topic, {0: build_batch(records)})]).values()
    assert (result.error, result.record_errors) == (ErrorCode.INVALID_RECORD, (1,))
    assert result.message


def test_log_append_time_is_answered(rig: Rig) -> None:
    topic = rig.create("t", log_append_time=True)
    before_ms = time.time_ns() // 1_000_000
    result = produce_one(rig.client(), topic, build_batch())
    assert before_ms <= result.append_time_ms <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_log_append_time_of_a_batch_that_python_looks_into(
    make_rig: Callable[..., Rig], codec: str
) -> None:
    """It is validated twice, and the client has not set the time."""

    def dispatch(request: WrappedRequest) -> None:
        assert rig.hot.produce_checked(request, {}, {}, {}) == ([], [])

    rig = make_rig(dispatch=dispatch)
    topic = rig.create("t", log_append_time=True)
    rig.server.set_cold(ApiKey.PRODUCE)
    result = produce_one(rig.client(), topic, build_batch(codec=codec))
    assert (result.error, result.message) == (0, None)
    (batch,) = parse_batches(topic.logs[0].read(0))
    assert batch.max_timestamp_ms == result.append_time_ms
    assert batch.attributes & LOG_APPEND_TIME


def test_an_internal_topic_is_refused(rig: Rig) -> None:
    topic = rig.create("__consumer_offsets", internal=True)
    result = produce_one(rig.client(), topic, build_batch())
    assert result.error == ErrorCode.INVALID_TOPIC_EXCEPTION


# --- Idempotent producers ------------------------------------------------------------------------


def idempotent(sequence: int, count: int = 2, epoch: int = 0) -> bytes:
    return build_batch(
        [b"%d" % (sequence + i) for i in range(count)],
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def test_a_duplicate_is_answered_with_the_first_offset(rig: Rig) -> None:
    topic = rig.create("t")
    client, other = rig.client(), rig.client()
    assert produce_one(client, topic, idempotent(0)).base_offset == 0
    assert produce_one(client, topic, idempotent(2)).base_offset == 2
    for producer in (client, other):
        again = produce_one(producer, topic, idempotent(0))
        assert (again.error, again.base_offset) == (0, 0)
    assert topic.logs[0].log_end_offset == 4


def test_a_duplicate_in_the_same_train_is_seen(rig: Rig) -> None:
    topic = rig.create("t")
    client = rig.client()
    client.send(
        b"".join(
            produce_frame(9, [(topic, {0: idempotent(sequence)})], correlation_id=i)
            for i, sequence in enumerate((0, 0, 2, 2, 0))
        )
    )
    answers = [produced_in(9, client.receive()) for _ in range(5)]
    assert [correlation_id for correlation_id, _ in answers] == [0, 1, 2, 3, 4]
    assert [r.base_offset for _, a in answers for r in a.values()] == [0, 0, 2, 2, 0]
    assert [r.error for _, a in answers for r in a.values()] == [0] * 5
    assert values(topic) == [b"0", b"1", b"2", b"3"]


def test_a_gap_and_an_old_epoch_fail_and_the_right_sequence_goes_on(rig: Rig) -> None:
    topic = rig.create("t")
    client = rig.client()
    assert produce_one(client, topic, idempotent(0, epoch=1)).error == 0
    gap = produce_one(client, topic, idempotent(4, epoch=1))
    assert gap.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = produce_one(client, topic, idempotent(2, epoch=0))
    assert old.error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce_one(client, topic, idempotent(2, epoch=1)).base_offset == 2


# --- Many at once --------------------------------------------------------------------------------


@pytest.mark.parametrize("handlers", [1, 4])
def test_appends_of_many_connections_are_contiguous_and_lose_nothing(
    make_rig: Callable[..., Rig], handlers: int
) -> None:
    rig = make_rig(handlers=handlers)
    topic = rig.create("t", partitions=2)
    clients = [rig.client() for _ in range(12)]
    rounds, depth = 20, 5
    acknowledged: dict[int, dict[int, bytes]] = {0: {}, 1: {}}
    for turn in range(rounds):
        for number, client in enumerate(clients):
            client.send(
                b"".join(
                    produce_frame(
                        9,
                        [
                            (
                                topic,
                                {p: build_batch([b"%d-%d-%d" % (turn, number, i)]) for p in (0, 1)},
                            )
                        ],
                        correlation_id=i,
                    )
                    for i in range(depth)
                )
            )
        for number, client in enumerate(clients):
            for i in range(depth):
                correlation_id, answer = produced_in(9, client.receive())
                assert correlation_id == i
                for (_, index), result in answer.items():
                    assert result.error == 0
                    assert result.base_offset not in acknowledged[index]
                    acknowledged[index][result.base_offset] = b"%d-%d-%d" % (turn, number, i)
    total = rounds * depth * len(clients)
    for index in (0, 1):
        assert sorted(acknowledged[index]) == list(range(total))
        assert values(topic, index) == [acknowledged[index][o] for o in range(total)]
    handlers_seen = rig.hot.statistics()["handlers"]
    # None is lost; one that a slow file had set aside came in a run a second time.
    assert sum(h["run_requests"] for h in handlers_seen) >= rig.total("requests") - (
        rig.total("train_frames") - rig.total("trains")
    )


def test_a_group_with_a_bad_batch_appends_the_others(rig: Rig) -> None:
    topic = rig.create("t")
    client = rig.client()
    batches = [build_batch([b"%d" % i]) for i in range(6)]
    batches[2] = seal(batches[2])[:-1] + b"\xff"
    client.send(
        b"".join(
            produce_frame(9, [(topic, {0: batch})], correlation_id=i)
            for i, batch in enumerate(batches)
        )
    )
    results = [r for _ in batches for r in produced_in(9, client.receive())[1].values()]
    assert [r.error for r in results] == [0, 0, ErrorCode.CORRUPT_MESSAGE, 0, 0, 0]
    assert [r.base_offset for r in results] == [0, 1, -1, 2, 3, 4]
    assert values(topic) == [b"0", b"1", b"3", b"4", b"5"]


def test_a_closed_log_answers_with_a_storage_error(rig: Rig) -> None:
    topic = rig.create("t")
    client = rig.client()
    assert produce_one(client, topic, build_batch()).error == 0
    topic.logs[0].close(clean=False)
    failed = produce_one(client, topic, build_batch())
    assert failed.error == ErrorCode.KAFKA_STORAGE_ERROR
    eventually(lambda: rig.hot.statistics()["produce_errors"] == 1, "the error is counted")
