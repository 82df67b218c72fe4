"""Offsets that memory does not know: who looks for them, and who does not wait."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kbroker.replica._late_offsets import find, late_count, what_is_late
from kbroker.replica.late_offsets import find_late
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
    assert what_is_late(log)
    assert late_count() == before + 1
    return log


def committed(log: LedLog) -> bytes:
    return log.read(0, read_committed=True)


def test_a_start_that_can_read_it_knows_it(open_log: OpenLog) -> None:
    with_open_transaction(open_log)
    log = started(open_log)
    assert not what_is_late(log)
    assert log.last_stable_offset == 1


def test_appends_do_not_look_for_it(late: LedLog) -> None:
    """Under the lock of the log, which all others wait for."""
    with FileFaults(UNREADABLE) as faults:
        for _ in range(10):
            append(late, plain())
        late.set_leadership(1, True, 1, 2, {2: True})
        late.note_fetch(2, late.log_end_offset, 1)
    assert not [each for each in faults.seen if each.path.endswith(FIRST)]
    assert what_is_late(late)
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
    assert not what_is_late(late)
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
    assert "does not tell where its last stable offset lies" in caplog.text
    assert list(find_late(lambda: replicas, woken.append)) == [None]
    assert woken == [late]
    assert late.last_stable_offset == 1
    assert len(committed(late)) == len(late.read(0)) - len(late.read(1))
    assert list(find_late(lambda: replicas, woken.append)) == []


def test_it_is_not_late_when_the_transaction_has_ended(late: LedLog) -> None:
    end(late, 7)
    assert not what_is_late(late)
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
    assert what_is_late(log)
    find(log)
    assert not what_is_late(log)
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
    assert not what_is_late(late)
    assert late.last_stable_offset == 1
    assert end(late, 8).value == 0
    assert late.last_stable_offset == late.log_end_offset == 3


# --- The high watermark ---------------------------------------------------------------------------

FOLLOWER = 2


@pytest.fixture
def led(open_log: OpenLog) -> LedLog:
    """A leader after a start, with records in a full segment, of which a follower has none."""
    log = open_log()
    for _ in range(6):
        append(log, plain())
    log.roll()
    log.flush_rolled()
    append(log, plain())
    log.close()
    log = open_log(clean=True, recovery_point=7, lead=False)
    log.set_high_watermark(0)
    log.set_leadership(1, True, 0, 2, {FOLLOWER: True})
    return log


def test_a_follower_in_old_records_waits_for_no_disk(led: LedLog) -> None:
    with standing(("read", FIRST)) as disk:
        disk.soon(lambda: led.note_fetch(FOLLOWER, 3, 1))
        assert (led.high_watermark, what_is_late(led)) == (0, "high watermark")
        looking = disk.begin(lambda: find(led))
        assert disk.soon(lambda: append(led, plain())) == 7
        disk.soon(lambda: led.note_fetch(FOLLOWER, 4, 2))
        assert led.high_watermark == 0
        disk.go_on()
        assert looking.result(SOON_S)
    assert led.high_watermark == 3 or not what_is_late(led)
    while what_is_late(led):
        assert find(led)
    assert led.high_watermark == 4
    assert led.read(0) + led.read(4, to_log_end=True) == led.read(0, to_log_end=True)


def test_it_moves_without_a_look_where_memory_knows_its_place(led: LedLog) -> None:
    before = late_count()
    with standing(("read", FIRST)) as disk:
        disk.soon(lambda: led.note_fetch(FOLLOWER, 3, 1))
        assert late_count() == before + 1
        disk.soon(lambda: led.note_fetch(FOLLOWER, led.log_end_offset, 2))
    assert not what_is_late(led)
    assert late_count() == before
    assert led.high_watermark == led.log_end_offset


def test_of_a_follower_it_is_not_late(led: LedLog) -> None:
    before = late_count()
    with standing(("read", FIRST)) as disk:
        disk.soon(lambda: led.note_fetch(FOLLOWER, 3, 1))
        looking = disk.begin(lambda: find(led))
        led.set_leadership(FOLLOWER, False, 1, 1)
        assert late_count() == before
        led.truncate_to(2)
        led.set_leadership(1, True, 2, 1)
        disk.go_on()
        looking.result(SOON_S)
    assert (led.high_watermark, led.log_end_offset) == (2, 2)


def test_the_task_finds_a_high_watermark_and_wakes_those_that_wait(
    led: LedLog, caplog: pytest.LogCaptureFixture
) -> None:
    woken: list[Any] = []
    with FileFaults(UNREADABLE):
        led.note_fetch(FOLLOWER, 3, 1)
        assert list(find_late(lambda: {led.name: led}, woken.append)) == [None]
    assert woken == []
    assert "does not tell where its high watermark lies; reads end at offset 0" in caplog.text
    assert list(find_late(lambda: {led.name: led}, woken.append)) == [None]
    assert woken == [led]
    assert led.high_watermark == 3
