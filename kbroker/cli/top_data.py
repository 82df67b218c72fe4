"""What `kbroker top` shows: samples of a cluster, and the frame that two of them add up to.

Everything comes over the Kafka protocol, so it works with any broker: rates are the growth of log
ends, of bytes on the disks and of committed offsets between two samples. A broker that does not
answer is left out, and named. How long replicas that are not in sync take to catch up is what their
logs lack of the leaders' over what they grew by. One sample is a handful of
requests: metadata, ListOffsets and DescribeLogDirs at each broker, ListGroups, and OffsetFetch for
each group. Groups beyond `GROUPS_MAX` are counted and not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.findings.missing_replicas import Moving, missing_replicas, moving_now
from kbroker.peer.groups import Groups, Listed
from kbroker.peer.messages import LATEST_TIMESTAMP
from kbroker.peer.partitions import lag, total
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.messages import ClusterMetadata, PartitionMetadata

GROUPS_MAX: Final = 1_000


class Sample(NamedTuple):
    """A cluster at one moment; `sizes` are bytes of every replica added up."""

    at_ns: int
    cluster: ClusterMetadata
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int]
    groups: list[Listed]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    moving: Moving = MappingProxyType({})
    # Bytes of each broker's replicas; of those that answered.
    replicas: Mapping[int, Mapping[TopicPartition, int]] = MappingProxyType({})


def take(client: Client) -> Sample:
    cluster = client.metadata()
    led = [
        TopicPartition(topic.name, partition.index)
        for topic in cluster.topics.values()
        for partition in topic.partitions
        if partition.leader >= 0
    ]
    found = client.list_offsets({where: LATEST_TIMESTAMP for where in led})
    sizes: dict[TopicPartition, int] = {}
    replicas: dict[int, dict[TopicPartition, int]] = {}
    for node_id, directories in client.log_directories(of_all=False).items():
        theirs = replicas[node_id] = {}
        for log in (log for directory in directories for log in directory.logs):
            sizes[log.partition] = sizes.get(log.partition, 0) + log.size_bytes
            theirs[log.partition] = log.size_bytes
    groups = Groups(client)
    listed = groups.list_groups(of_all=False)
    offsets = groups.offsets_of_all(listed[:GROUPS_MAX])
    return Sample(
        client.cluster.clock.monotonic_ns(),
        cluster,
        {where: each.offset for where, each in found.items() if each.error is ErrorCode.NONE},
        sizes,
        listed,
        {
            group: {where: each.offset for where, each in theirs.items() if each.offset >= 0}
            for group, theirs in offsets.items()
        },
        moving_now(client),
        replicas,
    )


def frame(before: Sample | None, now: Sample, *, internal: bool = False) -> dict[str, Any]:
    """One document; rates are null in the first, since one sample has none."""
    every = [part for topic in now.cluster.topics.values() for part in topic.partitions]
    topics = [
        _topic(name, partitions, before, now)
        for name, partitions in _by_topic(now).items()
        if internal or not now.cluster.topics[name].internal
    ]
    topics.sort(key=lambda row: (-(row["messages_per_s"] or 0), -row["size_bytes"], row["topic"]))
    groups = [_group(listed, before, now) for listed in now.groups]
    groups.sort(key=lambda row: (-(row["lag"] or 0), row["group"]))
    return {
        "cluster": now.cluster.cluster_id,
        "brokers": len(now.cluster.brokers),
        "controller": None,  # unknown: the id that clients get is of any broker
        "partitions": len(every),
        "leaderless": sum(part.leader < 0 for part in every),
        "under_replicated": len(missing_replicas(now.cluster, now.moving)),
        "reassigned": len(now.moving),
        "size_bytes": sum(now.sizes.values()),
        "messages_per_s": _sum(row["messages_per_s"] for row in topics),
        "bytes_per_s": _sum(row["bytes_per_s"] for row in topics),
        "nodes": _nodes(before, now),
        "topics": topics,
        "groups": groups,
    }


def _nodes(before: Sample | None, now: Sample) -> list[dict[str, Any]]:
    """Every broker that there is, or that has a replica."""
    parts = {
        TopicPartition(topic.name, part.index): part
        for topic in now.cluster.topics.values()
        for part in topic.partitions
    }
    copies = {where: {*each.adding} for where, each in now.moving.items()}
    for where, who in missing_replicas(now.cluster, now.moving).items():
        copies[where] = copies.get(where, set()) | who
    ids = {*now.cluster.brokers, *(each for part in parts.values() for each in part.replicas)}
    return [_node(node_id, parts, copies, before, now) for node_id in sorted(ids)]


def _node(
    node_id: int,
    parts: Mapping[TopicPartition, PartitionMetadata],
    copies: Mapping[TopicPartition, set[int]],
    before: Sample | None,
    now: Sample,
) -> dict[str, Any]:
    """`behind_bytes`: what its replicas lack that are out of sync, or on their way here."""
    sizes = now.replicas.get(node_id)
    lagging = [where for where, who in copies.items() if node_id in who]
    old = before.replicas.get(node_id) if before is not None else None
    lacks = copied = None
    if sizes is not None:
        lacks = sum(
            max(0, now.replicas.get(parts[where].leader, {}).get(where, 0) - sizes.get(where, 0))
            for where in lagging
            if where in parts
        )
        if old is not None:
            grown = (max(0, sizes.get(where, 0) - old.get(where, 0)) for where in lagging)
            copied = _rate(before, now, 0, sum(grown))
    answers = "yes" if sizes is not None else "no"
    return {
        "broker": node_id,
        "answers": answers if node_id in now.cluster.brokers else "gone",
        "leaders": sum(part.leader == node_id for part in parts.values()),
        "replicas": sum(node_id in part.replicas for part in parts.values()),
        "behind": len(lagging),
        "behind_bytes": lacks,
        "copied_bytes_per_s": copied,
        "caught_up_in_s": _caught_up_in_s(lacks, copied),
    }


def _caught_up_in_s(lacks: int | None, copied_per_s: float | None) -> float | None:
    """None: not known, or not at this rate."""
    if lacks == 0:
        return 0.0
    return round(lacks / copied_per_s, 1) if lacks and copied_per_s else None


def _sum(rates: Any) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return round(sum(known), 1) if known else None


def _rate(before: Sample | None, now: Sample, then: int, after: int) -> float | None:
    """Growth in a second; what shrinks (a topic made anew, records deleted) has not grown."""
    if before is None or now.at_ns <= before.at_ns:
        return None
    return round(max(0, after - then) / ((now.at_ns - before.at_ns) / 1e9), 1)


def _by_topic(now: Sample) -> dict[str, list[TopicPartition]]:
    return {
        name: [TopicPartition(name, partition.index) for partition in topic.partitions]
        for name, topic in now.cluster.topics.items()
    }


def _topic(
    name: str, partitions: list[TopicPartition], before: Sample | None, now: Sample
) -> dict[str, Any]:
    """A partition that the sample before did not have has grown from nothing."""
    ends = _added(now.ends, partitions)
    sizes = _added(now.sizes, partitions)
    old_ends = _added(before.ends, partitions) if before is not None else 0
    old_sizes = _added(before.sizes, partitions) if before is not None else 0
    return {
        "topic": name,
        "partitions": len(partitions),
        "messages_per_s": _rate(before, now, old_ends, ends),
        "bytes_per_s": _rate(before, now, old_sizes, sizes),
        "size_bytes": sizes,
        "end_offsets": ends,
    }


def _added(of: Mapping[TopicPartition, int], partitions: list[TopicPartition]) -> int:
    return sum(of.get(where, 0) for where in partitions)


def _group(listed: Listed, before: Sample | None, now: Sample) -> dict[str, Any]:
    name = listed.group.group
    theirs = now.committed.get(name)
    lags = [lag(offset, now.ends.get(where)) for where, offset in (theirs or {}).items()]
    old = before.committed.get(name) if before is not None else None
    rate = None
    if theirs is not None and old is not None:
        both = [where for where in theirs if where in old]
        rate = _rate(before, now, sum(old[w] for w in both), sum(theirs[w] for w in both))
    return {
        "group": name,
        "state": listed.group.state,
        "coordinator": listed.coordinator,
        "partitions": None if theirs is None else len(theirs),
        "lag": None if theirs is None else total(lags),
        "lag_max": None if theirs is None else max((each or 0 for each in lags), default=0),
        "consumed_per_s": rate,
    }
