"""What compaction, retention and moves make of transactions."""

from __future__ import annotations

import struct

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.looking.verify import verify
from kbroker.replica._committed_read import CommittedRead, aborted_transactions
from tests.support.led_log import LedLog
from tests.support.record_batches import Record, build_batch
from tests.unit.log.compacted_log import NOW_MS, RETENTION_MS, TRANSACTIONAL, Compacted
from tests.unit.log.two_directories import Two


def end(log: LedLog, producer_id: int, *, committed: bool) -> None:
    found = log.append_marker(
        producer_id, 0, 0, committed=committed, transaction_version=0, now_ms=NOW_MS
    )
    assert found.error == 0


def test_an_aborted_record_is_no_value_of_its_key(compacted: Compacted) -> None:
    compacted.append(b"a")
    compacted.append(b"b", 7)
    compacted.append(b"a", 8)
    compacted.end(7, committed=True)
    compacted.end(8, committed=False)
    compacted.append(b"b", 8)
    compacted.end(8, committed=True)
    compacted.append(b"c")
    compacted.cleaner.clean_all()
    assert compacted.keyed() == [(0, b"a"), (5, b"b"), (7, b"c")]
    index = compacted.log.path / f"{0:020d}.txnindex"
    assert index.read_bytes() == struct.pack(">hqqqq", 0, 8, 2, 4, 5)
    assert aborted_transactions(compacted.log, 0) == [(8, 2)]
    assert not list(compacted.log.path.glob("*.cleaned"))
    assert not list(compacted.log.path.glob("*.swap"))
    assert not verify(compacted.log.path).damage


def test_nothing_is_cleaned_that_is_not_decided(compacted: Compacted) -> None:
    compacted.append(b"a")
    compacted.log.roll()
    compacted.append(b"a", 7)
    compacted.log.roll()
    compacted.append(b"a")
    compacted.cleaner.clean_all()
    assert compacted.keyed() == [(0, b"a"), (1, b"a"), (2, b"a")]
    compacted.end(7, committed=False)
    compacted.cleaner.clean_all()
    assert compacted.keyed() == [(2, b"a")]


def test_segments_that_become_one_keep_their_entries(compacted: Compacted) -> None:
    for producer_id in (7, 8, 9):
        compacted.append(b"a", producer_id)
        compacted.log.roll()
        compacted.end(producer_id, committed=False)
    compacted.append(b"b")
    compacted.cleaner.clean_all()
    assert compacted.keyed() == [(6, b"b")]
    index = compacted.log.path / f"{0:020d}.txnindex"
    assert [each[1:4] for each in struct.iter_unpack(">hqqqq", index.read_bytes())] == [
        (7, 0, 1),
        (8, 2, 3),
        (9, 4, 5),
    ]
    assert not verify(compacted.log.path).damage


# A cleaning or a deletion between the two steps of a read_committed fetch: the bytes that were read
# have aborted records, which the reader must know of.


def test_the_entries_of_a_segment_that_another_has_replaced(compacted: Compacted) -> None:
    compacted.append(b"x")
    compacted.log.roll()
    compacted.append(b"a", 7)
    compacted.append(b"a", 8)
    compacted.end(7, committed=False)
    compacted.log.roll()
    compacted.end(8, committed=False)
    compacted.append(b"b")
    read = CommittedRead(compacted.log, 1)
    before = read.aborted()
    compacted.cleaner.clean_all()
    assert len([*compacted.log.path.glob("*.log")]) == 2
    assert before == read.aborted() == [(7, 1), (8, 2)]


def test_the_entries_of_a_later_segment_that_another_has_replaced(compacted: Compacted) -> None:
    compacted.append(b"x")
    compacted.log.roll()
    compacted.append(b"a", 7)
    compacted.log.roll()
    compacted.append(b"x")
    compacted.log.roll()
    compacted.end(7, committed=False)
    read = CommittedRead(compacted.log, 1)
    compacted.cleaner.clean_all()
    assert len([*compacted.log.path.glob("*.log")]) == 2
    assert read.aborted() == [(7, 1)]


