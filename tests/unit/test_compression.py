"""The codecs in Python: both ways, against other libraries, and bounded."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import threading

import lz4.block
import lz4.frame
import pytest
import snappy
import zstandard

from kbroker import limits
from kbroker.compression import (
    PACKINGS,
    Codec,
    CompressionError,
    Packing,
    TooLongError,
    compress,
    compress_into,
    decompress,
    unpacked_bytes_max,
)
from kbroker.log.looking import _tools
from kbroker.protocol._unpacking import CodecTooLong, Unpacking, unpack
from kbroker.protocol.record_batch import HEADER_BYTES, Record, encode_batch
from perf.batch import payload

PACKED = [codec for codec in Codec if codec is not Codec.NONE]
TEXTS = [b"", b"a", b"words " * 20_000, random.Random(1).randbytes(100_000)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("number", range(4))
def test_both_ways(codec: Codec, number: int) -> None:
    packed = compress(codec, TEXTS[number])
    assert decompress(codec, packed, 1 << 20) == TEXTS[number]
    if codec is not Codec.NONE:
        assert unpack(packed, codec, 1 << 20) == TEXTS[number]


def test_other_libraries_read_the_packed_bytes() -> None:
    text = TEXTS[2]
    assert gzip.decompress(compress(Codec.GZIP, text)) == text
    assert lz4.frame.decompress(compress(Codec.LZ4, text)) == text
    assert zstandard.decompress(compress(Codec.ZSTD, text), len(text)) == text
    framed = compress(Codec.SNAPPY, text)[16:]
    out = b""
    while framed:
        (size,) = struct.unpack_from(">i", framed)
        out += snappy.decompress(framed[4 : 4 + size])
        framed = framed[4 + size :]
    assert out == text


LEVELS = {Codec.GZIP: (-1, *range(1, 10)), Codec.LZ4: range(1, 18), Codec.ZSTD: (-131072, 0, 22)}


@pytest.mark.parametrize("codec", LEVELS)
def test_every_level(codec: Codec) -> None:
    text = random.Random(2).randbytes(200) * 500 + random.Random(3).randbytes(70_000)
    for level in LEVELS[codec]:
        packed = compress(Packing(codec, level), memoryview(text))
        assert decompress(codec, packed, len(text)) == text
        assert unpack(packed, codec, len(text)) == text


# Apache Kafka 4.3.0 stored these bytes of the words below, by the level of the topic.
KAFKA_BYTES = {
    Codec.GZIP: {-1: 3258, 1: 3996, 3: 3692, 6: 3258, 9: 3259},
    Codec.LZ4: {
        1: 5886, 2: 5886, 3: 4947, 6: 4505, 8: 4451, 9: 6777, 10: 4350, 12: 4350, 17: 4350
    },
    Codec.ZSTD: {-7: 5035, -1: 4016, 0: 3648, 1: 3832, 3: 3648, 9: 3416, 12: 3256, 19: 2948},
}  # fmt: skip


def test_levels_are_kafkas_levels() -> None:
    """Within 8%: zstd knows here how much will come, and other machines have other zlibs."""
    words = [Record(None, payload(1000, words=True, seed=seed), (), 1) for seed in range(16)]
    records = encode_batch(words)[HEADER_BYTES:]
    for codec, sizes in KAFKA_BYTES.items():
        for level, size in sizes.items():
            packed = compress(Packing(codec, level), records)
            assert len(packed) == pytest.approx(size, rel=0.08), (codec, level)
    for codec, level in ((Codec.GZIP, -1), (Codec.LZ4, 9), (Codec.ZSTD, 3)):
        assert compress(codec, records) == compress(Packing(codec, level), records)


@pytest.mark.parametrize("level", [3, 9])
def test_lz4_blocks_can_be_read_one_by_one(level: int) -> None:
    """Java clients take no other; a block is as it was if packing it gains nothing."""
    text = b"words " * 20_000 + random.Random(4).randbytes(70_000)
    frame = compress(Packing(Codec.LZ4, level), text)
    info = lz4.frame.get_frame_info(frame)
    assert not info["block_linked"] and info["block_size"] == 65536
    out, at = b"", 7
    while size := int.from_bytes(frame[at : at + 4], "little"):
        kept, size = size >> 31, size & 0x7FFFFFFF
        block = frame[at + 4 : at + 4 + size]
        out += block if kept else lz4.block.decompress(block, uncompressed_size=65536)
        at += 4 + size
    assert (out, at) == (text, len(frame) - 4)


@pytest.mark.parametrize("packing", [*PACKED, Packing(Codec.LZ4, 3)], ids=str)
def test_packing_lets_go_of_the_gil(packing: Codec | Packing) -> None:
    """Seen by a thread that gets the GIL only from one who lets go of it."""
    text = TEXTS[2] * 10
    compress(packing, text)  # imports the library

    def seen() -> bool:
        begun, ended = threading.Event(), threading.Event()

        def pack() -> None:
            begun.set()
            compress(packing, text)
            ended.set()

        thread = threading.Thread(target=pack)
        thread.start()
        begun.wait()
        inside = not ended.is_set()
        thread.join()
        return inside

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    try:
        assert any(seen() for _ in range(50))
    finally:
        sys.setswitchinterval(interval_s)


def test_joined_parts_and_raw_snappy() -> None:
    text = TEXTS[2]
    twice = decompress(Codec.GZIP, gzip.compress(text) * 2, 1 << 20)
    assert twice == text * 2
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, text) * 2, 1 << 20) == text * 2
    assert decompress(Codec.SNAPPY, snappy.compress(text), 1 << 20) == text


@pytest.mark.parametrize("codec", PACKED)
def test_output_is_bounded(codec: Codec) -> None:
    bomb = compress(codec, bytes(1_000_000))
    assert len(decompress(codec, bomb, 1_000_000)) == 1_000_000
    with pytest.raises(CompressionError):
        decompress(codec, bomb, 999_999)


@pytest.mark.parametrize("codec", PACKED)
def test_damage(codec: Codec) -> None:
    packed = compress(codec, TEXTS[2])
    for data in (packed[:-1], packed[: len(packed) // 2], b"junk", packed[:20] + b"\xff" * 9):
        with pytest.raises(CompressionError):
            decompress(codec, data, 1 << 20)


def test_names_are_those_of_compression_type() -> None:
    assert [codec.name.lower() for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]


def test_importing_it_costs_no_library() -> None:
    code = "import sys, kbroker.compression; print('cramjam' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("pieces", [0, 1, 2, 3])
def test_pieces_are_one_stream(codec: Codec, pieces: int) -> None:
    """Packed from pieces and unpacked in pieces, the last of which may be short or empty."""
    size = max(0, pieces * limits.UNPACKED_PIECE_BYTES - 7)
    text = (random.Random(2).randbytes(1000) * (size // 1000 + 1))[:size]
    cut = [
        text[at : at + limits.UNPACKED_PIECE_BYTES]
        for at in range(0, size, limits.UNPACKED_PIECE_BYTES)
    ]
    out = bytearray(b"head")
    compress_into(out, PACKINGS[codec], cut, 1 << 30)
    packed = bytes(out[4:])
    assert decompress(codec, packed, 1 << 24) == text
    if codec is not Codec.NONE:
        stream = Unpacking(packed, codec, len(text))
        assert b"".join(iter(lambda: stream.read(70_000), b"")) == text


def test_a_stream_stops_at_its_bound() -> None:
    packed = compress(Codec.GZIP, bytes(200_000))
    stream = Unpacking(packed, Codec.GZIP, 150_000)
    with pytest.raises(CodecTooLong):
        while stream.read(10_000):
            pass
    with pytest.raises(TooLongError):
        compress_into(bytearray(), PACKINGS[Codec.NONE], [bytes(100)], 99)


def test_one_bound_in_c_and_in_python() -> None:
    for size in (0, 1, limits.UNPACKED_BYTES_MIN // limits.UNPACKED_RATIO_MAX, 1 << 20, 1 << 30):
        assert _tools.unpacked_bytes_max(size) == unpacked_bytes_max(size)
