"""Group append: offsets, epochs, who is left out, rolls, and writes that fail."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine._results import ProducerEntry
from tests.support.led_log import LedLog
from tests.support.record_batches import Record, build_batch, parse_batches
from tests.support.same_hash import cpu_ratio, ids_of_one_hash
from tests.unit.log.conftest import OpenLog


def idempotent(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 9) -> bytes:
    return build_batch(
        [b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def test_offsets_follow_each_other_and_carry_the_epoch(open_log: OpenLog) -> None:
    log = open_log(leader_epoch=4)
    results = log.append_group([build_batch([b"a"] * n) for n in (1, 3, 2)])
    assert [(r.base_offset, r.last_offset) for r in results] == [(0, 0), (1, 3), (4, 5)]
    stored = parse_batches(log.read(0))
    assert [(b.base_offset, b.last_offset, b.leader_epoch) for b in stored] == [
        (0, 0, 4), (1, 3, 4), (4, 5, 4)
    ]  # fmt: skip
    assert log.high_watermark == log.log_end_offset == log.last_stable_offset == 6
    assert log.statistics()["writes"] == 1


def test_one_bad_batch_is_left_out_alone(log: LedLog) -> None:
    corrupt = bytearray(build_batch([b"a"]))
    corrupt[-1] ^= 1
    results = log.append_group([build_batch([b"a"]), bytes(corrupt), build_batch([b"c"])])
    assert [r.error for r in results] == [0, ErrorCode.CORRUPT_MESSAGE, 0]
    assert [r.base_offset for r in results] == [0, -1, 1]
    assert [b.records[0].value for b in parse_batches(log.read(0))] == [b"a", b"c"]


def test_only_a_leader_that_is_online_appends(log: LedLog) -> None:
    log.set_leadership(2, False, 1, 1)
    with pytest.raises(KafkaError) as caught:
        log.append(build_batch())
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    log.set_leadership(1, True, 2, 1)
    log.append(build_batch())
    log.close(clean=False)
    with pytest.raises(KafkaError) as caught:
        log.append(build_batch())
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_minimum_in_sync_replicas_is_for_acks_all(open_log: OpenLog) -> None:
    log = open_log(min_insync_replicas=2)
    with pytest.raises(KafkaError) as caught:
        log.append(build_batch(), acks=-1)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert log.log_end_offset == 0
    log.append(build_batch(), acks=1)
    log.set_leadership(1, True, 0, 2, {2: True})
    log.append(build_batch(), acks=-1)


def test_with_followers_the_high_watermark_waits(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=300)
    log.set_leadership(1, True, 0, 2, {2: True})
    for _ in range(10):
        log.append(build_batch([b"v" * 20] * 2))
    assert (log.high_watermark, log.log_end_offset) == (0, 20)
    assert log.read(0) == b""
    for mark in (2, 4, 10, 14, 20):
        log.set_high_watermark(mark)
        assert log.high_watermark == mark
        last = parse_batches(b"".join(pieces(log)))[-1].last_offset
        assert last == mark - 1
    log.set_leadership(1, True, 0, 1)
    assert log.high_watermark == 20


def pieces(log: LedLog) -> Iterator[bytes]:
    offset = 0
    while data := log.read(offset):
        yield data
        offset = parse_batches(data)[-1].last_offset + 1


# --- Rolls ----------------------------------------------------------------------------------------


def bases(path: Path) -> list[int]:
    return sorted(int(file.stem) for file in path.glob("*.log"))


def test_a_segment_takes_no_more_than_its_size(open_log: OpenLog) -> None:
    batch = build_batch([b"x" * 40])
    log = open_log(segment_bytes=3 * len(batch))
    log.append_group([batch] * 10)
    assert bases(log.path) == [0, 3, 6, 9]
    assert all(f.stat().st_size <= 3 * len(batch) for f in log.path.glob("*.log"))
    assert [b.base_offset for b in parse_batches(b"".join(pieces(log)))] == list(range(10))


def test_a_group_larger_than_one_write(log: LedLog) -> None:
    results = log.append_group([build_batch([b"x"])] * 1_000)
    assert [r.base_offset for r in results] == list(range(1_000))
    assert 1 < log.statistics()["writes"] <= 8


def test_the_roll_by_time_counts_from_the_first_batchs_own(open_log: OpenLog) -> None:
    log = open_log(segment_ms=1_000)
    for time_ms in (5_000, 6_000, 5_500, 6_001, 7_001, 7_002):
        log.append(build_batch([Record(timestamp_ms=time_ms)]), now_ms=10**12)
    assert bases(log.path) == [0, 3, 5]


def test_a_full_index_rolls(open_log: OpenLog) -> None:
    log = open_log(index_interval_bytes=0, segment_index_bytes=40)
    for _ in range(20):
        log.append(build_batch())
    assert bases(log.path) == [0, 6, 12, 18]  # five entries each, and none for the first batch
    assert [b.base_offset for b in parse_batches(b"".join(pieces(log)))] == list(range(20))


def test_roll_by_hand(log: LedLog) -> None:
    log.roll()
    assert bases(log.path) == [0]
    log.append(build_batch([b"a"] * 4))
    log.roll()
    log.roll()
    assert bases(log.path) == [0, 4]
    assert log.append(build_batch()).base_offset == 4


# --- Idempotent producers -------------------------------------------------------------------------


def test_a_duplicate_gets_the_first_ones_offset(log: LedLog) -> None:
    for sequence in range(0, 18, 3):
        log.append(idempotent(sequence, 3))
    end = log.log_end_offset
    for sequence in range(3, 18, 3):
        result = log.append(idempotent(sequence, 3))
        assert (result.base_offset, result.last_offset) == (sequence, sequence + 2)
        assert result.append_time_ms == 1_000
    assert log.log_end_offset == end
    assert log.statistics()["duplicates"] == 5
    with pytest.raises(KafkaError) as caught:
        log.append(idempotent(0, 3))  # the sixth from the end
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_in_the_same_group(log: LedLog) -> None:
    results = log.append_group([idempotent(0), idempotent(1), idempotent(1), idempotent(2)])
    assert [(r.error, r.base_offset) for r in results] == [(0, 0), (0, 1), (0, 1), (0, 2)]


def test_sequences_and_epochs(log: LedLog) -> None:
    def code_of(batch: bytes) -> int:
        return log.append_group([batch])[0].error

    assert code_of(idempotent(41, 2)) == 0  # nothing is known of it: any sequence
    assert code_of(idempotent(44)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(idempotent(42)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(idempotent(43)) == 0
    assert code_of(idempotent(44, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(idempotent(0, epoch=1)) == 0
    assert code_of(idempotent(44, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(idempotent(43, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(idempotent(1, epoch=1)) == 0
    assert code_of(idempotent(7, producer_id=10)) == 0


def test_sequences_wrap(log: LedLog) -> None:
    largest = 2**31 - 1
    log.append(idempotent(largest - 1, 4))  # ends at 1
    assert log.append(idempotent(largest - 1, 4)).base_offset == 0
    assert log.append(idempotent(2)).base_offset == 4
    log.append(idempotent(largest, 1, producer_id=10))
    assert log.append(idempotent(0, producer_id=10)).base_offset == 6


def test_a_producer_that_expired_may_begin_anywhere(log: LedLog) -> None:
    log.append(idempotent(0))
    log.append(build_batch([Record(timestamp_ms=5_000)], producer_id=10, producer_epoch=0,
                           base_sequence=0))  # fmt: skip
    assert log.expire_producers(5_000) == 1
    assert log.append(idempotent(77)).base_offset == 2
    with pytest.raises(KafkaError):
        log.append(idempotent(77, producer_id=10))


def test_no_client_chooses_the_places_of_producers(open_log: OpenLog) -> None:
    """A producer that takes any id that it likes would make every append of others look at all."""

    def know(ids: list[int]) -> None:
        log = open_log()
        for one in ids:
            log.restore_producer(ProducerEntry(one, 0, 0, 0, 0, 5, 0, -1))
        log.close(clean=False)

    count = 16_384
    assert cpu_ratio(know, ids_of_one_hash(count), list(range(count))) < 4


# --- Writes that fail -----------------------------------------------------------------------------


@contextmanager
def files_end_at(size_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond that: a write comes up short, then fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_short_write_leaves_the_log_as_it_was(open_log: OpenLog) -> None:
    log = open_log(segment_index_bytes=1_200)
    batch = idempotent(0)
    log.append(batch)
    size = log.size_bytes
    with files_end_at(size + 2 * len(batch) - 1):
        results = log.append_group([idempotent(1), idempotent(1), idempotent(2), build_batch()])
    assert [r.error for r in results] == [ErrorCode.KAFKA_STORAGE_ERROR] * 4
    assert {(r.base_offset, r.last_offset) for r in results} == {(-1, -1)}
    assert (log.log_end_offset, log.high_watermark, log.size_bytes) == (1, 1, size)
    assert next(log.path.glob("*.log")).stat().st_size == size
    assert log.statistics()["failed_writes"] == 1
    # A batch that the producer has to send again is neither a duplicate nor out of order.
    assert log.append(idempotent(1)).base_offset == 1
    assert log.append(idempotent(2)).base_offset == 2
    assert [b.base_sequence for b in parse_batches(log.read(0))] == [0, 1, 2]


def test_a_failed_write_takes_all_after_it(open_log: OpenLog) -> None:
    batch = build_batch([b"x" * 1_000])
    log = open_log(segment_bytes=2 * len(batch), segment_index_bytes=1_200)
    with files_end_at(3 * len(batch)):
        first = log.append_group([batch, batch])
        assert [r.error for r in first] == [0, 0]
    with files_end_at(len(batch) + 10):
        results = log.append_group([batch] * 5)
    assert [r.error for r in results] == [ErrorCode.KAFKA_STORAGE_ERROR] * 5
    assert log.log_end_offset == 2
    assert log.online
    assert [r.base_offset for r in log.append_group([batch] * 3)] == [2, 3, 4]
    assert [b.base_offset for b in parse_batches(b"".join(pieces(log)))] == [0, 1, 2, 3, 4]


def test_earlier_writes_of_a_group_stand(open_log: OpenLog) -> None:
    small, large = build_batch([b"x"]), build_batch([b"x" * 9_000])
    log = open_log(segment_bytes=len(large), segment_index_bytes=1_200)
    with files_end_at(5_000):
        results = log.append_group([small, small, large, small])
    assert [r.error for r in results] == [0, 0, ErrorCode.KAFKA_STORAGE_ERROR,
                                          ErrorCode.KAFKA_STORAGE_ERROR]  # fmt: skip
    assert [r.base_offset for r in results] == [0, 1, -1, -1]
    assert log.append(small).base_offset == 2
