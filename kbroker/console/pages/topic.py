"""One topic: its partitions with offsets and sizes, its settings, and the groups that read it.

Offsets are asked of the page's partitions that have a leader; one without has dashes. Groups
are asked for their offsets only where the cluster has few of them; those of a coordinator that does
not answer are left out, with a notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.console.asked import ROWS_MAX
from kbroker.console.group_listing import by_name, list_groups, silent_notices
from kbroker.console.message_source import Bounds, log_bounds, topic_of
from kbroker.console.page import (
    Cell,
    Column,
    Fact,
    Facts,
    Links,
    Notice,
    Page,
    Section,
    Table,
    Tone,
    Unit,
    to,
)
from kbroker.console.pages.topics import (
    leader_sizes,
    replication_factor,
    size_of,
    under_replicated,
)
from kbroker.errors import ErrorCode, KafkaError
from kbroker.findings.pieces import in_pieces
from kbroker.peer.config_messages import TOPIC_SOURCE, source_name
from kbroker.peer.groups import Groups
from kbroker.peer.isolation import READ_UNCOMMITTED
from kbroker.types import TopicPartition, uuid_text

if TYPE_CHECKING:
    from kbroker.console.asked import Asked
    from kbroker.peer.config_messages import ConfigValue
    from kbroker.peer.groups import Listed
    from kbroker.peer.messages import PartitionMetadata, TopicMetadata

# Each is asked for all of its offsets.
GROUPS_ASKED_MAX: Final = 200
_SHARE: Final = "share"
_PARTITIONS: Final = (
    Column("partition", "Partition"),
    Column("leader", "Leader"),
    Column("leader_epoch", "Epoch"),
    Column("replicas", "Replicas"),
    Column("isr", "In-sync"),
    Column("log_start_offset", "Start"),
    Column("log_end_offset", "End"),
    Column("records_max", "Records, at most", Unit.COUNT),
    Column("size_bytes", "Size", Unit.BYTES),
)
_SETTINGS: Final = (
    Column("key", "Setting"),
    Column("value", "Value"),
    Column("source", "From"),
)
_GROUPS: Final = (
    Column("group", "Group"),
    Column("state", "State"),
    Column("partitions", "Partitions with an offset", Unit.COUNT),
    Column("lag", "Lag", Unit.COUNT),
)


def make(asked: Asked) -> Page:
    name = asked.path["topic"]
    first = asked.number("first", 0)
    topic = topic_of(asked, name)
    ordered = sorted(topic.partitions, key=lambda each: each.index)
    listed = ordered[first : first + ROWS_MAX]
    led = [TopicPartition(name, each.index) for each in listed if each.leader >= 0]
    sizes, refused = leader_sizes(asked, [topic])
    asked.pause()
    logs, why_no_logs = _logs(asked, led)
    sections: list[Section] = [notice for notice in (refused, why_no_logs) if notice is not None]
    sections += [
        _facts(topic, sizes, logs),
        Links("more", "More", _links(asked, name)),
        Table(
            "partitions",
            "Partitions",
            _PARTITIONS,
            [_row(name, each, logs, sizes) for each in listed],
            total=len(ordered),
            next_path=to("topics", name, first=first + ROWS_MAX)
            if first + ROWS_MAX < len(ordered)
            else "",
        ),
    ]
    asked.pause()
    sections.append(_settings(asked, name))
    asked.pause()
    sections += _groups(asked, name, logs)
    return Page(name, sections, trail=[("Topics", to("topics"))], refresh_s=10)


def _logs(
    asked: Asked, led: Sequence[TopicPartition]
) -> tuple[Mapping[TopicPartition, Bounds], Notice | None]:
    try:
        return log_bounds(asked, led, READ_UNCOMMITTED), None
    except KafkaError as error:
        return {}, Notice(Tone.WARN, f"offsets are not known: {error.message}")


def _links(asked: Asked, name: str) -> Sequence[tuple[str, str]]:
    links: list[tuple[str, str]] = []
    if asked.messages != "off":
        links.append(("Messages", to("topics", name, "messages")))
    if asked.may_write:
        links += [
            ("Change settings", to("writes", "topics", name, "configure")),
            ("Add partitions", to("writes", "topics", name, "grow")),
            ("Delete", to("writes", "topics", name, "delete")),
        ]
    return links


def _facts(
    topic: TopicMetadata,
    sizes: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, Bounds],
) -> Facts:
    lacking = under_replicated(topic)
    topic_id = None if topic.topic_id is None else uuid_text(topic.topic_id)
    records = sum(log.end - log.start for log in logs.values())
    whole = len(logs) == len(topic.partitions)
    return Facts(
        "topic",
        "Topic",
        [
            Fact("topic_id", "Id", Cell(topic_id)),
            Fact("internal", "Internal", Cell(topic.internal)),
            Fact("partition_count", "Partitions", Cell(len(topic.partitions)), Unit.COUNT),
            Fact("replication_factor", "Replicas", Cell(replication_factor(topic)), Unit.COUNT),
            Fact(
                "under_replicated",
                "Under-replicated partitions",
                Cell(lacking, tone=Tone.WARN if lacking else Tone.GOOD),
                Unit.COUNT,
            ),
            Fact("records_max", "Records, at most", Cell(records if whole else None), Unit.COUNT),
            Fact("size_bytes", "Size at the leaders", Cell(size_of(topic, sizes)), Unit.BYTES),
        ],
    )


def _row(
    name: str,
    partition: PartitionMetadata,
    logs: Mapping[TopicPartition, Bounds],
    sizes: Mapping[TopicPartition, int],
) -> list[Cell]:
    where = TopicPartition(name, partition.index)
    log = logs.get(where)
    lacks = len(partition.isr) < len(partition.replicas)
    return [
        Cell(partition.index),
        Cell(partition.leader) if partition.leader >= 0 else Cell("none", tone=Tone.BAD),
        Cell(partition.leader_epoch),
        Cell(_listed(partition.replicas)),
        Cell(_listed(partition.isr), tone=Tone.WARN if lacks else Tone.PLAIN),
        Cell(None if log is None else log.start),
        Cell(None if log is None else log.end),
        Cell(None if log is None else log.end - log.start),
        Cell(sizes.get(where)),
    ]


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))


def _settings(asked: Asked, name: str) -> Section:
    try:
        entries = asked.client.topic_configs(name)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        text = "settings are left out: this user may not describe them"
        next_step = "an ACL that allows DescribeConfigs on the topic is needed"
        return Notice(Tone.QUIET, text, next_step)
    ordered = sorted(entries, key=lambda entry: (entry.source != TOPIC_SOURCE, entry.name))
    return Table(
        "configs", "Settings, its own ones first", _SETTINGS, [_setting(each) for each in ordered]
    )


def _setting(entry: ConfigValue) -> list[Cell]:
    tone = Tone.PLAIN if entry.source == TOPIC_SOURCE else Tone.QUIET
    value = Cell("(hidden)", tone=Tone.QUIET) if entry.sensitive else Cell(entry.value, tone=tone)
    return [Cell(entry.name, tone=tone), value, Cell(source_name(entry.source), tone=tone)]


def _groups(asked: Asked, name: str, logs: Mapping[TopicPartition, Bounds]) -> Iterator[Section]:
    listing = list_groups(asked.client, asked.pause)
    yield from silent_notices(listing)
    listed = [
        each
        for each in in_pieces(listing.groups, asked.pause)
        if each.group.protocol_type != _SHARE
    ]
    if len(listed) > GROUPS_ASKED_MAX:
        text = f"which of the {len(listed)} groups read it is not asked"
        yield Notice(Tone.QUIET, text, "see the pages of the groups")
        return
    asked.pause()
    listed = list(by_name(listed, asked.pause))
    committed = Groups(asked.client).offsets_of_all(listed)
    if unknown := sum(each.group.group not in committed for each in listed):
        text = f"groups whose offsets are not known: {unknown}, as no coordinator answers for them"
        yield Notice(Tone.WARN, text, "see the page of brokers")
    rows: list[Sequence[Cell]] = []
    for each in listed:
        offsets = {
            where: commit.offset
            for where, commit in committed.get(each.group.group, {}).items()
            if where.topic == name and commit.offset >= 0
        }
        if offsets:
            rows.append(_group_row(each, offsets, logs))
    yield Table("groups", "Groups", _GROUPS, rows, empty="no group has an offset in it")


def _group_row(
    listed: Listed, offsets: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, Bounds]
) -> list[Cell]:
    lags = [max(0, logs[where].end - at) for where, at in offsets.items() if where in logs]
    whole = len(lags) == len(offsets)
    return [
        Cell(listed.group.group, to("groups", listed.group.group)),
        Cell(listed.group.state),
        Cell(len(offsets)),
        Cell(sum(lags) if whole else None),
    ]
