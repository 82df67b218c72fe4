"""Record batches that are wrong on purpose, down to the records inside a compressed one.

A `Pool` is made once from a seed: sound batches of every codec with keys, headers, nulls and
producer ids; payloads of each codec whose records are wrong, or whose compressed bytes are; and
bombs. `hostile` then makes one batch out of it from a frame's random words, in microseconds, since
ten million are wanted. The CRC is computed again for nearly all, or nothing after the checksum
would ever be reached.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import cramjam
from fastcrc import crc32

from tests.support.record_batches import CODECS, XERIAL_MAGIC, compress, varint

Take = Callable[[], int]

_BEHIND_CRC: Final = struct.Struct(">hiqqqhii")
_BEFORE_CRC: Final = struct.Struct(">qiibI")
_SIZES: Final = (8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4)  # of the header's fields, in their order
_FORMS: Final = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}
CRC_FIELD: Final = 4
LENGTH_FIELD: Final = 1
HEADER_BYTES: Final = 61

# Where integers break: ends of ranges, signs, off by one; by size in bytes.
EDGES: Final = {
    1: (-128, -2, -1, 0, 1, 2, 3, 5, 8, 127),
    2: (-(2**15), -2, -1, 0, 1, 2, 3, 7, 8, 16, 32, 64, 255, 256, 2**15 - 1),
    4: (-(2**31), -2, -1, 0, 1, 2, 3, 64, 127, 128, 255, 256, 2**15, 2**16, 2**24, 2**31 - 1),
    8: (
        -(2**63), -(2**31) - 1, -2, -1, 0, 1, 2, 3, 255, 2**31 - 1, 2**31, 2**32, 2**40, 2**53,
        2**63 - 1,
    ),
}  # fmt: skip
_VARINT_EDGES: Final = (
    0, -1, 1, -2, 2, 3, -3, 63, 64, -64, -65, 127, 128, 1000, 8191, 8192, 2**20, 2**28,
    2**31 - 1, -(2**31), 2**31, 2**32, 2**35, 2**62, -(2**63), 2**63 - 1,
)  # fmt: skip
_VARINTS: Final = (
    *map(varint, _VARINT_EDGES),
    *(b"\x80\x00", b"\x80\x80\x80\x80\x00", b"\x80" * 4, b"\xff" * 5, b"\xff" * 10, b"\xff" * 11),
)
BOMB_BYTES: Final = 80 << 20  # beyond what any batch may unpack to
BOMB_EVERY: Final = 15  # of a hundred batches; each costs the broker tens of milliseconds
_PAYLOADS_PER_CODEC: Final = 150


class Record(NamedTuple):
    """A record as pieces, each a field: attributes, deltas, lengths, contents, header count ..."""

    pieces: tuple[bytes, ...]
    numbers: tuple[int, ...]  # which of the pieces are varints


class Batch(NamedTuple):
    fields: tuple[int, ...]  # the header's thirteen
    payload: bytes
    records: tuple[Record, ...]
    sealed: bytes


class Pool(NamedTuple):
    sound: tuple[Batch, ...]
    plain: tuple[Batch, ...]  # those without compression
    payloads: dict[int, tuple[tuple[int, bytes], ...]]  # codec -> (record count, wrong payload)
    bombs: tuple[bytes, ...]


def seal(fields: tuple[int, ...] | list[int], payload: bytes) -> bytes:
    """Header and payload with the CRC that they have; the other fields as they are given."""
    covered = _BEHIND_CRC.pack(*fields[5:]) + payload
    return _BEFORE_CRC.pack(*fields[:4], crc32.iscsi(covered)) + covered


def fields_of(
    payload: bytes, count: int, codec: int, *, base_ms: int, largest_ms: int,
    producer: tuple[int, int, int] = (-1, -1, -1), attributes: int = 0,
) -> tuple[int, ...]:  # fmt: skip
    return (
        0, HEADER_BYTES - 12 + len(payload), -1, 2, 0, codec | attributes, count - 1, base_ms,
        largest_ms, *producer, count,
    )  # fmt: skip


# --- making the pool -----------------------------------------------------------------------------


def _sized(data: bytes | None) -> tuple[bytes, bytes]:
    return (varint(-1), b"") if data is None else (varint(len(data)), data)


def _record(rng: random.Random, index: int, delta_ms: int) -> Record:
    key = rng.choice([None, b"", rng.randbytes(rng.randint(1, 12))])
    value = rng.choice([None, b"", rng.randbytes(rng.randint(1, 60))])
    headers = rng.randint(0, 2)
    pieces = [b"\0", varint(delta_ms), varint(index), *_sized(key), *_sized(value), varint(headers)]
    numbers = [1, 2, 3, 5, 7]
    for _ in range(headers):
        numbers += [len(pieces), len(pieces) + 2]
        pieces += [*_sized(rng.randbytes(3)), *_sized(rng.choice([None, b"x"]))]
    return Record(tuple(pieces), tuple(numbers))


def joined(record: Record) -> bytes:
    body = b"".join(record.pieces)
    return varint(len(body)) + body


def _sound(rng: random.Random, codec: str) -> Batch:
    deltas = [rng.randint(0, 5_000) for _ in range(rng.randint(1, 6))]
    records = tuple(_record(rng, i, delta) for i, delta in enumerate(deltas))
    payload = compress(codec, b"".join(joined(record) for record in records))
    producer = rng.choice([(-1, -1, -1), (-1, -1, -1), (7_000 + rng.randrange(8), 0, 0)])
    fields = fields_of(
        payload, len(records), CODECS[codec], base_ms=1_000, largest_ms=1_000 + max(deltas),
        producer=producer,
    )  # fmt: skip
    return Batch(fields, payload, records, seal(fields, payload))


def make_pool(seed: int) -> Pool:
    rng = random.Random(f"{seed}-pool")
    sound = tuple(_sound(rng, codec) for codec in CODECS for _ in range(16))
    plain = tuple(batch for batch in sound if batch.fields[5] == 0)
    payloads = {
        CODECS[codec]: tuple(_payload(rng, codec, plain) for _ in range(_PAYLOADS_PER_CODEC))
        for codec in CODECS
        if codec != "none"
    }
    return Pool(sound, plain, payloads, _bombs())


def _payload(rng: random.Random, codec: str, plain: tuple[Batch, ...]) -> tuple[int, bytes]:
    batch = rng.choice(plain)
    words = [rng.getrandbits(32) for _ in range(24)]
    raw = wrong_records(batch, iter(words).__next__)
    packed = compress(codec, raw)
    what = rng.randrange(10)
    if what < 4:
        pass  # sound in its codec, wrong inside
    elif what < 6:
        packed = compress(codec, batch.payload)[: rng.randint(0, len(packed))]
    elif what < 8:
        packed = _blind(compress(codec, batch.payload), iter(words).__next__)
    elif what == 8:
        packed = compress(codec, packed)  # nested
    else:
        packed = _framing(rng, codec, raw)
    return len(batch.records), packed


def _framing(rng: random.Random, codec: str, raw: bytes) -> bytes:
    """What the codec's own framing can say wrong: sizes, claims, pieces joined."""
    claim = rng.choice([2**31 - 1, 2**32 - 1, 2**62, len(raw) + 1, 0])
    if codec == "snappy":
        block = bytes(cramjam.snappy.compress_raw(raw))
        sizes = (-1, 0, len(block) - 1, len(block) + 1, 2**31 - 1)
        return rng.choice(
            [
                XERIAL_MAGIC,
                XERIAL_MAGIC[:11],
                XERIAL_MAGIC + struct.pack(">i", rng.choice(sizes)) + block,
                (XERIAL_MAGIC + struct.pack(">i", len(block)) + block) * 2,
                block,
                b"\xff\xff\xff\xff\x0f" + block[1:],  # a raw block that claims 4 GB
            ]
        )
    if codec == "zstd":
        frame = b"\x28\xb5\x2f\xfd"
        return rng.choice(
            [
                frame + b"\xe0" + struct.pack("<Q", claim) + b"\x01\x00\x00",
                frame + b"\x00\xff" + b"\x03\xff\xff" + raw[:1],  # the largest window, RLE
                compress(codec, raw) * 2,
                struct.pack("<II", 0x184D2A50, 2**31) + raw,  # a skippable frame
            ]
        )
    if codec == "lz4":
        sound = compress(codec, raw)
        return rng.choice(
            [sound * 2, sound[:7] + struct.pack("<I", claim & 0xFFFFFFFF) + sound[11:], sound[:-4]]
        )
    return rng.choice([compress(codec, raw) + b"\x1f\x8b", compress(codec, raw) * 2, b"\x1f\x8b"])


