"""A batch that unpacks to far more than it holds is cleaned window by window."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest

from kbroker.log.upkeep._cleaning import Cleaning
from kbroker.protocol.record_batch import decode_batches
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import CODECS, Record, build_batch

TOPIC = uuid.UUID(int=4)
MEGABYTE = 1 << 20
UNPACKED_BYTES = 48 * MEGABYTE
# A window of each side, what packs, and a batch as it is stored; on libraries' own memory besides.
MEMORY_BYTES_MAX = 12 * MEGABYTE


def peak_bytes() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def clean(log: LedLog, *, now_ms: int = 0) -> None:
    cleaning = Cleaning(
        log.log, 0, log.log_end_offset, map_bytes_max=MEGABYTE, load_factor=0.9, now_ms=now_ms,
        delete_retention_ms=0,
    )  # fmt: skip
    while cleaning.map_keys(MEGABYTE):
        pass
    for first, end in cleaning.groups(1 << 30):
        cleaning.begin_group(first, end)
        while cleaning.clean(MEGABYTE):
            pass
        cleaning.finish()
        assert log.log.replace_by_cleaned(cleaning)


def compacted(path: Path) -> LedLog:
    settings = {"segment_bytes": 1 << 30, "compacted": True, "max_message_bytes": 1 << 30}
    log = open_led_log(path / "words-0", "words", 0, TOPIC, settings)
    log.set_leadership(1, True, 1, 1)
    return log


@pytest.mark.parametrize("one_record", [True, False], ids=["one", "many"])
@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_an_unpacked_batch_is_never_whole_in_memory(
    tmp_path: Path, codec: str, *, one_record: bool
) -> None:
    log = compacted(tmp_path)
    count = 1 if one_record else 3_000
    value = bytes(UNPACKED_BYTES // count)
    kept = [Record(value, b"key %d" % number) for number in range(count)]
    assert log.append(build_batch([*kept, Record(b"old", b"again")], codec=codec)).error == 0
    assert log.append(build_batch([Record(b"new", b"again")])).error == 0
    log.log.roll()
    del kept
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_bytes()
    clean(log)
    assert peak_bytes() - before < MEMORY_BYTES_MAX
    first, second = decode_batches(log.read(0, 1 << 30))
    assert [record.key for record in first.records] == [b"key %d" % n for n in range(count)]
    assert all(record.value == value for record in first.records)
    assert [record.value for record in second.records] == [b"new"]
    log.log.close()
