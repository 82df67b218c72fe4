"""What a start finds of transactions: open ones, aborted ones, markers, producers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.log.engine import producer_snapshots
from kbroker.log.engine._results import ProducerEntry
from kbroker.log.opening.loader import Checkpointed
from kbroker.replica._committed_read import aborted_transactions
from tests.support.led_log import LedLog, open_led_log
from tests.support.same_hash import cpu_ratio
from tests.support.snapshots import packed
from tests.unit.log.conftest import TOPIC_ID, OpenLog
from tests.unit.replica.test_transactions import (
    append,
    batch,
    end,
    entry,
    index_of,
    plain,
    refused,
)


def test_open_transactions_of_a_snapshot_need_no_search(open_log: OpenLog, tmp_path: Path) -> None:
    """Its order is that of the producers' last batches: a client may turn that of the first ones
    around."""
    end = 30_000
    log = open_log(log_start_offset=end)

    def restored(first_offsets: Iterable[int]) -> None:
        entries = [ProducerEntry(at, 0, 0, at, 0, 5, 0, at) for at in first_offsets]
        producer_snapshots.write(log.path, end, packed(entries), sync=False)
        again = open_led_log(
            tmp_path / "words-0", "words", 0, TOPIC_ID, {}, Checkpointed(log_start_offset=end)
        )
        assert again.first_undecided_offset == 1
        again.close(clean=False)

    assert cpu_ratio(restored, range(end, 0, -1), range(1, end + 1)) < 4


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("snapshots", [True, False])
def test_all_of_it_survives(open_log: OpenLog, clean: bool, snapshots: bool) -> None:
    log = open_log()
    append(log, batch(7, 0))
    log.roll()
    append(log, batch(8, 0))
    end(log, 7, committed=False)
    append(log, batch(9, 0))
    log.roll()
    log.flush_rolled()
    end(log, 9, committed=False)
    log.close(clean=clean)
    if not snapshots:
        for path in log.path.glob("*.snapshot"):
            path.unlink()
    if not clean:
        for path in log.path.glob("*.txnindex"):
            path.write_bytes(path.read_bytes()[:-5])
    again = open_log(clean=clean, recovery_point=5 if clean else 0, high_watermark=5)
    assert [index_of(again, base) for base in (0, 1, 4)] == [
        [],
        [(0, 7, 0, 2, 1)],
        [(0, 9, 3, 4, 1)],
    ]
    assert again.last_stable_offset == 1
    assert aborted_transactions(again, 0) == [(7, 0)]
    assert end(again, 8) is ErrorCode.NONE
    assert again.last_stable_offset == 6
    assert aborted_transactions(again, 0) == [(7, 0)]  # of the first segment, which ends at 1
    assert aborted_transactions(again, 1) == [(7, 0), (9, 3)]


def _damage(log: LedLog, base_offset: int, at: int) -> None:
    """A byte of the segment's file, which its batch's CRC covers."""
    path = log.path / f"{base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_an_index_is_made_anew_beyond_a_damaged_batch(open_log: OpenLog) -> None:
    """What lies after it in a full segment is read by consumers."""
    log = open_log()
    append(log, plain())
    damaged = len(log.read(0)) - 1
    append(log, batch(7, 0))
    end(log, 7, committed=False)
    log.roll()
    append(log, batch(8, 0))
    log.close()
    path = log.path / f"{0:020d}.txnindex"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    _damage(log, 0, damaged)
    again = open_log(clean=True, recovery_point=4, high_watermark=4)
    assert path.read_bytes() == whole
    assert aborted_transactions(again, 1) == [(7, 1)]
    assert again.last_stable_offset == 3


@pytest.mark.parametrize("clean", [True, False])
def test_an_index_that_is_made_anew_costs_no_producer(open_log: OpenLog, clean: bool) -> None:
    """One whose records were deleted is in the newest snapshot alone."""
    log = open_log()
    append(log, batch(6, 0, transactional=False))
    append(log, batch(5, 0))
    end(log, 5)
    log.roll()
    append(log, batch(7, 0))
    end(log, 7, committed=False)
    log.roll()
    append(log, batch(8, 0))
    log.delete_records(3)
    log.trim()
    append(log, batch(7, 1))
    log.close(clean=clean)
    before = log.path / f"{3:020d}.txnindex"
    before.write_bytes(before.read_bytes()[:-5])
    settled = 7 if clean else 3
    again = open_log(clean=clean, recovery_point=settled, high_watermark=7, log_start_offset=3)
    assert index_of(again, 3) == [(0, 7, 3, 4, 5)]
    assert entry(again, 6) == (0, 0, -1, -1)
    assert entry(again, 5) == (0, 0, 0, -1)
    assert entry(again, 7) == (0, 1, 0, 6)
    assert again.last_stable_offset == 5
    assert refused(again, batch(6, 5, transactional=False)) == 45


@pytest.mark.parametrize("older", [True, False])
def test_a_marker_above_the_high_watermark_decides_nothing_after_a_start(
    open_log: OpenLog, older: bool
) -> None:
    """Though the snapshot of the producers was written after it."""
    log = open_log()
    append(log, plain())
    log.set_leadership(1, True, 1, 2, {2: True})
    log.note_fetch(2, 1, 1)
    append(log, batch(7, 0))
    log.log.checkpointed_high_watermark = 2  # as the checkpoint says at times
    if older:
        log.write_snapshot()
    append(log, batch(8, 0))
    end(log, 8)
    append(log, batch(7, 1))
    log.note_fetch(2, 3, 2)
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    end(log, 7, committed=False)
    append(log, batch(9, 0))
    log.write_snapshot()
    append(log, plain())
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    log.close()
    assert len([*log.path.glob("*.snapshot")]) == 2 + older
    again = open_log(lead=False, clean=True, recovery_point=8, high_watermark=3)
    assert (again.high_watermark, again.last_stable_offset) == (3, 1)
    again.set_leadership(1, True, 2, 2, {2: True})
    for offset, stable in ((4, 1), (5, 1), (6, 6), (7, 6), (8, 6)):
        again.note_fetch(2, offset, offset)
        assert (again.high_watermark, again.last_stable_offset) == (offset, stable)
    assert index_of(again) == [(0, 7, 1, 5, 6)]
    assert aborted_transactions(again, 0) == [(7, 1)]