def test_a_read_of_records_that_were_deleted_since(compacted: Compacted) -> None:
    """Its aborted transactions are not known any more, so it ends as one that comes now."""
    compacted.append(b"a", 7)
    compacted.log.roll()
    compacted.append(b"b", 8)
    compacted.end(7, committed=False)
    compacted.end(8, committed=False)
    compacted.log.roll()
    compacted.append(b"c")
    read = CommittedRead(compacted.log, 0)
    assert read.aborted() == [(7, 0)]
    compacted.log.delete_records(compacted.log.high_watermark)
    compacted.log.trim()
    with pytest.raises(KafkaError) as refused:
        read.aborted()
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


# Retention is bounded by the high watermark, as Apache Kafka's is: not by the last stable offset.


@pytest.mark.parametrize("by_age", [True, False], ids=["by age", "by size"])
def test_retention_takes_records_of_open_transactions(compacted: Compacted, by_age: bool) -> None:
    """They stay open, and readers of committed records wait at the new start for their ends."""
    for producer_id in (7, 8):
        compacted.append(b"a", producer_id)
        compacted.log.roll()
    compacted.append(b"a", 7)
    log = compacted.log
    young_ms = NOW_MS + RETENTION_MS
    last = build_batch([Record(b"value", b"b", timestamp_ms=young_ms)])
    log.roll()
    assert log.append(last, guard=-1, now_ms=young_ms).base_offset == 3
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (0, 0, 4)
    if by_age:
        assert log.apply_retention(RETENTION_MS - 1, -1, young_ms) == 3
    else:
        assert log.apply_retention(-1, len(last), NOW_MS) == 3
    log.trim()
    assert len([*log.path.glob("*.log")]) == 1
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (3, 3, 4)
    end(log, 7, committed=False)
    assert (log.last_stable_offset, log.log_end_offset) == (3, 5)  # the other one is open
    end(log, 8, committed=True)
    assert log.last_stable_offset == log.log_end_offset == 6
    assert aborted_transactions(log, 3) == [(7, 0)]
    compacted.stop()
    compacted.start()
    assert (compacted.log.log_start_offset, compacted.log.last_stable_offset) == (3, 6)
    assert aborted_transactions(compacted.log, 3) == [(7, 0)]
    assert not verify(compacted.log.path).damage


def test_an_open_transaction_whose_records_went_outlives_a_restart(
    compacted: Compacted,
) -> None:
    for producer_id in (7, 8):
        compacted.append(b"a", producer_id)
        compacted.log.roll()
    assert compacted.log.apply_retention(-1, 0, NOW_MS) == 2
    compacted.log.trim()
    compacted.stop()
    compacted.start()
    log = compacted.log
    assert (log.log_start_offset, log.last_stable_offset, log.log_end_offset) == (2, 2, 2)
    compacted.append(b"c")
    assert log.last_stable_offset == 2
    end(log, 7, committed=False)
    end(log, 8, committed=False)
    assert log.last_stable_offset == log.log_end_offset == 5


def test_a_move_takes_them_along(two: Two) -> None:
    def append(producer_id: int, sequence: int) -> None:
        batch = build_batch(
            [Record(b"v" * 400, timestamp_ms=NOW_MS)], producer_id=producer_id, producer_epoch=0,
            base_sequence=sequence, attributes=TRANSACTIONAL,
        )  # fmt: skip
        two.log.append(batch, guard=-1, now_ms=NOW_MS)

    for sequence in range(6):
        append(7, sequence)
        end(two.log, 7, committed=False)
    append(8, 0)
    before = aborted_transactions(two.log, 0, 1 << 20), two.log.last_stable_offset
    files = {path.name: path.read_bytes() for path in two.log.path.glob("*.txnindex")}
    assert files and before[1] == 12
    two.move(two.second)
    assert two.here() == ["second"]
    moved = two.second / "words-0"
    assert {path.name: path.read_bytes() for path in moved.glob("*.txnindex")} == files
    assert (aborted_transactions(two.log, 0, 1 << 20), two.log.last_stable_offset) == before
    end(two.log, 8, committed=False)
    assert two.log.last_stable_offset == two.log.log_end_offset == 14
    two.manager.stop()
    two.start()
    assert two.log.last_stable_offset == 14
