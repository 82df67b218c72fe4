"""The codecs in Python: both ways, against other libraries, and bounded."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys

import lz4.frame
import pytest
import snappy
import zstandard

from kbroker.compression import Codec, CompressionError, compress, decompress
from kbroker.log._tools import unpack

PACKED = [codec for codec in Codec if codec is not Codec.NONE]
TEXTS = [b"", b"a", b"words " * 20_000, random.Random(1).randbytes(100_000)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("number", range(4))
def test_both_ways(codec: Codec, number: int) -> None:
    packed = compress(codec, TEXTS[number])
    assert decompress(codec, packed, 1 << 20) == TEXTS[number]
    if codec is not Codec.NONE:
        assert unpack(packed, codec, 1 << 20) == TEXTS[number]


def test_other_libraries_read_what_is_packed() -> None:
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
