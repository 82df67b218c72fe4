"""Replicas of a partition have the same bytes when nothing is written any more.

Compared is what the segments hold one after the other: where one replica has begun a new segment
another one may not have. Logs that are compacted are each broker's own and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kbroker.types import TopicPartition
from tests.cluster.checker import Violation

RULE: Final = "replicas differ"
_PIECE_BYTES: Final = 1 << 20


def segments(data_dir: Path, place: TopicPartition) -> list[Path]:
    """In the order of their offsets, which their names have in 20 digits."""
    return sorted((data_dir / f"{place.topic}-{place.partition}").glob("*.log"))


def joined(files: Sequence[Path]) -> bytes:
    return b"".join(file.read_bytes() for file in files)


def compare(
    data_dirs: Mapping[int, Path], replicas: Mapping[TopicPartition, Sequence[int]]
) -> list[Violation]:
    """`data_dirs` by broker, `replicas` as the brokers answered."""
    found = []
    for place, nodes in sorted(replicas.items()):
        contents = {node: joined(segments(data_dirs[node], place)) for node in nodes}
        first, *others = nodes
        for other in others:
            a, b = contents[first], contents[other]
            if a != b:
                found.append(Violation(RULE, f"{place}: {difference(first, a, other, b)}"))
    return found


def difference(first: int, a: bytes, other: int, b: bytes) -> str:
    shorter = min(len(a), len(b))
    at = shorter
    for begin in range(0, shorter, _PIECE_BYTES):
        one, two = (each[begin : min(begin + _PIECE_BYTES, shorter)] for each in (a, b))
        if one != two:
            at = begin + next(n for n in range(len(one)) if one[n] != two[n])
            break
    return f"broker {first} has {len(a)} bytes, broker {other} {len(b)}, the same up to {at}"