def _bombs() -> tuple[bytes, ...]:
    # One record whose value is larger than any batch may unpack to, so that the walk goes on.
    body = b"\0\0\0\1" + varint(BOMB_BYTES)
    raw = varint(len(body) + BOMB_BYTES + 1) + body + bytes(BOMB_BYTES) + b"\0"
    bombs = []
    for codec in ("gzip", "zstd"):
        payload = compress(codec, raw)
        fields = fields_of(payload, 1, CODECS[codec], base_ms=1_000, largest_ms=1_000)
        bombs.append(seal(fields, payload))
    return tuple(bombs)


def heavy() -> Iterator[tuple[str, bytes]]:
    """Batches with dear content: bombs on both sides of the bound, very many small records."""
    for codec in CODECS:
        if codec == "none":
            continue
        for size in (1 << 20, 60 << 20, BOMB_BYTES):
            yield f"{size >> 20} MB of zeros by {codec}", _one_value(codec, size)
        count = 200_000
        raw = b"".join(_smallest(index) for index in range(count))
        yield f"{count} empty records by {codec}", _sealed(codec, raw, count)


def _one_value(codec: str, size: int) -> bytes:
    body = b"\0\0\0\1" + varint(size)
    return _sealed(codec, varint(len(body) + size + 1) + body + bytes(size) + b"\0", 1)


