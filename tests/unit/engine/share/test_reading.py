"""What a share-partition reads of transactions."""

from __future__ import annotations

import pytest

from kbroker.engine.share.reading import read
from kbroker.replica.share.acquiring import LogBatch
from tests.unit.engine.share.world import MemoryLog


def log_of_an_aborted_transaction() -> MemoryLog:
    """And of a committed one of the same producer after it."""
    log = MemoryLog()
    log.append(2, producer_id=7, transactional=True)
    log.append(1, marker=True, aborts=True, producer_id=7, transactional=True)
    log.append(2, producer_id=7, transactional=True)
    log.append(1, marker=True, aborts=False, producer_id=7, transactional=True)
    return log


def aborted(log: MemoryLog) -> list[LogBatch]:
    return read(log, 0, 1 << 20, lambda *_: [(7, 0)], is_committed=True).aborted


def test_records_after_its_marker_are_not_aborted() -> None:
    assert aborted(log_of_an_aborted_transaction()) == [LogBatch(0, 1)]


@pytest.mark.parametrize("how", ["damaged", "emptied"])
def test_a_marker_that_says_nothing_ends_its_transaction(how: str) -> None:
    """Or the share-partition would never pass it, or archive what was committed after it."""
    log = log_of_an_aborted_transaction()
    last, marker = log.batches[1]
    if how == "damaged":
        marker = marker[:-1] + bytes([marker[-1] ^ 1])
    else:  # by compaction
        marker = marker[:8] + (49).to_bytes(4, "big") + marker[12:57] + bytes(4)
    log.batches[1] = last, marker
    assert aborted(log) == [LogBatch(0, 1)]
