"""The scrub: the damage that it finds, the files that it skips, and how fast it reads."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.log.engine._results import DamagedBatch
from kbroker.log.upkeep._scrub import SegmentScrub
from kbroker.log.upkeep.scrubber import LogScrubber, ScrubSettings, Stopped
from kbroker.testing.file_faults import Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support.led_log import LedLog
from tests.support.record_batches import build_batch, parse_batches
from tests.unit.log.conftest import OpenLog
from tests.unit.net.harness import eventually

NAME = TopicPartition("words", 0)
BATCHES = 20
FAST = ScrubSettings(60_000, 1e12)
CRC_AT, LENGTH_AT = 17, 8


@pytest.fixture
def filled(open_log: OpenLog) -> LedLog:
    """Four batches to a segment, the last one is empty and active."""
    log = open_log(segment_bytes=400)
    for number in range(BATCHES):
        log.append(build_batch([b"%06d" % number + b"." * 20]))
    log.roll()
    return log


def scrubber(log: LedLog, settings: ScrubSettings = FAST) -> LogScrubber:
    return LogScrubber(lambda: [log.log], lambda: settings, ManualClock())


def segments(log: LedLog) -> list[Path]:
    return sorted(log.path.glob("*.log"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def test_of_a_sound_log_every_byte_is_read_and_nothing_said(filled: LedLog) -> None:
    scrub = scrubber(filled)
    scrub.scrub_all()
    assert scrub.damaged == {}
    assert scrub.bytes_read == sum(path.stat().st_size for path in segments(filled))


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_records_in_transactions_are_sound(open_log: OpenLog, codec: str) -> None:
    log = open_log()
    log.set_leadership(2, False, 1, 1)
    batch = build_batch(
        [b"a"], codec=codec, producer_id=7, producer_epoch=0, base_sequence=0, attributes=0x10,
        leader_epoch=1,
    )  # fmt: skip
    log.append_as_follower(batch, 1)
    log.set_leadership(1, True, 2, 1)
    log.roll()
    scrub = scrubber(log)
    scrub.scrub_all()
    assert scrub.damaged == {} and scrub.bytes_read == len(batch)


def test_a_rotten_batch_is_reported_once_and_the_next_ones_are_read(
    filled: LedLog, caplog: pytest.LogCaptureFixture
) -> None:
    path = segments(filled)[1]
    batches = parse_batches(path.read_bytes())
    second = batches[1]
    flip(path, batches[0].size_bytes + second.size_bytes - 1)
    fourth = sum(batch.size_bytes for batch in batches[:3])
    flip(path, fourth + CRC_AT)
    scrub = scrubber(filled)
    for _ in range(2):
        scrub.scrub_all()
        assert scrub.damaged == {
            NAME: [
                DamagedBatch(batches[0].base_offset, second.base_offset, batches[0].size_bytes,
                             "a batch's CRC is wrong"),
                DamagedBatch(batches[0].base_offset, batches[3].base_offset, fourth,
                             "a batch's CRC is wrong"),
            ]
        }  # fmt: skip
    assert caplog.text.count("has rotted at offset") == 2


def test_where_no_length_is_the_rest_of_the_segment_is_let_be(filled: LedLog) -> None:
    path = segments(filled)[1]
    data = bytearray(path.read_bytes())
    data[LENGTH_AT : LENGTH_AT + 4] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)
    scrub = scrubber(filled)
    scrub.scrub_all()
    ((found,),) = scrub.damaged.values()
    assert found.what == "a batch is cut off" and found.position == 0


def test_damage_that_is_gone_is_counted_no_longer(filled: LedLog) -> None:
    flip(segments(filled)[0], CRC_AT)
    scrub = scrubber(filled)
    scrub.scrub_all()
    assert len(scrub.damaged) == 1
    filled.delete_records(BATCHES)
    filled.trim()
    scrub.scrub_all()
    assert scrub.damaged == {}


def test_a_segment_that_was_let_go_meanwhile_says_nothing(filled: LedLog) -> None:
    scrub = SegmentScrub(filled.log, 0)
    assert scrub.still_there
    filled.delete_records(BATCHES)
    filled.trim()
    assert not scrub.still_there
    while scrub.step(50):
        pass
    with pytest.raises(KeyError):
        SegmentScrub(filled.log, 0)


def test_a_segment_that_is_appended_to_is_not_read(filled: LedLog) -> None:
    with pytest.raises(KeyError):
        SegmentScrub(filled.log, filled.active_base_offset)
    with pytest.raises(KeyError):
        SegmentScrub(filled.log, 1)


def test_a_disk_that_does_not_answer_is_no_damage(
    filled: LedLog, caplog: pytest.LogCaptureFixture
) -> None:
    scrub = scrubber(filled)
    with FileFaults(Fault(("read",), segments(filled)[1].name, error=errno.EIO)):
        scrub.scrub_all()
    assert scrub.damaged == {} and "cannot be scrubbed" in caplog.text
    assert filled.online


class TurnedClock(threading.Event):
    """An event whose waits take no time but the clock's."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.waited_s = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waited_s += timeout
        self.clock.advance(max(1, round(timeout * 1000)))
        return self.is_set()


def test_it_reads_no_faster_than_it_may(filled: LedLog) -> None:
    clock = ManualClock()
    event = TurnedClock(clock)
    scrub = LogScrubber(lambda: [filled.log], lambda: ScrubSettings(60_000, 100), clock, event)
    scrub.scrub_all()
    assert event.waited_s == pytest.approx(scrub.bytes_read / 100, rel=0.05)


def test_one_that_is_switched_off_stops_in_the_midst(filled: LedLog) -> None:
    scrub = scrubber(filled, ScrubSettings(0, 1e12))
    with pytest.raises(Stopped):
        scrub.scrub_all()


def test_its_thread_comes_and_goes_with_the_setting(filled: LedLog) -> None:
    settings = [ScrubSettings(0, 1e12)]
    scrub = LogScrubber(lambda: [filled.log], lambda: settings[0], ManualClock())
    scrub.follow()
    assert scrub.thread is None
    settings[0] = FAST
    scrub.follow()
    thread = scrub.thread
    assert thread is not None
    eventually(lambda: scrub.bytes_read > 0, "a look")
    settings[0] = ScrubSettings(0, 1e12)
    thread.join(10)
    assert not thread.is_alive()
    settings[0] = FAST
    scrub.follow()
    assert scrub.thread is not thread
    scrub.stop()
    assert scrub.thread is not None and not scrub.thread.is_alive()
