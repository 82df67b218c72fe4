"""Unpacking in C against the libraries that packed, and against random bytes."""

from __future__ import annotations

import gzip
import random
import struct
import zlib

import cramjam
import lz4.frame
import pytest
import snappy
import zstandard

from kbroker.protocol._unpacking import CodecError, CodecMissing, unpack
from tests.support.record_batches import CODECS, XERIAL_MAGIC, compress, xerial

PLENTY = 1 << 30
PACKED = [name for name in CODECS if name != "none"]


def texts() -> list[bytes]:
    rng = random.Random(7)
    words = [rng.randbytes(rng.randint(1, 12)) for _ in range(300)]
    return [
        b"",
        b"a",
        b"abcdefgh" * 3,
        bytes(200_000),
        rng.randbytes(70_000),
        b"".join(rng.choice(words) for _ in range(40_000)),
        b"".join(bytes([i % 7]) * (i % 300) for i in range(3_000)),
        rng.randbytes(65_536) + bytes(65_536) + rng.randbytes(131_073),
    ]


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("number", range(8))
def test_unpacking_gives_the_packed_bytes_back(codec: str, number: int) -> None:
    text = texts()[number]
    assert unpack(compress(codec, text), CODECS[codec], PLENTY) == text


def test_other_makers_of_the_same_formats() -> None:
    for text in texts():
        block = lz4.frame.compress(
            text, block_linked=False, content_checksum=True, block_checksum=True
        )
        assert unpack(block, 3, PLENTY) == text
        for size in range(4, 8):
            frame = lz4.frame.compress(text, block_size=size, block_linked=False, store_size=True)
            assert unpack(frame, 3, PLENTY) == text
        assert unpack(bytes(cramjam.snappy.compress_raw(text)), 2, PLENTY) == text
        assert unpack(xerial(text, 1_000), 2, PLENTY) == text
        assert unpack(snappy.compress(text), 2, PLENTY) == text
        for level in (1, 19):
            assert unpack(zstandard.compress(text, level), 4, PLENTY) == text
        assert unpack(gzip.compress(text, 1), 1, PLENTY) == text


def test_parts_that_were_joined() -> None:
    a, b = texts()[5], texts()[2]
    assert unpack(gzip.compress(a) + gzip.compress(b), 1, PLENTY) == a + b
    assert unpack(zstandard.compress(a) + zstandard.compress(b), 4, PLENTY) == a + b
    assert unpack(xerial(a) + xerial(b), 2, PLENTY) == a + b
    assert unpack(xerial(b"") * 50_000 + xerial(b), 2, PLENTY) == b


@pytest.mark.parametrize("codec", PACKED)
def test_a_stream_that_is_cut_off_is_refused(codec: str) -> None:
    packed = compress(codec, texts()[2] * 20)
    for size in range(len(packed)):
        # A Snappy stream has no end of its own: cut between two blocks it is simply shorter.
        if codec == "snappy" and size in (0, 16):
            continue
        with pytest.raises(CodecError):
            unpack(packed[:size], CODECS[codec], PLENTY)


@pytest.mark.parametrize("codec", PACKED)
def test_bytes_that_follow_are_refused(codec: str) -> None:
    with pytest.raises(CodecError):
        unpack(
            compress(codec, b"words") + b"\x01\x02\x03\x04\x05\x06\x07\x08\x09", CODECS[codec], 99
        )


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_stops_at_the_bound(codec: str) -> None:
    bomb = compress(codec, bytes(3_000_000))
    assert len(unpack(bomb, CODECS[codec], 3_000_000)) == 3_000_000
    with pytest.raises(CodecError, match="more than"):
        unpack(bomb, CODECS[codec], 2_999_999)


@pytest.mark.parametrize("codec", PACKED)
def test_altered_bytes_never_do_more_than_fail(codec: str) -> None:
    rng = random.Random(11)
    packed = compress(codec, texts()[6])
    for _ in range(400):
        altered = bytearray(packed)
        for _ in range(rng.randint(1, 4)):
            altered[rng.randrange(len(altered))] = rng.randrange(256)
        try:
            assert len(unpack(altered, CODECS[codec], 5_000_000)) <= 5_000_000
        except (CodecError, CodecMissing):
            pass


@pytest.mark.parametrize("codec", PACKED)
def test_random_bytes_never_do_more_than_fail(codec: str) -> None:
    rng = random.Random(13)
    heads = {"gzip": b"\x1f\x8b\x08\x00", "snappy": b"", "lz4": b"\x04\x22\x4d\x18\x60\x40\x82",
             "zstd": b"\x28\xb5\x2f\xfd"}  # fmt: skip
    for _ in range(400):
        data = heads[codec] + rng.randbytes(rng.randint(0, 200))
        try:
            unpack(data, CODECS[codec], 5_000_000)
        except (CodecError, CodecMissing):
            pass


def test_lz4_that_java_clients_cannot_read_is_refused() -> None:
    text = texts()[5]
    linked = lz4.frame.compress(text, block_linked=True, block_size=4)
    with pytest.raises(CodecError):
        unpack(linked, 3, PLENTY)
    frame = bytearray(lz4.frame.compress(text, block_linked=False))
    frame[6] ^= 1  # the header's checksum
    with pytest.raises(CodecError):
        unpack(frame, 3, PLENTY)


def test_an_lz4_block_with_a_wrong_checksum_is_refused() -> None:
    frame = bytearray(lz4.frame.compress(b"x" * 50 + b"y", block_linked=False, block_checksum=True))
    frame[-9] ^= 1
    with pytest.raises(CodecError):
        unpack(frame, 3, PLENTY)


