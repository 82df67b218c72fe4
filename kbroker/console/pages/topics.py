"""The cluster's topics: partitions, replicas that are missing, and sizes.

Two requests: the metadata of all topics that the visitor may describe, and the sizes of those on
the page. Sizes are the leaders'; they are left out where the visitor may not describe the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from kbroker.console.asked import ROWS_MAX
from kbroker.console.page import (
    Cell,
    Column,
    Field,
    Form,
    Links,
    Notice,
    Page,
    Section,
    Table,
    Tone,
    Unit,
    to,
)
from kbroker.errors import ErrorCode, KafkaError
from kbroker.findings.pieces import in_order, in_pieces
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.console.asked import Asked
    from kbroker.peer.messages import TopicMetadata

SEARCH_CHARS_MAX: Final = 249
# Their sizes are asked for one page.
SIZED_PARTITIONS_MAX: Final = 20_000
_COLUMNS: Final = (
    Column("name", "Topic"),
    Column("partitions", "Partitions", Unit.COUNT),
    Column("replication_factor", "Replicas", Unit.COUNT),
    Column("under_replicated", "Under-replicated", Unit.COUNT),
    Column("leaderless", "Without leader", Unit.COUNT),
    Column("size_bytes", "Size", Unit.BYTES),
)


def make(asked: Asked) -> Page:
    search = asked.query.get("q", "")[:SEARCH_CHARS_MAX]
    internal = asked.query.get("internal") == "1"
    first = asked.number("first", 0)
    found = asked.client.metadata().topics
    asked.pause()
    wanted = search.lower()
    names = [
        name
        for name, topic in in_pieces(found.items(), asked.pause)
        if (internal or not topic.internal) and wanted in name.lower()
    ]
    first = min(first, len(names))
    listed = islice(in_order(names, asked.pause, str), first, first + ROWS_MAX)
    topics = [found[name] for name in listed]
    sizes, refused = leader_sizes(asked, topics)
    asked.pause()
    following = ""
    if first + ROWS_MAX < len(names):
        following = to(
            "topics",
            q=search or None,
            internal="1" if internal else None,
            first=first + ROWS_MAX,
        )
    sections: list[Section] = [
        Form("search", "Search", to("topics"), _fields(search, internal=internal), "Search"),
        Table(
            "topics",
            "Topics",
            _COLUMNS,
            [_row(topic, sizes) for topic in topics],
            empty="no topic has this in its name" if search else "there are no topics",
            total=len(names),
            next_path=following,
        ),
    ]
    if refused is not None:
        sections.insert(0, refused)
    if asked.may_write:
        links = [("Create a topic", to("writes", "topics", "create"))]
        sections.append(Links("write", "Change", links))
    return Page("Topics", sections, refresh_s=30)


def _fields(search: str, *, internal: bool) -> Sequence[Field]:
    return (
        Field("q", "Name", search, kind="search"),
        Field(
            "internal",
            "Internal topics",
            "1" if internal else "",
            options=(("", "left out"), ("1", "listed")),
        ),
    )


def leader_sizes(
    asked: Asked, topics: Sequence[TopicMetadata]
) -> tuple[Mapping[TopicPartition, int], Notice | None]:
    """The bytes of each partition at its leader; none, and why, where the visitor may not ask."""
    leaders: dict[TopicPartition, int] = {}
    notice = None
    for topic in topics:
        if len(leaders) + len(topic.partitions) > SIZED_PARTITIONS_MAX:
            text = f"sizes are of {SIZED_PARTITIONS_MAX} partitions at most, others are left out"
            notice = Notice(Tone.QUIET, text, "search for a topic, or see its page")
            continue
        for each in topic.partitions:
            if each.leader >= 0:
                leaders[TopicPartition(topic.name, each.index)] = each.leader
    if not leaders:
        return {}, notice
    try:
        directories = asked.client.log_directories(of_all=False, partitions=list(leaders))
    except KafkaError as error:
        if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        text = "sizes are left out: this user may not describe the cluster"
        return {}, Notice(Tone.QUIET, text, "an ACL that allows Describe on the cluster is needed")
    sizes = {
        log.partition: log.size_bytes
        for node_id, found in directories.items()
        for directory in found
        for log in directory.logs
        if not log.future and leaders.get(log.partition) == node_id
    }
    return sizes, notice


def size_of(topic: TopicMetadata, sizes: Mapping[TopicPartition, int]) -> int | None:
    """None: the size of a partition is not known."""
    total = 0
    for partition in topic.partitions:
        size = sizes.get(TopicPartition(topic.name, partition.index))
        if size is None:
            return None
        total += size
    return total


def under_replicated(topic: TopicMetadata) -> int:
    return sum(len(each.isr) < len(each.replicas) for each in topic.partitions)


def replication_factor(topic: TopicMetadata) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def _row(topic: TopicMetadata, sizes: Mapping[TopicPartition, int]) -> list[Cell]:
    lacking = under_replicated(topic)
    leaderless = sum(each.leader < 0 for each in topic.partitions)
    return [
        Cell(topic.name, to("topics", topic.name)),
        Cell(len(topic.partitions)),
        Cell(replication_factor(topic)),
        Cell(lacking, tone=Tone.WARN if lacking else Tone.PLAIN),
        Cell(leaderless, tone=Tone.BAD if leaderless else Tone.PLAIN),
        Cell(size_of(topic, sizes)),
    ]
