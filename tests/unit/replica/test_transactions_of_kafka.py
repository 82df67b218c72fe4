"""Files of transactions as Apache Kafka 4.3.0 has written them: read, and written the same."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

import pytest

from kbroker.errors import ErrorCode
from kbroker.log.engine import producer_snapshots
from kbroker.replica._committed_read import aborted_transactions
from tests.support.kafka_transactions import Files, partition_files
from tests.support.led_log import LedLog
from tests.support.record_batches import ParsedBatch, parse_batches, seal
from tests.support.snapshots import encode
from tests.unit.log.conftest import OpenLog

CONTROL: Final = 0x20
NEVER: Final = 2**63 - 1  # as of the topic that Apache Kafka wrote
KAFKA: Final[Files] = partition_files()
BATCHES: Final = parse_batches(KAFKA.log)
END: Final = BATCHES[-1].last_offset + 1
MARKERS: Final = [each for each in BATCHES if each.attributes & CONTROL]
ABORTED: Final = list(struct.iter_unpack(">hqqqq", KAFKA.aborted_index))


def test_the_vectors_have_all_outcomes() -> None:
    outcomes = {each.records[0].key[3] for each in MARKERS if each.records[0].key}
    assert outcomes == {0, 1}
    assert len(ABORTED) >= 2
    entries = producer_snapshots.decode(KAFKA.snapshot)
    assert any(each.transaction_first_offset >= 0 for each in entries)
    assert any(each.producer_epoch > 0 for each in entries)


def append_again(log: LedLog, batch: ParsedBatch, data: bytes) -> None:
    """As the leader was asked to."""
    if not batch.attributes & CONTROL:
        log.append(data, guard=-1, now_ms=batch.max_timestamp_ms)
        return
    (record,) = batch.records
    assert record.key is not None and record.value is not None
    found = log.append_marker(
        batch.producer_id,
        batch.producer_epoch,
        int.from_bytes(record.value[2:6], "big"),
        committed=record.key[3] == 1,
        transaction_version=0,
        now_ms=batch.max_timestamp_ms,
    )
    assert found.error is ErrorCode.NONE


def test_batches_of_a_leader(open_log: OpenLog) -> None:
    """Records and markers, the index of aborted transactions, and the snapshot of a stop."""
    log = open_log(segment_ms=NEVER)
    at = 0
    for each in BATCHES:
        # A producer sends offset 0.
        append_again(log, each, bytes(8) + KAFKA.log[at + 8 : at + each.size_bytes])
        at += each.size_bytes
    assert log.read(0, to_log_end=True) == KAFKA.log
    log.close()
    assert (log.path / f"{0:020d}.txnindex").read_bytes() == KAFKA.aborted_index
    ours = producer_snapshots.decode((log.path / f"{END:020d}.snapshot").read_bytes())
    last = {each.producer_id: each for each in ours}  # they keep one batch of each producer
    # Theirs are in a hash table's order, which is that of small numbers.
    assert encode(sorted(last.values())) == KAFKA.snapshot


def test_a_marker_with_other_numbers(open_log: OpenLog) -> None:
    """Apache Kafka's marker, but for the producer, its epoch, the coordinator's, and the CRC."""
    log = open_log()
    theirs = MARKERS[0]
    (record,) = theirs.records
    log.append_marker(
        4_000, 3, 5, committed=record.key == b"\0\0\0\1", transaction_version=0,
        now_ms=theirs.max_timestamp_ms,
    )  # fmt: skip
    at = sum(each.size_bytes for each in BATCHES[: BATCHES.index(theirs)])
    expected = bytearray(KAFKA.log[at : at + theirs.size_bytes])
    struct.pack_into(">q", expected, 0, 0)
    struct.pack_into(">qh", expected, 43, 4_000, 3)
    struct.pack_into(">i", expected, len(expected) - 5, 5)
    assert log.read(0) == seal(bytes(expected))


@pytest.mark.parametrize("clean", [True, False])
def test_its_files_are_read(open_log: OpenLog, tmp_path: Path, clean: bool) -> None:
    """All of them after a clean stop, else from the records alone."""
    path = tmp_path / "words-0"
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(KAFKA.log)
    if clean:
        (path / f"{0:020d}.txnindex").write_bytes(KAFKA.aborted_index)
        (path / f"{END:020d}.snapshot").write_bytes(KAFKA.snapshot)
    log = open_log(clean=clean, recovery_point=END if clean else 0, high_watermark=END)
    expected = producer_snapshots.decode(KAFKA.snapshot)
    assert sorted(log.producer_entries()[1]) == sorted(expected)
    opened = [each.transaction_first_offset for each in expected]
    assert log.last_stable_offset == min(each for each in opened if each >= 0)
    found = aborted_transactions(log, 0)
    assert sorted(found) == sorted((each[1], each[2]) for each in ABORTED)
    assert (path / f"{0:020d}.txnindex").read_bytes() == KAFKA.aborted_index
