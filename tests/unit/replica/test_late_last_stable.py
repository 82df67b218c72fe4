"""A last stable offset that memory does not know: who looks for it, and who does not wait."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kbroker.replica._late_offsets import find, is_late, late_count
from kbroker.replica.late_last_stable import find_late
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from tests.support.led_log import LedLog
from tests.support.standing_disk import SOON_S, standing
from tests.unit.log.conftest import OpenLog
from tests.unit.replica.test_transactions import append, batch, end, plain

FIRST = f"{0:020d}.log"  # the segment with the open transaction, of which offset 0 is none
UNREADABLE = Fault(("read", "read_now"), FIRST, times=FOREVER, error=errno.EIO)


def with_open_transaction(open_log: OpenLog) -> None:
    """Open since offset 1, in a segment that is full; a start has it from a snapshot."""
    log = open_log()
    append(log, plain())
    append(log, batch(7, 0))
    append(log, plain())
    log.roll()
    log.flush_rolled()
    append(log, plain())
    log.close()


def started(open_log: OpenLog, *faults: Fault) -> LedLog:
    """The high watermark is set with these faults."""
    log = open_log(clean=True, recovery_point=4, lead=False)
    with FileFaults(*faults):
        log.set_high_watermark(4)
        log.set_leadership(1, True, 0, 1)
    return log


@pytest.fixture
def late(open_log: OpenLog) -> LedLog:
    """The disk has failed at the start, when the transaction was looked for."""
    before = late_count()
    with_open_transaction(open_log)
    log = started(open_log, UNREADABLE)
    assert is_late(log)
    assert late_count() == before + 1
    return log


def committed(log: LedLog) -> bytes:
    return log.read(0, read_committed=True)


def test_a_start_that_can_read_it_knows_it(open_log: OpenLog) -> None:
    with_open_transaction(open_log)
    log = started(open_log)
    assert not is_late(log)
    assert log.last_stable_offset == 1


def test_appends_do_not_look_for_it(late: LedLog) -> None:
    """Under the lock of the log, which all others wait for."""
    with FileFaults(UNREADABLE) as faults:
        for _ in range(10):
            append(late, plain())
        late.set_leadership(1, True, 1, 2, {2: True})
        late.note_fetch(2, late.log_end_offset, 1)
    assert not [each for each in faults.seen if each.path.endswith(FIRST)]
    assert is_late(late)
    assert late.last_stable_offset <= 1
    assert committed(late) == b""


def test_a_look_that_hangs_holds_up_none(late: LedLog) -> None:
    with standing(("read", FIRST)) as disk:
        looking = disk.begin(lambda: find(late))
        for number in range(4, 14):
            assert disk.soon(lambda: append(late, plain())) == number
        assert not looking.done()
        disk.go_on()
        assert looking.result(SOON_S)
    assert not is_late(late)
    assert late.last_stable_offset == 1
    assert late.read(0) == committed(late) + late.read(1)


def test_the_task_finds_it_and_wakes_those_that_wait(
    late: LedLog, caplog: pytest.LogCaptureFixture
) -> None:
    woken: list[Any] = []
    replicas = {late.name: late}
    with FileFaults(UNREADABLE):
        assert list(find_late(lambda: replicas, woken.append)) == [None]
    assert woken == []
    assert "does not tell where its oldest open transaction begins" in caplog.text
    assert list(find_late(lambda: replicas, woken.append)) == [None]
    assert woken == [late]
    assert late.last_stable_offset == 1
    assert len(committed(late)) == len(late.read(0)) - len(late.read(1))
    assert list(find_late(lambda: replicas, woken.append)) == []


def test_it_is_not_late_when_the_transaction_has_ended(late: LedLog) -> None:
    end(late, 7)
    assert not is_late(late)
    assert late.last_stable_offset == late.log_end_offset


def test_a_cut_whose_last_stable_offset_is_late_leaves_the_log_online(open_log: OpenLog) -> None:
    """The high watermark is known: nothing is lost, and a follower can go on."""
    with_open_transaction(open_log)
    log = started(open_log)
    for _ in range(3):
        append(log, plain())
    log.set_leadership(2, False, 2, 1)
    with FileFaults(UNREADABLE):
        log.truncate_to(5)
        assert log.online
        assert (log.log_end_offset, log.high_watermark) == (5, 5)
        assert log.last_stable_offset <= 1
    assert is_late(log)
    find(log)
    assert not is_late(log)
    assert log.last_stable_offset == 1


def test_a_log_that_is_cut_while_it_is_looked_for(late: LedLog) -> None:
    """The transaction is gone with the cut; another one begins at its offset."""
    with standing(("read", FIRST)) as disk:
        looking = disk.begin(lambda: find(late))
        late.set_leadership(2, False, 2, 1)
        disk.soon(lambda: late.begin_again(1))
        late.set_leadership(1, True, 3, 1)
        assert disk.soon(lambda: append(late, batch(8, 0))) == 1
        disk.go_on()
        looking.result(SOON_S)
    assert not is_late(late)
    assert late.last_stable_offset == 1
    assert end(late, 8).value == 0
    assert late.last_stable_offset == late.log_end_offset == 3
