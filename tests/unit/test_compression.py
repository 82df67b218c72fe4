"""The four codecs: round trips, other libraries' forms, and bytes that lie."""

from __future__ import annotations

import gzip
import random
import struct

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.compression import Codec, CompressionError, compress, decompress

REAL = [codec for codec in Codec if codec is not Codec.NONE]
LIMIT = 64 * 1024 * 1024
NOISE = random.Random(5).randbytes(200_000)
SAMPLES = [b"", b"a", b"kafka " * 50_000, NOISE, NOISE[:70_000] + bytes(300_000)]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", SAMPLES, ids=["empty", "one", "text", "noise", "mixed"])
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), LIMIT) == data


@pytest.mark.parametrize("data", SAMPLES[1:], ids=["one", "text", "noise", "mixed"])
def test_other_libraries_read_what_we_write(data: bytes) -> None:
    assert gzip.decompress(compress(Codec.GZIP, data)) == data
    assert lz4.frame.decompress(compress(Codec.LZ4, data)) == data
    assert (
        zstandard.ZstdDecompressor().decompressobj().decompress(compress(Codec.ZSTD, data)) == data
    )


def test_lz4_blocks_are_independent_as_java_wants_them() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, NOISE))
    assert not info["block_linked"] and info["block_size"] == 65536


@pytest.mark.parametrize("linked", [True, False])
def test_other_lz4_frames_are_read(linked: bool) -> None:
    data = b"some text that repeats, " * 20_000
    frame = lz4.frame.compress(
        data, block_linked=linked, content_checksum=True, store_size=True, block_checksum=True
    )
    assert decompress(Codec.LZ4, frame, LIMIT) == data


def test_snappy_raw_as_librdkafka_writes_it_and_framed_as_java_does() -> None:
    data = b"some text that repeats, " * 20_000
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(Codec.SNAPPY, raw, LIMIT) == data
    framed = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    for part in (data[:1000], data[1000:]):
        block = bytes(cramjam.snappy.compress_raw(part))
        framed += struct.pack(">i", len(block)) + block
    assert decompress(Codec.SNAPPY, framed, LIMIT) == data
    assert compress(Codec.SNAPPY, data).startswith(b"\x82SNAPPY\x00")


@pytest.mark.parametrize("codec", REAL)
def test_a_bomb_stops_at_the_limit(codec: Codec) -> None:
    data = bytes(10_000_000)
    packed = compress(codec, data)
    assert len(packed) < 600_000
    with pytest.raises(CompressionError):
        decompress(codec, packed, 1_000_000)
    assert decompress(codec, packed, 10_000_000) == data


def test_a_snappy_block_that_claims_gigabytes() -> None:
    claim = b"\xff\xff\xff\xff\x07" + b"abc"
    with pytest.raises(CompressionError):
        decompress(Codec.SNAPPY, claim, LIMIT)
    with pytest.raises(CompressionError):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"")[:16] + b"\x7f\xff\xff\xff", LIMIT)
    with pytest.raises(CompressionError):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"")[:16] + b"\x7f", LIMIT)


@pytest.mark.parametrize("codec", REAL)
@settings(deadline=None)  # the first example imports a library
@given(data=st.binary(min_size=1, max_size=200), cut=st.integers(0, 40))
def test_broken_bytes_are_a_protocol_error(codec: Codec, data: bytes, cut: int) -> None:
    whole = compress(codec, data)
    for broken in (data, whole[:cut], data[:10] + whole[10:]):
        try:
            decompress(codec, broken, 1 << 20)
        except CompressionError:
            pass  # the one way to say it
