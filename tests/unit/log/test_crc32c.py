"""CRC-32C against fastcrc, in each of its implementations and across their borders."""

from __future__ import annotations

import random

import pytest
from fastcrc import crc32

from kbroker.log.looking._tools import crc32c

KINDS = [pytest.param(0, id="table"), pytest.param(1, id="serial"), pytest.param(2, id="streams")]


def test_the_check_value_of_the_catalogue() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_length_around_the_borders_of_the_loops(kind: int) -> None:
    data = random.Random(1).randbytes(20_000)
    borders = [8, 3 * 256, 6 * 256, 3 * 2048, 3 * 2048 + 3 * 256, 6 * 2048]
    lengths = {*range(70), *(b + d for b in borders for d in range(-9, 10)), 19_999}
    for length in sorted(lengths):
        assert crc32c(data[:length], 0, kind) == crc32.iscsi(data[:length]), length


@pytest.mark.parametrize("kind", KINDS)
def test_any_alignment(kind: int) -> None:
    data = random.Random(2).randbytes(8_000)
    for start in range(17):
        piece = memoryview(data)[start:]
        assert crc32c(piece, 0, kind) == crc32.iscsi(bytes(piece))


@pytest.mark.parametrize("kind", KINDS)
def test_parts_give_the_crc_of_the_whole(kind: int) -> None:
    rng = random.Random(3)
    data = rng.randbytes(50_000)
    crc = at = 0
    while at < len(data):
        size = rng.choice((1, 7, 100, 769, 6_144, 9_000))
        crc = crc32c(data[at : at + size], crc, kind)
        at += size
    assert crc == crc32.iscsi(data)


def test_one_flipped_bit_is_seen() -> None:
    data = bytearray(random.Random(4).randbytes(10_000))
    crc = crc32c(data)
    for at in (0, 1, 4_095, 6_143, 6_144, 9_999):
        data[at] ^= 0x10
        assert crc32c(data) != crc
        data[at] ^= 0x10
