"""Partitions that are on their way to other brokers, with how far each copy has come.

Sizes are those of the logs, as DescribeLogDirs has them: a copy that compaction or retention has
made smaller than the leader's log may end below it. Pure.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbroker.console.page import Cell, Column, Unit, to
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.findings.missing_replicas import Moving
    from kbroker.peer.config_messages import LogDirectory

# Bytes of each broker's replicas.
Sizes = Mapping[int, Mapping[TopicPartition, int]]

COLUMNS = (
    Column("topic", "Topic"),
    Column("partition", "Partition"),
    Column("to", "To brokers"),
    Column("from", "From brokers"),
    Column("has_bytes", "Copied", Unit.BYTES),
    Column("of_bytes", "Of", Unit.BYTES),
    Column("progress", "Progress", Unit.RATIO),
)


class Move(NamedTuple):
    """`has_bytes`: of the copy that has least; None where its broker, or the leader, has not
    answered."""

    where: TopicPartition
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    has_bytes: int | None
    of_bytes: int | None

    @property
    def progress(self) -> float | None:
        if self.has_bytes is None or self.of_bytes is None:
            return None
        return min(1.0, self.has_bytes / self.of_bytes) if self.of_bytes else 1.0

    def row(self) -> Sequence[Cell]:
        return (
            Cell(self.where.topic, to("topics", self.where.topic)),
            Cell(self.where.partition),
            Cell(ids(self.adding)),
            Cell(ids(self.removing)),
            Cell(self.has_bytes),
            Cell(self.of_bytes),
            Cell(self.progress),
        )


def sizes_of(
    directories: Mapping[int, Iterable[LogDirectory]], wanted: Container[TopicPartition]
) -> Sizes:
    """Of these partitions."""
    return {
        node_id: {
            log.partition: log.size_bytes
            for each in theirs
            for log in each.logs
            if log.partition in wanted
        }
        for node_id, theirs in directories.items()
    }


def moves_of(moving: Moving, sizes: Sizes, leaders: Mapping[TopicPartition, int]) -> list[Move]:
    """In the order of their names."""
    return [_move(name, moving, sizes, leaders) for name in sorted(moving)]


def _move(
    name: TopicPartition, moving: Moving, sizes: Sizes, leaders: Mapping[TopicPartition, int]
) -> Move:
    found = moving[name]
    of = sizes.get(leaders.get(name, -1), {}).get(name)
    # A broker that answers and has no log yet has nothing; one that does not answer is not known.
    copies = [sizes[each].get(name, 0) if each in sizes else None for each in found.adding]
    known = [each for each in copies if each is not None]
    has = min(known) if known and len(known) == len(copies) else None
    return Move(name, found.adding, found.removing, has, of)


def ids(brokers: Iterable[int]) -> str | None:
    return ", ".join(map(str, brokers)) or None
