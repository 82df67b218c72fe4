"""The hash against published values of the Java client, and the stickiness without a key."""

from __future__ import annotations

import random

import pytest

from kbroker.peer.partitioner import StickyPartitioner, murmur2, partition_for_key

# Values that Kafka's own tests and those of other clients agree on.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("data", "signed"), KNOWN.items())
def test_murmur2(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF
    assert partition_for_key(data, 13) == (signed & 0x7FFFFFFF) % 13


def test_a_key_always_has_a_partition() -> None:
    for number in range(500):
        assert 0 <= partition_for_key(b"%d" % number, 7) < 7
    assert 0 <= partition_for_key(b"", 3) < 3


def test_one_partition_is_never_left() -> None:
    sticky = StickyPartitioner(random.Random(1))
    for _ in range(3):
        assert sticky.partition(None, 1) == 0
        sticky.next_batch(1)


def test_it_moves_to_another_partition_and_visits_all() -> None:
    sticky = StickyPartitioner(random.Random(1))
    seen = set()
    before = -1
    for _ in range(100):
        now = sticky.partition(None, 5)
        assert sticky.partition(None, 5) == now != before
        seen.add(now)
        before = now
        sticky.next_batch(5)
    assert seen == set(range(5))


def test_fewer_partitions_than_before() -> None:
    sticky = StickyPartitioner(random.Random(1))
    for _ in range(20):
        sticky.partition(None, 10)
        sticky.next_batch(10)
        assert sticky.partition(None, 2) < 2
