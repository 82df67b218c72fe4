"""Markers that come late or meet a log whose write hangs."""

from __future__ import annotations

import errno
import time

import pytest

from kbroker.errors import ErrorCode
from kbroker.testing.file_faults import Fault, FileFaults
from tests.support.led_log import LedLog
from tests.support.standing_disk import standing
from tests.unit.log.conftest import OpenLog
from tests.unit.net.harness import eventually
from tests.unit.replica.test_transactions import NOW_MS, append, batch, plain

LATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


@pytest.fixture
def log(open_log: OpenLog) -> LedLog:
    return open_log()


def end(
    log: LedLog,
    producer_id: int,
    *,
    committed: bool = True,
    coordinator_epoch: int = 0,
    run: int = 0,
    number: int = 0,
) -> ErrorCode:
    return log.append_marker(
        producer_id, 0, coordinator_epoch, committed=committed, transaction_version=0,
        now_ms=NOW_MS, run=run, number=number,
    ).error  # fmt: skip


def test_a_late_copy_of_a_marker_ends_no_later_transaction(log: LedLog) -> None:
    """With TV1 the next one has the same epoch, and only the outcomes' numbers tell them apart."""
    append(log, batch(7, 0))
    assert end(log, 7, run=5, number=1) is ErrorCode.NONE
    # While nothing is open it may be the one whose answer was lost.
    assert end(log, 7, run=5, number=1) is ErrorCode.NONE
    assert append(log, batch(7, 1)) == 3
    for number in (0, 1):
        assert end(log, 7, run=5, number=number, committed=False) is LATE
    assert log.last_stable_offset == 3 and log.log_end_offset == 4
    assert end(log, 7, run=5, number=2, committed=False) is ErrorCode.NONE
    append(log, batch(7, 2))
    assert end(log, 7, run=5, number=2) is LATE
    assert end(log, 7, coordinator_epoch=-1, run=5, number=2) is (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
    )
    assert end(log, 7, run=5, number=3) is ErrorCode.NONE
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.parametrize(("run", "number"), [(6, 1), (0, 0)])
def test_a_marker_of_another_run_or_of_none_is_judged_by_its_epochs(
    log: LedLog, run: int, number: int
) -> None:
    """A coordinator that was started again counts from the beginning; tools do not count."""
    append(log, batch(7, 0))
    assert end(log, 7, run=5, number=9) is ErrorCode.NONE
    append(log, batch(7, 1))
    assert end(log, 7, run=run, number=number) is ErrorCode.NONE
    append(log, batch(7, 2))
    assert end(log, 7, run=run, number=number) is (LATE if run else ErrorCode.NONE)
    known = 9 if run == 0 else 1
    if run == 0:
        append(log, batch(7, 3))
        assert end(log, 7, run=5, number=known) is LATE


def test_a_marker_whose_write_fails_is_not_taken_for_written(log: LedLog) -> None:
    append(log, batch(7, 0))
    with FileFaults(Fault(("write",), ".log", error=errno.ENOSPC)):
        assert end(log, 7, run=5, number=1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert end(log, 7, run=5, number=1) is ErrorCode.NONE
    assert log.last_stable_offset == log.log_end_offset


def test_a_log_whose_write_hangs_gets_no_marker_and_holds_no_thread(log: LedLog) -> None:
    append(log, batch(7, 0))
    with standing(("write", ".log")) as disk:
        began_s = time.monotonic()
        hanging = disk.begin(lambda: append(log, plain()))
        eventually(lambda: time.monotonic() > began_s + 0.2)  # it is late from 100 ms on
        refused = disk.soon(lambda: end(log, 7))
        assert refused is ErrorCode.REQUEST_TIMED_OUT
        disk.go_on()
        assert hanging.result() == 1
    assert end(log, 7) is ErrorCode.NONE
