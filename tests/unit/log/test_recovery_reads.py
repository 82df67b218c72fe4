"""After a crash a log's bytes are read once: their epochs and producers are kept."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.testing.file_faults import FileFaults
from tests.support.led_log import LedLog
from tests.support.record_batches import build_batch
from tests.unit.log.conftest import OpenLog
from tests.unit.log.test_recovery import crash, stored

SEGMENT_BYTES = 300_000
BATCHES, VALUE = 100, b"v" * 10_000
READS_MAX = 4  # of a segment that fits into the buffer


def numbered(sequence: int) -> bytes:
    return build_batch([VALUE], producer_id=9, producer_epoch=0, base_sequence=sequence)


def reads_of_recovery(open_log: OpenLog) -> tuple[LedLog, int, int]:
    """The log after a crash, how many segments it has, and how often its records were read."""
    with FileFaults() as faults:
        log = open_log(segment_bytes=SEGMENT_BYTES)
        seen = [each for each in faults.look() if each.path.endswith(".log")]
    return (
        log,
        sum(each.operation == "open" for each in seen),
        sum(each.operation == "read" for each in seen),
    )


def test_every_byte_is_read_once(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=SEGMENT_BYTES)
    for _ in range(BATCHES):
        log.append(build_batch([VALUE]))
    crash(log)
    log, segments, reads = reads_of_recovery(open_log)
    assert segments == 4
    assert reads <= READS_MAX * segments
    assert stored(log) == list(range(BATCHES))


def test_only_segments_that_tell_of_epochs_or_producers_are_looked_through_for_them(
    open_log: OpenLog,
) -> None:
    log = open_log(leader_epoch=1, segment_bytes=SEGMENT_BYTES)
    for number in range(BATCHES):
        if number == BATCHES - 3:
            log.set_leadership(1, True, 5, 1)
        log.append(numbered(0) if number == BATCHES - 2 else build_batch([VALUE]))
    path = crash(log)
    (path / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    for snapshot in path.glob("*.snapshot"):
        snapshot.unlink()
    log, segments, reads = reads_of_recovery(open_log)
    in_the_last = BATCHES - int(path.joinpath(max(path.glob("*.log"))).stem)
    assert segments == 4
    assert reads <= READS_MAX * segments + 3 * in_the_last
    assert log.epochs.entries[:2] == [(1, 0), (5, BATCHES - 3)]
    assert log.append(numbered(0)).base_offset == BATCHES - 2  # as of before


def test_records_that_are_appended_after_a_recovery_count_as_well(open_log: OpenLog) -> None:
    """A cut brings back what producers had sent up to there, from the batches."""
    log = open_log()
    log.append(build_batch([VALUE]))
    crash(log)
    log = open_log()
    for sequence in range(3):
        log.append(numbered(sequence))
    log.truncate_to(3)
    with pytest.raises(KafkaError) as caught:
        log.append(numbered(5))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(numbered(2)).base_offset == 3
