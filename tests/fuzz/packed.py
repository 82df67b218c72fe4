"""Compressed records that are wrong on purpose: frames of each codec, whole and changed.

A frame is made by a library, by several levels and framings, or by hand where a library keeps to
rules that a reader may check: the end of an LZ4 block, the forms of a Snappy literal. `frame` makes
one from a seed's dice; half of them are changed in one to three places.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

import cramjam
import lz4.frame
import zstandard

from tests.fuzz.batches import blind
from tests.support.record_batches import CODECS, XERIAL_MAGIC, Record, build_record, varint, xerial

BASE_MS: Final = 1_000
_LZ4_CLASSES: Final = (4, 5, 6, 7)
_LZ4_HEADS: Final = {
    4: "04224d18604082",
    5: "04224d186050fb",
    6: "04224d18606051",
    7: "04224d18607073",
}
_WORDS: Final = tuple(bytes([65 + at % 26]) * (1 + at % 9) + bytes([at]) for at in range(60))


class Frame(NamedTuple):
    """The records of a batch as they are packed, or what became of them."""

    made_by: str
    codec: int
    record_count: int
    payload: bytes
    whole: bool  # a compressor made it, and nothing was changed


def _records(dice: random.Random) -> list[Record]:
    def text(words: int) -> bytes:
        return b"".join(dice.choice(_WORDS) for _ in range(words))

    return [
        Record(
            text(dice.choice((0, 1, 3, 20, 120))) + bytes(dice.choice((0, 0, 6, 40))),
            dice.choice((None, b"", text(1))), BASE_MS + at,
        )
        for at in range(dice.randint(1, 3))
    ]  # fmt: skip


# --- By hand --------------------------------------------------------------------------------------


def _longer(count: int) -> bytes:
    """The rest of an LZ4 length that has 15 in its token."""
    return b"\xff" * (count // 255) + bytes([count % 255])


def _lz4_sequence(literals: bytes, offset: int, matched: int) -> bytes:
    """A match of 0 is none: the last sequence."""
    match = max(matched - 4, 0)
    out = bytes([min(len(literals), 15) << 4 | min(match, 15)])
    out += _longer(len(literals) - 15) if len(literals) >= 15 else b""
    out += literals
    if matched:
        out += struct.pack("<H", offset) + (_longer(match - 15) if match >= 15 else b"")
    return out


def _match(raw: bytes, at: int, most: int) -> tuple[int, int]:
    """(how far back, how long) of the reference at a place, or nothing."""
    found = raw.rfind(raw[at : at + 4], max(0, at - 60_000), at + 3)
    if at + 4 > len(raw) or not 0 <= found < at:
        return 0, 0
    size = 4
    while size < most and at + size < len(raw) and raw[at + size] == raw[found + size]:
        size += 1
    return at - found, size


def _lz4_by_hand(dice: random.Random, raw: bytes) -> tuple[str, bytes]:
    """A block that ends with as many literals as it likes."""
    of_class = dice.choice(_LZ4_CLASSES)
    at, begin, block = 0, 0, b""
    end = len(raw) - dice.choice((0, 1, 3, 4, 5, 6, 8, 11, 12, 20))
    while at < end:
        back, size = _match(raw, at, min(dice.choice((4, 18, 19, 40, 300)), end - at))
        if size < 4 or (at == begin and dice.random() < 0.3):
            at += 1
            continue
        block += _lz4_sequence(raw[begin:at], back, size)
        at = begin = at + size
    if begin < len(raw) or dice.random() < 0.8:
        block += _lz4_sequence(raw[begin:], 0, 0)
    head = bytes.fromhex(_LZ4_HEADS[of_class])
    return f"lz4 by hand {of_class}", head + struct.pack("<I", len(block)) + block + bytes(4)


def _snappy_literal(dice: random.Random, data: bytes) -> bytes:
    size = len(data) - 1
    extra = dice.choice([n for n in range(5) if (n == 0 and size < 60) or (n and size < 256**n)])
    tag = bytes([size << 2]) if not extra else bytes([(59 + extra) << 2])
    return tag + (size.to_bytes(extra, "little") if extra else b"") + data


def _snappy_copy(dice: random.Random, back: int, size: int) -> bytes:
    form = dice.randrange(3)
    if form == 0 and size < 12 and back < 2048:
        return bytes([1 | size - 4 << 2 | back >> 8 << 5, back & 255])
    if form == 1 and back < 65536:
        return bytes([2 | size - 1 << 2]) + struct.pack("<H", back)
    return bytes([3 | size - 1 << 2]) + struct.pack("<I", back)


def _unsigned(value: int) -> bytes:
    return varint(value >> 1 if value % 2 == 0 else -(value >> 1) - 1)


def _snappy_block(dice: random.Random, raw: bytes) -> bytes:
    out, at = _unsigned(len(raw)), 0
    while at < len(raw):
        back, size = _match(raw, at, dice.choice((4, 11, 12, 64)))
        if size and dice.random() < 0.7:
            out += _snappy_copy(dice, back, size)
            at += size
        else:
            size = dice.choice((1, 2, 5, 59, 60, 61, 64, 255, 256, 257, 300))
            out += _snappy_literal(dice, raw[at : at + size])
            at += size
    return out


def _xerial_header(dice: random.Random) -> bytes:
    if dice.random() < 0.8:
        return XERIAL_MAGIC
    return XERIAL_MAGIC[:8] + struct.pack(">ii", dice.choice((0, 1, 2, -1)), dice.choice((0, 1)))


def _snappy_by_hand(dice: random.Random, raw: bytes) -> tuple[str, bytes]:
    if dice.random() < 0.5:
        return "snappy by hand", _snappy_block(dice, raw)
    out, at = XERIAL_MAGIC, 0
    while at < len(raw):
        size = dice.randint(1, len(raw))
        block = _snappy_block(dice, raw[at : at + size])
        out += struct.pack(">i", len(block)) + block
        at += size
        if dice.random() < 0.2:
            out += _xerial_header(dice)
    return "snappy in pieces", out


# --- By libraries ---------------------------------------------------------------------------------


def _gzip(dice: random.Random, raw: bytes) -> tuple[str, bytes]:
    cut = dice.choice((0, len(raw) // 2))
    level = dice.choice((0, 1, 6, 9))
    joined = gzip.compress(raw[:cut], level) if cut else b""
    return "gzip", joined + gzip.compress(raw[cut:], level)


def _snappy(dice: random.Random, raw: bytes) -> tuple[str, bytes]:
    if dice.random() < 0.3:
        return "snappy raw", bytes(cramjam.snappy.compress_raw(raw))
    return "snappy", xerial(raw, dice.choice((50, 32 * 1024)))


def _lz4(dice: random.Random, raw: bytes) -> tuple[str, bytes]:
    return "lz4", lz4.frame.compress(
        raw, block_size=dice.choice(_LZ4_CLASSES), block_linked=False,
        compression_level=dice.choice((0, 9)), store_size=dice.random() < 0.5,
        content_checksum=dice.random() < 0.2, block_checksum=dice.random() < 0.2,
    )  # fmt: skip


def _zstd(dice: random.Random, raw: bytes) -> tuple[str, bytes]:
    packer = zstandard.ZstdCompressor(
        level=dice.choice((1, 3, 19)), write_content_size=dice.random() < 0.5,
        write_checksum=dice.random() < 0.1,
    )  # fmt: skip
    return "zstd", packer.compress(raw)


_MAKERS: Final[tuple[tuple[str, Callable[[random.Random, bytes], tuple[str, bytes]]], ...]] = (
    ("gzip", _gzip), ("snappy", _snappy), ("lz4", _lz4), ("zstd", _zstd),
    ("lz4", _lz4_by_hand), ("snappy", _snappy_by_hand),
)  # fmt: skip


def frame(dice: random.Random, codecs: frozenset[str] = frozenset(CODECS)) -> Frame:
    """The next one that these dice give."""
    codec, make = dice.choice([each for each in _MAKERS if each[0] in codecs])
    records = _records(dice)
    raw = b"".join(build_record(record, at, BASE_MS) for at, record in enumerate(records))
    made_by, payload = make(dice, raw)
    by_hand = make in (_lz4_by_hand, _snappy_by_hand)
    changed = dice.random() < (0.3 if by_hand else 0.8)
    if changed:
        payload = blind(payload, lambda: dice.getrandbits(32)) or b"\0"
    return Frame(made_by, CODECS[codec], len(records), payload, not (changed or by_hand))