def _smallest(index: int) -> bytes:
    body = b"\0\0" + varint(index) + b"\1\1\0"
    return varint(len(body)) + body


def _sealed(codec: str, raw: bytes, count: int) -> bytes:
    payload = compress(codec, raw)
    fields = fields_of(payload, count, CODECS[codec], base_ms=1_000, largest_ms=1_000)
    return seal(fields, payload)


# --- one hostile batch ---------------------------------------------------------------------------


def hostile(pool: Pool, take: Take) -> bytes:
    what = take() % 100
    if what < 32:
        return _wrong_header(pool, take)
    if what < 52:
        batch = pool.plain[take() % len(pool.plain)]
        return _with_payload(batch, wrong_records(batch, take))
    if what < 70:
        codec = 1 + take() % 4
        payloads = pool.payloads[codec]
        count, payload = payloads[take() % len(payloads)]
        fields = fields_of(payload, count, codec, base_ms=1_000, largest_ms=6_000)
        return seal(fields, payload)
    batch = pool.sound[take() % len(pool.sound)]
    if what < 80:
        return _with_payload(batch, _blind(batch.payload, take))
    if what < 86:
        return _blind(batch.sealed, take)  # the CRC is most likely wrong
    if what < 90:
        return batch.sealed[: take() % len(batch.sealed)]
    if what < 93:
        return batch.sealed + pool.sound[take() % len(pool.sound)].sealed
    if what == 93 and take() % BOMB_EVERY == 0:
        return pool.bombs[take() % len(pool.bombs)]
    return batch.sealed


def _with_payload(batch: Batch, payload: bytes) -> bytes:
    fields = list(batch.fields)
    fields[LENGTH_FIELD] = HEADER_BYTES - 12 + len(payload)
    return seal(fields, payload)


def _wrong_header(pool: Pool, take: Take) -> bytes:
    batch = pool.sound[take() % len(pool.sound)]
    fields = list(batch.fields)
    number = take() % 13
    size = _SIZES[number]
    edges = EDGES[size]
    choice = take()
    if choice % 4 == 0:
        fields[number] += (1, -1)[choice >> 8 & 1]
    elif choice % 4 == 1 and number == 5:
        fields[number] ^= 1 << (choice >> 8) % 15
    else:
        fields[number] = edges[(choice >> 2) % len(edges)]
    if number == CRC_FIELD:
        return batch.sealed[:17] + struct.pack(">I", choice) + batch.sealed[21:]
    return seal(fields, batch.payload)


def wrong_records(batch: Batch, take: Take) -> bytes:
    """The records of an uncompressed batch with one field of one of them wrong, or one lost."""
    records = [joined(record) for record in batch.records]
    at = take() % len(records)
    record = batch.records[at]
    what = take()
    if what % 16 == 0:
        return b"".join(records[:at] + records[at + 1 :])
    if what % 16 == 1:
        return b"".join([*records, records[at]])
    pieces = list(record.pieces)
    piece = record.numbers[(what >> 4) % len(record.numbers)]
    pieces[piece] = _VARINTS[take() % len(_VARINTS)]
    body = b"".join(pieces)
    how = take() % 8
    if how < 5:
        length = varint(len(body))
    elif how < 7:
        length = varint(sum(map(len, record.pieces)))  # what it was before
    else:
        length = _VARINTS[take() % len(_VARINTS)]
    records[at] = length + body
    return b"".join(records)


def _blind(data: bytes, take: Take) -> bytes:
    """Bytes changed, cut out, put in or doubled, without regard to their meaning."""
    out = bytearray(data)
    for _ in range(1 + take() % 3):
        if not out:
            break
        what = take()
        at = (what >> 8) % len(out)
        how = what % 6
        if how == 0:
            out[at] = (0, 1, 0x7F, 0x80, 0xFF)[(what >> 3) % 5]
        elif how < 3:
            out[at] ^= 1 << (what >> 4) % 8
        elif how == 3:
            del out[at : at + 1 + (what >> 4) % 8]
        elif how == 4:
            out[at:at] = what.to_bytes(4, "big")[: 1 + (what >> 5) % 4]
        else:
            out[at:at] = out[at : at + 1 + (what >> 4) % 16]
    return bytes(out)


blind = _blind
