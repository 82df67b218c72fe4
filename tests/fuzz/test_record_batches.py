"""Hostile record batches: what the log takes, a plain reader can read; nothing else happens.

Every example is a sound batch with something done to it, and a CRC that fits again, so that the
bytes get past the checksum and to the walk. KBROKER_FUZZ_SEED replays a run; the seed is in the
failure's message.
"""

from __future__ import annotations

import os
import random
import struct
import uuid
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.log.looking._tools import walk_records
from kbroker.protocol._unpacking import CodecMissing
from tests.support.led_log import open_led_log
from tests.support.record_batches import (
    CODECS,
    Record,
    build_batch,
    compress,
    decompress,
    parse_batches,
    parse_records,
    seal,
)
from tests.support.verdict import check_batch

SEED = int(os.environ.get("KBROKER_FUZZ_SEED", "1"))
ROUNDS = 1_500


def a_batch(rng: random.Random, codec: str) -> bytes:
    records = [
        Record(
            value=rng.choice([None, rng.randbytes(rng.randint(0, 40))]),
            key=rng.choice([None, rng.randbytes(rng.randint(0, 9))]),
            timestamp_ms=rng.randint(0, 5_000),
            headers=[
                (rng.randbytes(3), rng.choice([None, b"x"])) for _ in range(rng.randint(0, 2))
            ],
        )
        for _ in range(rng.randint(1, 5))
    ]
    return build_batch(records, codec=codec)


def altered(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        if not out:
            break
        what = rng.randrange(5)
        at = rng.randrange(len(out))
        if what == 0:
            out[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        elif what == 1:
            out[at] ^= 1 << rng.randrange(8)
        elif what == 2:
            del out[at : at + rng.randint(1, 8)]
        elif what == 3:
            out[at:at] = rng.randbytes(rng.randint(1, 8))
        else:
            out[at:at] = out[at : at + rng.randint(1, 20)]
    return bytes(out)


@pytest.mark.parametrize("codec", CODECS)
def test_altered_records(tmp_path: Path, codec: str) -> None:
    rng = random.Random(f"{SEED}-records-{codec}")
    log = open_led_log(tmp_path / "words-0", "words", 0, uuid.UUID(int=1), {})
    log.set_leadership(1, True, 0, 1)
    taken = 0
    for number in range(ROUNDS):
        batch = a_batch(rng, codec)
        body = decompress(CODECS[codec], batch[61:])
        payload = altered(rng, body)
        count = struct.unpack_from(">i", batch, 57)[0]
        packed = compress(codec, payload)
        length = struct.pack(">i", 49 + len(packed))
        batch = seal(batch[:8] + length + batch[12:61] + packed)
        try:
            parse_records(payload, count, 0)
            sound = True
        except (AssertionError, IndexError, OverflowError):
            sound = False
        result = log.append_group([batch])[0]
        where = f"seed {SEED}, round {number}: {payload.hex()}"
        if result.error == 0:
            assert sound, where
            taken += 1
        elif result.error != ErrorCode.INVALID_TIMESTAMP:
            assert result.error == ErrorCode.INVALID_RECORD, where
        assert check_batch(batch) == result.error, where
    assert 10 < taken < ROUNDS
    offset = 0
    while data := log.read(offset):
        offset = parse_batches(data)[-1].last_offset + 1
    assert offset == log.log_end_offset
    log.close(clean=False)


@pytest.mark.parametrize("codec", CODECS)
def test_altered_batches(tmp_path: Path, codec: str) -> None:
    rng = random.Random(f"{SEED}-batches-{codec}")
    log = open_led_log(tmp_path / "words-0", "words", 0, uuid.UUID(int=1), {})
    log.set_leadership(1, True, 0, 1)
    for _ in range(ROUNDS):
        batch = altered(rng, a_batch(rng, codec))
        if len(batch) > 21 and rng.random() < 0.8:
            batch = seal(batch)
        try:
            log.append_group([batch])
        except NotImplementedError:
            pass
    offset = 0
    while data := log.read(offset):
        offset = parse_batches(data)[-1].last_offset + 1
    assert offset == log.log_end_offset
    log.close(clean=False)


def test_noise(tmp_path: Path) -> None:
    rng = random.Random(f"{SEED}-noise")
    for _ in range(ROUNDS * 4):
        data = rng.randbytes(rng.randint(0, 120))
        try:
            walk = walk_records(data, rng.randint(0, 4), rng.randint(0, 5), rng.getrandbits(63))
        except CodecMissing:
            continue
        assert walk.error in (0, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("damage", ["altered", "noise", "cut"])
def test_a_log_file_of_anything_opens(tmp_path: Path, damage: str) -> None:
    rng = random.Random(f"{SEED}-{damage}")
    for number in range(60):
        path = tmp_path / f"words-{number}"
        log = open_led_log(path, "words", number, uuid.UUID(int=1), {"segment_bytes": 400})
        log.set_leadership(1, True, 0, 1)
        for _ in range(8):
            log.append(a_batch(rng, "none"))
        log.close()
        for file in sorted(path.iterdir()):
            if file.name == "partition.metadata" or rng.random() < 0.5:
                continue
            data = file.read_bytes()
            if damage == "altered":
                data = altered(rng, data)
            elif damage == "noise":
                data = rng.randbytes(rng.randint(0, 300))
            else:
                data = data[: rng.randint(0, len(data))]
            file.write_bytes(data)
        log = open_led_log(path, "words", number, uuid.UUID(int=1), {"segment_bytes": 400})
        log.set_leadership(1, True, 1, 1)
        base = log.append(build_batch([b"next"])).base_offset
        offset = log.log_start_offset
        while data := log.read(offset):
            offset = parse_batches(data)[-1].last_offset + 1
        assert offset == base + 1 == log.log_end_offset
        log.close(clean=False)
