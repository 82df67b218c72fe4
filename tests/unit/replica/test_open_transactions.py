"""The open transactions of a partition, and the abort of hanging ones: only if unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.replica._open_transactions import OpenTransaction, abort, open_transactions
from tests.support.led_log import LedLog
from tests.unit.log.conftest import OpenLog
from tests.unit.replica.test_transactions import NOW_MS, append, batch, end, index_of, plain


@pytest.fixture
def log(open_log: OpenLog) -> LedLog:
    return open_log()


def test_the_oldest_is_first_and_ended_ones_are_left_out(log: LedLog) -> None:
    assert open_transactions(log) == []
    append(log, plain())
    append(log, batch(9, 0, epoch=3, count=2))
    append(log, batch(7, 0))
    append(log, batch(8, 0))
    append(log, batch(9, 2, epoch=3))
    end(log, 7, coordinator_epoch=4)
    assert open_transactions(log) == [
        OpenTransaction(9, 3, -1, 1, 5),
        OpenTransaction(8, 0, -1, 4, 4),
    ]
    append(log, batch(7, 1))
    assert open_transactions(log)[2] == OpenTransaction(7, 0, 4, 7, 7)
    log.set_leadership(2, False, 1, 1)
    assert open_transactions(log) == []


def test_a_partition_may_have_very_many(log: LedLog) -> None:
    for producer_id in range(100):
        append(log, batch(producer_id, 0))
    assert [each.producer_id for each in open_transactions(log)] == list(range(64))


def test_a_hanging_transaction_is_aborted(log: LedLog) -> None:
    append(log, batch(7, 0, count=2))
    end(log, 7, coordinator_epoch=5)
    append(log, batch(7, 2))
    (seen,) = open_transactions(log)
    appended = abort(log, seen, NOW_MS)
    assert (appended.error, appended.offset) == (ErrorCode.NONE, 4)
    assert log.last_stable_offset == log.high_watermark == 5
    assert index_of(log) == [(0, 7, 3, 4, 5)]
    assert abort(log, seen, NOW_MS).error is ErrorCode.INVALID_TXN_STATE
    append(log, batch(7, 3))  # the producer goes on


def test_a_transaction_that_goes_on_is_left_alone(log: LedLog) -> None:
    """A producer of the first kind keeps its epoch: the batch may be of its next transaction."""
    append(log, batch(7, 0))
    (seen,) = open_transactions(log)
    append(log, batch(7, 1))
    assert abort(log, seen, NOW_MS).error is ErrorCode.INVALID_TXN_STATE
    assert (log.last_stable_offset, log.log_end_offset) == (0, 2)


def test_another_transaction_of_the_producer_is_left_alone(log: LedLog) -> None:
    append(log, batch(7, 0))
    (seen,) = open_transactions(log)
    end(log, 7)
    append(log, batch(7, 1))
    assert abort(log, seen, NOW_MS).error is ErrorCode.INVALID_TXN_STATE
    # One that ends where the other did: only its first offset tells them apart.
    (now,) = open_transactions(log)
    other = seen._replace(last_offset=now.last_offset)
    assert abort(log, other, NOW_MS).error is ErrorCode.INVALID_TXN_STATE
    assert open_transactions(log) == [now]


def test_a_batch_that_is_being_verified_is_not_shut_out(log: LedLog) -> None:
    append(log, batch(7, 0))
    (seen,) = open_transactions(log)
    _, guard = log.begin_verification(7, 1, 0, bumps_epoch=False)
    assert abort(log, seen, NOW_MS).error is ErrorCode.INVALID_TXN_STATE
    append(log, batch(7, 0, epoch=1), guard=guard)


@pytest.mark.parametrize("refused", [True, False])
def test_a_verification_that_is_over_does_not_keep_it(log: LedLog, refused: bool) -> None:
    append(log, batch(7, 0))
    (seen,) = open_transactions(log)
    _, guard = log.begin_verification(7, 1, 0, bumps_epoch=False)
    log.end_verification(7, guard, refused=refused)
    assert abort(log, seen, NOW_MS).error is ErrorCode.NONE


def test_a_new_epoch_has_other_batches(log: LedLog) -> None:
    append(log, batch(7, 0, epoch=1))
    (seen,) = open_transactions(log)
    old = seen._replace(producer_epoch=0)
    assert abort(log, old, NOW_MS).error is ErrorCode.INVALID_PRODUCER_EPOCH
    fenced = seen._replace(coordinator_epoch=-2)
    assert abort(log, fenced, NOW_MS).error is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_after_a_start_from_a_snapshot_it_is_the_same(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    append(log, batch(7, 0))
    append(log, batch(7, 1, count=3))
    seen = open_transactions(log)
    log.close()
    again = open_log()
    assert open_transactions(again) == seen == [OpenTransaction(7, 0, -1, 0, 3)]
    assert abort(again, seen[0], NOW_MS).error is ErrorCode.NONE
