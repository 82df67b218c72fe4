"""Which batches of a fetch were aborted: producers that interleave, and what began before it."""

from __future__ import annotations

from kbroker.compression import Codec
from kbroker.peer.isolation import Aborted, AbortedTransaction
from kbroker.protocol.record_batch import Record, RecordBatch

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def batch(
    first: int, producer: int, *, marker: bytes | None = None, transactional: bool = True
) -> RecordBatch:
    """Two offsets of records, or a marker."""
    return RecordBatch(
        base_offset=first, last_offset=first + (marker is None), leader_epoch=0, codec=Codec.NONE,
        log_append_time=False, transactional=transactional, control=marker is not None,
        max_timestamp_ms=0, producer_id=producer, producer_epoch=0, base_sequence=0,
        records=(Record(marker, b""),),
    )  # fmt: skip


def held(aborted: list[tuple[int, int]], *batches: RecordBatch) -> list[int]:
    """First offsets of those that are not read."""
    found = Aborted([AbortedTransaction(*one) for one in aborted])
    return [one.base_offset for one in batches if found.holds(one)]


def test_two_producers_of_which_one_aborts() -> None:
    log = [batch(0, 7), batch(2, 8), batch(4, 7), batch(6, 7, marker=ABORT), batch(7, 7),
           batch(9, 8, marker=COMMIT), batch(10, 7, marker=COMMIT)]  # fmt: skip
    assert held([(7, 0)], *log) == [0, 4]
    assert held([(7, 0), (8, 2)], *log) == [0, 2, 4]
    assert held([], *log) == []


def test_a_transaction_that_began_before_the_answer() -> None:
    assert held([(7, 3)], batch(40, 7), batch(42, 7, marker=ABORT), batch(43, 7)) == [40]


def test_two_in_a_row_of_one_producer_and_records_in_none() -> None:
    log = [batch(0, 7), batch(2, 7, marker=ABORT), batch(3, 7, transactional=False), batch(5, 7)]
    assert held([(7, 5), (7, 0)], *log) == [0, 5]
