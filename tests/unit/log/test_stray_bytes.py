"""Bytes in a full segment that are no whole batches: never sent, logged, and left in the file."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine._results import Uncleanable
from kbroker.log.looking._describe import unreadable_bytes
from kbroker.log.looking.verify import verify
from kbroker.log.opening.loader import Checkpointed
from kbroker.log.upkeep._cleaning import Cleaning
from kbroker.log.upkeep._scrub import SegmentScrub
from kbroker.protocol.record_batch import decode_batches
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import Record, build_batch

TOPIC = uuid.UUID(int=4)
SETTINGS = {"segment_bytes": 1_000, "index_interval_bytes": 300}
BATCHES = 40


def stray_zeros(data: bytes) -> bytes:
    return data + bytes(100)


def stray_zero(data: bytes) -> bytes:
    return data + b"\0"


def garbage(data: bytes) -> bytes:
    return data + b"\xff\x01\x7f" * 50


def a_batch_of_another_format(data: bytes) -> bytes:
    return data + data[:16] + b"\x01" + data[17:100]


def a_part_of_a_batch(data: bytes) -> bytes:
    return data + data[:90]


def zeros_before_the_last_batch(data: bytes) -> bytes:
    last = 12 + int.from_bytes(data[8:12], "big")
    return data[:-last] + bytes(100) + data[-last:]


KINDS = (
    stray_zeros, stray_zero, garbage, a_batch_of_another_format, a_part_of_a_batch,
    zeros_before_the_last_batch,
)  # fmt: skip


def opened(path: Path, end: int, *, clean: bool = True) -> LedLog:
    checkpointed = Checkpointed(clean, end, end)
    log = open_led_log(path, "words", 0, TOPIC, dict(SETTINGS), checkpointed)
    log.set_leadership(1, True, 1, 1)
    return log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log that was closed in order."""
    path = tmp_path / "words-0"
    log = opened(path, 0)
    for number in range(BATCHES):
        assert log.append(build_batch([Record(b"." * 150, b"%d" % number, 1_000)])).error == 0
    log.log.close()
    return path


def damaged(path: Path, kind: Callable[[bytes], bytes]) -> tuple[Path, bytes, range]:
    """The second segment; what is in its file by now; the offsets that cannot be read."""
    _first, second, third, *_ = sorted(path.glob("*.log"))
    data = kind(second.read_bytes())
    second.write_bytes(data)
    end = int(third.stem)
    return second, data, range(end - (kind is zeros_before_the_last_batch), end)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("as_follower", [False, True], ids=["client", "follower"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_they_are_not_sent_and_reading_goes_on_at_the_next_segment(
    path: Path, kind: Callable[[bytes], bytes], *, as_follower: bool, clean: bool
) -> None:
    file, data, lost = damaged(path, kind)
    log = opened(path, BATCHES, clean=clean)
    for first in range(BATCHES):
        offset, found = first, []
        while offset < BATCHES:
            sent = log.read(offset, to_log_end=as_follower)
            batches = list(decode_batches(sent))
            assert sum(12 + size_after(sent, at) for at in starts(sent)) == len(sent)
            found += [batch.base_offset for batch in batches]
            offset = batches[-1].last_offset + 1
        assert found == [number for number in range(first, BATCHES) if number not in lost]
    assert file.read_bytes() == data
    log.log.close()


def starts(sent: bytes) -> list[int]:
    found, at = [], 0
    while at < len(sent):
        found.append(at)
        at += 12 + size_after(sent, at)
    return found


def size_after(sent: bytes, at: int) -> int:
    return int.from_bytes(sent[at + 8 : at + 12], "big")


def zeros(batch: bytes) -> bytes:
    return bytes(len(batch))


def a_length_of_nothing(batch: bytes) -> bytes:
    return batch[:8] + bytes(4) + batch[12:]


def a_length_beyond_the_segment(batch: bytes) -> bytes:
    return batch[:8] + (1 << 30).to_bytes(4, "big") + batch[12:]


MIDDLES = (zeros, a_length_of_nothing, a_length_beyond_the_segment)


@pytest.mark.parametrize("as_follower", [False, True], ids=["client", "follower"])
@pytest.mark.parametrize("kind", MIDDLES, ids=lambda kind: kind.__name__)
def test_damage_before_the_last_index_entry_is_not_sent(
    path: Path, kind: Callable[[bytes], bytes], *, as_follower: bool
) -> None:
    """A start after a clean stop does not find it. Its offset is an error, but where the batch goes
    on after the end of its segment: then reading goes on at the next one."""
    _first, second, third, *_ = sorted(path.glob("*.log"))
    data = bytearray(second.read_bytes())
    begin = starts(bytes(data))[1]
    end = begin + 12 + size_after(bytes(data), begin)
    data[begin:end] = kind(bytes(data[begin:end]))
    second.write_bytes(data)
    hit = int(second.stem) + 1
    log = opened(path, BATCHES)
    for _ in range(2):
        offset, found = 0, []
        while offset < BATCHES:
            try:
                sent = log.read(offset, to_log_end=as_follower)
            except KafkaError as error:
                assert (error.code, offset) == (ErrorCode.CORRUPT_MESSAGE, hit)
                offset = int(third.stem)
                continue
            batches = list(decode_batches(sent))
            assert sum(12 + size_after(sent, at) for at in starts(sent)) == len(sent)
            assert all(batch.base_offset not in found for batch in batches)
            found += [batch.base_offset for batch in batches]
            offset = batches[-1].last_offset + 1
        lost = range(hit, int(third.stem))
        assert found == [number for number in range(BATCHES) if number not in lost]
    log.log.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_they_are_said(
    path: Path, kind: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    file, data, _lost = damaged(path, kind)
    assert [each.path for each in verify(path).damage if each.path.suffix == ".log"] == [file]
    log = opened(path, BATCHES)
    (said,) = re.findall(rf"{file} is good up to byte (\d+) of {len(data)}", caplog.text)
    good = int(said)
    assert unreadable_bytes([log.log]) == len(data) - good
    scrub = SegmentScrub(log.log, int(file.stem))
    while scrub.step(1 << 20):
        pass
    assert scrub.damage
    cleaning = Cleaning(
        log.log, 0, BATCHES, map_bytes_max=10_000, load_factor=0.9, now_ms=0, delete_retention_ms=0
    )
    with pytest.raises(Uncleanable):  # they may have been records
        while cleaning.map_keys(1 << 20):
            pass
    log.log.close()
