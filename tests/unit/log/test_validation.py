"""Which produced batches a log takes, and with which code it refuses the others."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaError
from tests.support.led_log import LedLog
from tests.support.record_batches import (
    CODECS,
    Record,
    build_batch,
    build_record,
    compress,
    parse_batches,
    seal,
    varint,
)
from tests.unit.log.conftest import OpenLog

NOW_MS = 1_700_000_000_000


def refusal(log: LedLog, batch: bytes, **how: Any) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        log.append(batch, now_ms=NOW_MS, **how)
    assert caught.value.message != caught.value.code.name  # a sentence for the person who reads it
    assert log.log_end_offset == end
    return caught.value.code


def with_header(batch: bytes, at: int, layout: str, value: int, *, sealed: bool = True) -> bytes:
    altered = bytearray(batch)
    struct.pack_into(layout, altered, at, value)
    return seal(bytes(altered)) if sealed else bytes(altered)


# --- The batch ------------------------------------------------------------------------------------


def test_a_wrong_crc_is_corrupt(log: LedLog) -> None:
    batch = build_batch()
    assert refusal(log, with_header(batch, 17, ">I", 1, sealed=False)) is ErrorCode.CORRUPT_MESSAGE
    for at in (21, 30, 60, len(batch) - 1):
        altered = bytearray(batch)
        altered[at] ^= 0x40
        assert refusal(log, bytes(altered)) is ErrorCode.CORRUPT_MESSAGE


def test_fields_outside_the_crc_may_be_anything_but_a_base_offset(log: LedLog) -> None:
    assert refusal(log, build_batch(base_offset=1)) is ErrorCode.INVALID_RECORD
    log.append(build_batch(leader_epoch=77))
    assert parse_batches(log.read(0))[0].leader_epoch == 0


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(build_batch()[:60], id="less than a header"),
        pytest.param(build_batch()[:-1], id="cut off"),
        pytest.param(build_batch() + b"\0", id="a byte after it"),
        pytest.param(build_batch() + build_batch(), id="two batches"),
        pytest.param(with_header(build_batch(), 16, ">b", 1), id="magic 1"),
        pytest.param(with_header(build_batch(), 16, ">b", 1)[:30], id="magic 1, short"),
        pytest.param(build_batch([]), id="no records"),
        pytest.param(build_batch([b"a"], count=2), id="more counted than there"),
        pytest.param(build_batch([b"a", b"b"], count=1), id="fewer counted than there"),
        pytest.param(with_header(build_batch(), 57, ">i", -1), id="a negative count"),
        pytest.param(with_header(build_batch(), 23, ">i", 5), id="another last offset"),
        pytest.param(with_header(build_batch(), 21, ">h", 0x20), id="control"),
        pytest.param(with_header(build_batch(), 21, ">h", 0x10), id="transactional, no producer"),
        pytest.param(build_batch(producer_id=5, producer_epoch=0), id="no sequence"),
        pytest.param(build_batch(producer_id=5, base_sequence=0), id="no epoch"),
        pytest.param(build_batch(producer_id=-2, producer_epoch=0, base_sequence=0), id="bad id"),
    ],
)
def test_batches_that_are_not_valid(log: LedLog, batch: bytes) -> None:
    assert refusal(log, batch) is ErrorCode.INVALID_RECORD


def test_a_length_that_no_batch_has_is_corrupt(log: LedLog) -> None:
    for length in (-1, 0, 48, -(2**31)):
        assert refusal(log, with_header(build_batch(), 8, ">i", length)) is (
            ErrorCode.CORRUPT_MESSAGE
        )
    assert refusal(log, with_header(build_batch(), 8, ">i", 2**31 - 1)) is ErrorCode.INVALID_RECORD


def test_a_transaction_that_was_not_begun(log: LedLog) -> None:
    batch = build_batch(producer_id=5, producer_epoch=0, base_sequence=0, attributes=0x10)
    assert refusal(log, batch) is ErrorCode.INVALID_TXN_STATE


def test_size_bounds(open_log: OpenLog) -> None:
    batch = build_batch([b"x" * 500])
    log = open_log(max_message_bytes=len(batch))
    log.append(batch)
    assert refusal(log, build_batch([b"x" * 501])) is ErrorCode.MESSAGE_TOO_LARGE
    log.configure(segment_bytes=len(batch))
    log.append(batch)
    log.configure(segment_bytes=len(batch) - 1)
    assert refusal(log, batch) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_compression_types(log: LedLog) -> None:
    zstd = build_batch(codec="zstd")
    assert refusal(log, zstd, api_version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    log.append(zstd, api_version=7)
    for number in (5, 6, 7):
        batch = with_header(build_batch(), 21, ">h", number)
        assert refusal(log, batch) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


# --- The records ----------------------------------------------------------------------------------

EVERY_SHAPE = [
    Record(b"value", b"key", 5, [(b"h", b"1"), (b"", b""), (b"n", None)]),
    Record(None, b"key", 3),
    Record(b"", b"", 900),
    Record(None, None, 5),
    Record(bytes(300), bytes(70_000), 5),
    Record(b"v" * 200_000, None, 4, [(b"k" * 500, b"w" * 70_000)] * 3),
]


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_shape_are_stored_as_sent(log: LedLog, codec: str) -> None:
    batch = build_batch(EVERY_SHAPE, codec=codec)
    result = log.append(batch)
    assert (result.base_offset, result.last_offset, result.append_time_ms) == (0, 5, -1)
    stored = log.read(0)
    assert stored[16:] == batch[16:]  # all that the CRC covers, and the CRC
    assert parse_batches(stored)[0].records[0].headers == ((b"h", b"1"), (b"", b""), (b"n", None))


def body(*fields: bytes) -> bytes:
    joined = b"".join(fields)
    return varint(len(joined)) + joined


GOOD = (b"\0", varint(0), varint(0), varint(1), b"k", varint(1), b"v", varint(0))
BROKEN_RECORDS = {
    "no length": b"",
    "a length without end": b"\xff" * 5,
    "a length of six bytes": b"\x80\x80\x80\x80\x80\x00",
    "a negative length": varint(-1),
    "a length beyond the batch": varint(1_000) + b"".join(GOOD),
    "a length beyond any batch": varint(2**31 - 1) + b"".join(GOOD),
    "too short a length": varint(7) + b"".join(GOOD),
    "too long a length": varint(9) + b"".join(GOOD) + b"\0",
    "only attributes": body(b"\0"),
    "a key beyond the record": body(b"\0", varint(0), varint(0), varint(60), b"k"),
    "a key of length -2": body(b"\0", varint(0), varint(0), varint(-2), varint(1), b"v", varint(0)),
    "a value beyond the record": body(*GOOD[:4], b"k", varint(2**31 - 1)),
    "a value of length -9": body(*GOOD[:5], varint(-9), varint(0)),
    "no headers": body(*GOOD[:7]),
    "a negative header count": body(*GOOD[:7], varint(-1)),
    "more headers than bytes": body(*GOOD[:7], varint(2**31 - 1), b"aaaa"),
    "a header without a key": body(*GOOD[:7], varint(1), varint(-1), varint(-1)),
    "a header beyond the record": body(*GOOD[:7], varint(1), varint(40), b"a"),
    "a header value beyond it": body(*GOOD[:7], varint(1), varint(0), varint(99)),
    "a timestamp of eleven bytes": body(b"\0", b"\x80" * 10 + b"\0", *GOOD[2:]),
    "another offset delta": body(*GOOD[:2], varint(1), *GOOD[3:]),
    "a negative offset delta": body(*GOOD[:2], varint(-1), *GOOD[3:]),
    "a byte after the last record": body(*GOOD) + b"\0",
    "a record after the last record": body(*GOOD) * 2,
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", BROKEN_RECORDS)
def test_broken_records(log: LedLog, codec: str, name: str) -> None:
    payload = compress(codec, BROKEN_RECORDS[name])
    batch = build_batch([b"v"], codec=codec, payload=payload)
    assert refusal(log, batch) is ErrorCode.INVALID_RECORD
    good = build_batch([b"v"], codec=codec, payload=compress(codec, body(*GOOD)))
    log.append(good)


def test_the_record_at_fault_is_named(log: LedLog) -> None:
    records = [build_record(Record(b"v"), i, 1_000) for i in range(5)]
    records[3] = build_record(Record(b"v"), 4, 1_000)
    batch = build_batch([b"v"] * 5, payload=b"".join(records))
    result = log.append_group([batch])[0]
    assert (result.error, result.error_record) == (ErrorCode.INVALID_RECORD, 3)
    assert "consecutive" in result.error_message


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_wants_keys(open_log: OpenLog, codec: str) -> None:
    log = open_log(compacted=True)
    batch = build_batch([Record(key=b"k"), Record(key=b""), Record(key=None)], codec=codec)
    result = log.append_group([batch])[0]
    assert (result.error, result.error_record) == (ErrorCode.INVALID_RECORD, 2)
    log.append(build_batch([Record(key=b"k"), Record(key=b"")], codec=codec))


def test_batches_that_do_not_unpack(log: LedLog) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        batch = build_batch([b"v"], codec=codec, payload=b"these are no packed records")
        assert refusal(log, batch) is ErrorCode.INVALID_RECORD


def test_a_small_batch_that_claims_gigabytes(log: LedLog) -> None:
    zeros = Record(value=bytes(70_000_000))
    batch = build_batch([zeros], codec="zstd")
    assert len(batch) < 20_000
    assert refusal(log, batch) is ErrorCode.MESSAGE_TOO_LARGE


# --- Time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_timestamps_outside_the_window(open_log: OpenLog, codec: str) -> None:
    log = open_log(timestamp_before_max_ms=1_000, timestamp_after_max_ms=50)
    for delta, good in ((-1_000, True), (-1_001, False), (50, True), (51, False)):
        records = [Record(timestamp_ms=NOW_MS), Record(timestamp_ms=NOW_MS + delta)]
        batch = build_batch(records, codec=codec)
        if good:
            log.append(batch, now_ms=NOW_MS)
        else:
            assert refusal(log, batch) is ErrorCode.INVALID_TIMESTAMP
    log.configure(log_append_time=True, timestamp_after_max_ms=50)
    log.append(build_batch([Record(timestamp_ms=NOW_MS + 51)]), now_ms=NOW_MS)


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time(open_log: OpenLog, codec: str) -> None:
    log = open_log(log_append_time=True)
    batch = build_batch([Record(timestamp_ms=5), Record(timestamp_ms=9)], codec=codec)
    assert log.append(batch, now_ms=NOW_MS).append_time_ms == NOW_MS
    stored = parse_batches(log.read(0))[0]  # which checks the CRC
    assert stored.attributes == 0x08 | CODECS[codec]
    assert (stored.base_timestamp_ms, stored.max_timestamp_ms) == (5, NOW_MS)


def test_a_largest_timestamp_that_is_none_of_the_records(log: LedLog) -> None:
    log.append(build_batch([Record(timestamp_ms=5), Record(timestamp_ms=9)], max_timestamp_ms=7))
    assert parse_batches(log.read(0))[0].max_timestamp_ms == 9


def test_a_client_does_not_choose_the_timestamps_type(open_log: OpenLog) -> None:
    """tests/parity/cases/produce_timestamps.py has what Apache Kafka says of each."""
    log = open_log(timestamp_after_max_ms=50)
    for codec in ("none", "gzip"):
        log.append(build_batch([Record(timestamp_ms=5)], codec=codec, attributes=0x08))
        assert parse_batches(log.read(log.log_end_offset - 1))[0].attributes == CODECS[codec]
        for largest_ms in (-1, NOW_MS + 51):
            batch = build_batch(
                [Record(), Record()], codec=codec, attributes=0x08, max_timestamp_ms=largest_ms
            )
            assert refusal(log, batch) is ErrorCode.INVALID_TIMESTAMP
    log.configure(log_append_time=True)
    for time_ms in (5, -1):
        batch = build_batch([Record(timestamp_ms=time_ms)] * 2, attributes=0x08)
        result = log.append_group([batch], now_ms=NOW_MS)[0]
        assert result.error == ErrorCode.INVALID_TIMESTAMP
        assert result.error_record == 0


@pytest.mark.parametrize("codec", CODECS)
def test_times_before_all_times_are_in_the_future(open_log: OpenLog, codec: str) -> None:
    log = open_log(timestamp_after_max_ms=3_600_000)
    largest, least = 2**63 - 1, -(2**63)
    one_later = build_batch([Record(), Record(timestamp_ms=1_001)], codec=codec)
    for batch in (
        build_batch([Record(timestamp_ms=least)], codec=codec),
        build_batch([Record(timestamp_ms=least + 1)], codec=codec),
        build_batch([Record(timestamp_ms=largest)], codec=codec),
        with_header(one_later, 27, ">q", largest),  # and the second wraps
    ):
        assert refusal(log, batch) is ErrorCode.INVALID_TIMESTAMP
    log.append(build_batch([Record(timestamp_ms=-5)], codec=codec), now_ms=NOW_MS)
    log.configure()  # neither side has a bound
    log.append(build_batch([Record(timestamp_ms=least)], codec=codec), now_ms=NOW_MS)


def test_recompression_is_left_to_python(open_log: OpenLog) -> None:
    log = open_log(stored_codec=1)
    with pytest.raises(NotImplementedError):
        log.append(build_batch())
    log.append(build_batch(), prechecked=True)
    log.append(build_batch(codec="gzip"))


def test_prechecked_speaks_of_compressed_records_only(log: LedLog) -> None:
    lie = build_batch([b"v"], codec="zstd", payload=b"checked elsewhere")
    log.append(lie, prechecked=True)
    plain = build_batch([b"v"], payload=b"not checked elsewhere")
    assert refusal(log, plain, prechecked=True) is ErrorCode.INVALID_RECORD
    corrupt = with_header(lie, 17, ">I", 1, sealed=False)
    assert refusal(log, corrupt, prechecked=True) is ErrorCode.CORRUPT_MESSAGE