def test_the_header_of_an_lz4_frame_describes_its_content() -> None:
    text = random.Random(3).randbytes(1_000) * 200
    for option in ("content_checksum", "store_size"):
        chosen = {"content_checksum": False, "store_size": False, option: True}
        frame = lz4.frame.compress(text, block_linked=False, **chosen)
        assert unpack(frame, 3, PLENTY) == text
        altered = bytearray(frame)
        if option == "content_checksum":
            altered[-1] ^= 1
        else:
            altered[6] ^= 1
            altered[14] = checksum_of_header(altered[4:14])
        with pytest.raises(CodecError):
            unpack(altered, 3, PLENTY)


def checksum_of_header(descriptor: bytes) -> int:
    """The byte that makes liblz4 accept the header; the search is shorter than XXH32."""
    for byte in range(256):
        try:
            lz4.frame.get_frame_info(b"\x04\x22\x4d\x18" + descriptor + bytes([byte]))
        except RuntimeError:
            continue
        return byte
    raise AssertionError("no byte fits")


def test_an_lz4_copy_from_before_the_block_is_refused() -> None:
    # token: 1 literal, copy of 4 from 2 back, while 1 byte is out
    block = bytes([0x10]) + b"a" + b"\x02\x00" + bytes([0x50]) + b"bcdef"
    with pytest.raises(CodecError):
        unpack(lz4_frame(block), 3, PLENTY)
    block = bytes([0x10]) + b"a" + b"\x01\x00" + bytes([0x50]) + b"bcdef"
    assert unpack(lz4_frame(block), 3, PLENTY) == b"aaaaabcdef"


def test_an_lz4_block_larger_than_its_frame_allows_is_refused() -> None:
    # one literal, then a copy that claims 16 MB
    claims = (
        bytes([0x1F]) + b"a" + b"\x01\x00" + b"\xff" * 65_000 + b"\x00" + bytes([0x50]) + b"bcdef"
    )
    with pytest.raises(CodecError):
        unpack(lz4_frame(claims), 3, PLENTY)


def test_the_librarys_lz4_and_our_own_agree() -> None:
    """Blocks of 64 KB are the library's, where there is one; larger ones are unpacked here."""
    rng = random.Random(11)
    words = [rng.randbytes(rng.randint(1, 30)) for _ in range(40)]
    text = b"".join(rng.choice(words) for _ in range(300))
    frame = bytearray(lz4.frame.compress(text, block_linked=False, block_size=4, store_size=False))
    own_head = frame[:5] + b"\x50"  # blocks of 256 KB
    own_head.append(checksum_of_header(bytes(own_head[4:6])))
    agreed = refused = zero_offsets = 0
    for _ in range(2_000):
        altered = frame[:]
        altered[rng.randrange(11, len(frame) - 4)] = rng.randrange(256)
        try:
            text = unpack(altered, 3, PLENTY)
        except CodecError:
            refused += 1
            continue
        try:
            assert unpack(own_head + altered[7:], 3, PLENTY) == text
            agreed += 1
        except CodecError:
            zero_offsets += 1  # "copy from here": the library puts out zeros, ours refuses
    assert agreed > 1_000 and refused > 100 and zero_offsets < 10


def lz4_frame(block: bytes) -> bytes:
    head = lz4.frame.compress(b"", block_linked=False, block_size=4, store_size=False)[:7]
    return head + struct.pack("<I", len(block)) + block + b"\0\0\0\0"


def test_a_snappy_copy_from_too_far_back_is_left_to_python() -> None:
    text = random.Random(5).randbytes(200_000)
    literal = bytes([62 << 2]) + (len(text) - 1).to_bytes(3, "little") + text
    copy = bytes([(3 << 2) | 3]) + (200_000).to_bytes(4, "little")
    block = varint(len(text) + 4) + literal + copy
    assert bytes(cramjam.snappy.decompress_raw(block)) == text + text[:4]
    with pytest.raises(CodecMissing):
        unpack(block, 2, PLENTY)


def test_a_snappy_copy_from_far_back_that_the_window_cuts_in_two_is_left_to_python() -> None:
    # 30 bytes of the copy fit in the window, which then slides and forgets where it comes from.
    text = random.Random(6).randbytes(131_072 - 30)
    literal = bytes([62 << 2]) + (len(text) - 1).to_bytes(3, "little") + text
    copy = bytes([(63 << 2) | 3]) + (131_000).to_bytes(4, "little")
    block = varint(len(text) + 64) + literal + copy
    assert bytes(cramjam.snappy.decompress_raw(block)) == text + text[42:106]
    with pytest.raises(CodecMissing):
        unpack(block, 2, PLENTY)


def test_a_snappy_block_is_as_long_as_it_says() -> None:
    for claimed in (3, 5):
        with pytest.raises(CodecError):
            unpack(varint(claimed) + bytes([3 << 2]) + b"abcd", 2, PLENTY)
    assert unpack(varint(4) + bytes([3 << 2]) + b"abcd", 2, PLENTY) == b"abcd"
    with pytest.raises(CodecError):
        unpack(XERIAL_MAGIC + struct.pack(">i", -5) + b"abc", 2, PLENTY)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_a_gzip_member_with_a_wrong_checksum_is_refused() -> None:
    packed = bytearray(gzip.compress(b"words" * 100))
    packed[-6] ^= 1
    with pytest.raises(CodecError):
        unpack(packed, 1, PLENTY)
    with pytest.raises(CodecError):
        unpack(zlib.compress(b"not gzip"), 1, PLENTY)


def test_no_such_codec() -> None:
    with pytest.raises(CodecMissing):
        unpack(b"words", 5, PLENTY)
