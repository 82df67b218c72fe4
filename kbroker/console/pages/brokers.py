"""All brokers: where they are, what they lead and hold, their disks; and what is on its way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.console import moves
from kbroker.console.asked import Asked
from kbroker.console.moves import Move, moves_of, sizes_of
from kbroker.console.page import Cell, Column, Notice, Page, Section, Table, Tone, Unit, to
from kbroker.console.sections import in_order, piece, refusal, rows_of
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.findings.missing_replicas import (
    Moving,
    missing_replicas,
    moving_now,
    partitions_in,
)
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.peer.config_messages import LogDirectory
    from kbroker.peer.messages import ClusterMetadata

REFRESH_S: Final = 10
ANSWERS, SILENT, GONE = "yes", "silent", "gone"

COLUMNS: Final = (
    Column("broker", "Broker"),
    Column("address", "Address"),
    Column("rack", "Rack"),
    Column("answers", "Answers"),
    Column("leads", "Leads", Unit.COUNT),
    Column("replicas", "Replicas", Unit.COUNT),
    Column("missing", "Not in sync", Unit.COUNT),
    Column("coming", "On the way here", Unit.COUNT),
    Column("logs_bytes", "Logs", Unit.BYTES),
    Column("free_bytes", "Free", Unit.BYTES),
    Column("offline_directories", "Offline directories", Unit.COUNT),
)


class Counts(NamedTuple):
    """By broker."""

    leads: Mapping[int, int]
    replicas: Mapping[int, int]
    missing: Mapping[int, int]
    coming: Mapping[int, int]


def make(asked: Asked) -> Page:
    client = asked.client
    cluster = client.metadata()
    moving = moving_now(client)
    directories, trouble = directories_of(asked)
    counts, leaders = counted(asked, cluster, moving)
    every = sorted({*cluster.brokers, *counts.replicas})
    held = piece(asked, "brokers", len(every), "brokers")
    rows = rows_of(
        asked,
        every[held.start : held.end],
        lambda node_id: _row(node_id, cluster, counts, directories),
    )
    sections: list[Section] = [*trouble]
    sections.append(
        Table("brokers", "Brokers", COLUMNS, rows, total=held.total, next_path=held.next_path)
    )
    sections.append(moves_table(asked, moving, directories or {}, leaders, "brokers"))
    return Page("Brokers", sections, refresh_s=REFRESH_S)


def directories_of(
    asked: Asked,
) -> tuple[Mapping[int, Sequence[LogDirectory]] | None, Sequence[Notice]]:
    """By broker, of those that answer; None, and a notice why, for a visitor who may not see
    them."""
    try:
        return asked.client.log_directories(of_all=False), ()
    except (KafkaError, UserError) as error:
        return None, (refusal("log directories", error),)


def counted(
    asked: Asked, cluster: ClusterMetadata, moving: Moving
) -> tuple[Counts, dict[TopicPartition, int]]:
    """With the leader of each partition that moves."""
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    leaders: dict[TopicPartition, int] = {}
    for name, each in partitions_in(cluster, asked.pause):
        leads[each.leader] = leads.get(each.leader, 0) + 1
        for node_id in each.replicas:
            replicas[node_id] = replicas.get(node_id, 0) + 1
        if name in moving:
            leaders[name] = each.leader
    missing = missing_replicas(cluster, moving, asked.pause)
    coming = (each.adding for each in moving.values())
    return Counts(leads, replicas, _each(missing.values()), _each(coming)), leaders


def _each(brokers: Iterable[Iterable[int]]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for some in brokers:
        for node_id in some:
            counts[node_id] = counts.get(node_id, 0) + 1
    return counts


def _row(
    node_id: int,
    cluster: ClusterMetadata,
    counts: Counts,
    directories: Mapping[int, Sequence[LogDirectory]] | None,
) -> Sequence[Cell]:
    address = cluster.brokers.get(node_id)
    theirs = None if directories is None else directories.get(node_id)
    answers: str | None = GONE
    if address is not None:
        answers = ANSWERS if theirs is not None else SILENT
    if directories is None and address is not None:
        answers = None  # it was not asked
    missing = counts.missing.get(node_id, 0)
    offline = None if theirs is None else sum(each.error is not ErrorCode.NONE for each in theirs)
    return (
        Cell(node_id, to("brokers", node_id)),
        Cell(None if address is None else f"{address.host}:{address.port}"),
        Cell(None if address is None else address.rack),
        Cell(answers, tone=Tone.BAD if answers in (GONE, SILENT) else Tone.PLAIN),
        Cell(counts.leads.get(node_id, 0)),
        Cell(counts.replicas.get(node_id, 0)),
        Cell(missing, tone=Tone.WARN if missing else Tone.PLAIN),
        Cell(counts.coming.get(node_id, 0)),
        Cell(_logs_bytes(theirs)),
        Cell(_free(theirs)),
        Cell(offline, tone=Tone.BAD if offline else Tone.PLAIN),
    )


def _logs_bytes(directories: Sequence[LogDirectory] | None) -> int | None:
    if directories is None:
        return None
    return sum(log.size_bytes for each in directories for log in each.logs)


def _free(directories: Sequence[LogDirectory] | None) -> int | None:
    """Of the fullest disk: the one that ends first."""
    some = () if directories is None else directories
    return min((max(each.usable_bytes, 0) for each in some if each.total_bytes > 0), default=None)


def moves_table(
    asked: Asked,
    moving: Moving,
    directories: Mapping[int, Sequence[LogDirectory]],
    leaders: Mapping[TopicPartition, int],
    *path: str | int,
) -> Table:
    held = piece(asked, "moves", len(moving), *path)
    some = {name: moving[name] for name in in_order(asked, moving, held, lambda each: each)}
    rows = rows_of(asked, moves_of(some, sizes_of(directories, some), leaders), Move.row)
    return Table(
        "moves", "Partitions on the way to other brokers", moves.COLUMNS, rows,
        total=held.total, next_path=held.next_path,
    )  # fmt: skip
