"""A batch that unpacks to more than a client's may: packed anew for its topic, or by the cleaner.

The bound of 64 MB or 256 times its size is for produced records. Readers of a log have none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.coordinator.group._groups import GroupTable, offset_key, offset_value
from kbroker.errors import ErrorCode
from kbroker.log.looking.verify import verify
from kbroker.log.upkeep._cleaning import Cleaning
from kbroker.protocol.record_batch import decode_batches
from tests.support.led_log import LedLog
from tests.support.record_batches import Record, build_batch
from tests.unit.coordinator.tables import committed
from tests.unit.log.conftest import OpenLog

VALUE = bytes(65 << 20)
RECORDS = [
    Record(offset_value(committed(0, 5)), offset_key("g", "orders", 0), timestamp_ms=1_000),
    Record(VALUE, b"\0\x09tight", timestamp_ms=2_000),
]


@pytest.fixture
def log(open_log: OpenLog) -> LedLog:
    log = open_log(compacted=True)
    tight = build_batch(RECORDS, codec="zstd")
    assert 256 * len(tight) < len(VALUE)
    assert log.append_group([tight])[0].error == ErrorCode.MESSAGE_TOO_LARGE  # from a client
    log.append(tight, prechecked=True)  # what a client had packed in another way
    return log


def test_all_readers_of_a_log_read_it(log: LedLog) -> None:
    assert log.offset_for_time(2_000) == (1, 2_000, 0)
    assert log.offset_of_max_timestamp() == (1, 2_000, 0)
    assert not verify(Path(log.path)).damage
    data = log.read(0)
    (batch,) = decode_batches(data)
    assert batch.records[1].value == VALUE
    table = GroupTable()
    table.set_partition_count(1)
    table.open(0, log)
    assert table.load_batches(0, data).left_out == []
    assert table.offsets("g") == [committed(0, 5)]


def test_it_is_cleaned(log: LedLog) -> None:
    log.append(build_batch([Record(b"later", RECORDS[0].key)]))
    log.roll()
    cleaning = Cleaning(
        log.log, 0, log.log_end_offset, map_bytes_max=1 << 20, load_factor=0.9, now_ms=1,
        delete_retention_ms=1,
    )  # fmt: skip
    while cleaning.map_keys(1 << 30):
        pass
    cleaning.begin_group(0, 1)
    while cleaning.clean(1 << 30):
        pass
    assert (cleaning.records_read, cleaning.records_written) == (3, 2)
    cleaning.give_up()
