"""Record batches against readers that are not ours; CRC-32C against another implementation."""

from __future__ import annotations

import random

import fastcrc
import pytest
from kafka.record import MemoryRecords

from perf import batch
from perf._load import crc32c


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 1024, 3071, 3072, 3073, 10_000, 1 << 20])
def test_crc_matches_another_implementation(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc32c(data) == fastcrc.crc32.iscsi(data)


def test_crc_of_the_published_vectors() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_another_client_reads_our_batches(codec: str) -> None:
    values = [batch.payload(n, words=True, seed=n) for n in (0, 1, 100, 1000, 70_000)]
    encoded = batch.encode(values, codec=codec, timestamp_ms=1_700_000_000_000)
    records = MemoryRecords(encoded.data)
    (read,) = list(iter(records.next_batch, None))
    assert read.validate_crc()
    found = list(read)
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == list(range(5))
    assert {record.key for record in found} == {None}
    assert found[0].timestamp == 1_700_000_000_000
    assert encoded.value_bytes == sum(map(len, values))


def test_incompressible_lz4_blocks_are_stored() -> None:
    value = batch.payload(200_000)
    (read,) = list(iter(MemoryRecords(batch.encode([value], codec="lz4").data).next_batch, None))
    assert [record.value for record in read] == [value]


def test_idempotent_fields() -> None:
    encoded = batch.encode([b"a", b"b"], producer_id=77, producer_epoch=3)
    (read,) = list(iter(MemoryRecords(encoded.data).next_batch, None))
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (77, 3, 0)
    (read,) = list(iter(MemoryRecords(batch.encode([b"a"]).data).next_batch, None))
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (-1, -1, -1)


def test_the_stamp_lies_in_the_first_value() -> None:
    encoded = batch.of_records(300, 2000, stamped=True)
    at = encoded.stamp_at
    assert encoded.data[at : at + 8] == bytes(8)
    stamped = encoded.data[:at] + b"12345678" + encoded.data[at + 8 :]
    (read,) = list(iter(MemoryRecords(stamped).next_batch, None))
    assert next(iter(read)).value[:8] == b"12345678"
    with pytest.raises(ValueError, match="stamp"):
        batch.encode([b"short"], stamped=True)


@pytest.mark.parametrize("size", [16 << 10, 64 << 10, 1 << 20])
def test_batches_of_an_exact_size(size: int) -> None:
    encoded = batch.of_size(size)
    assert (len(encoded.data), encoded.records) == (size, 1)


def test_batches_fill_up_as_a_producer_would() -> None:
    assert batch.of_records(100).records == 1
    assert batch.of_records(1000, 16 << 10).records == 16
