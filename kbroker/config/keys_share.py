"""Broker keys of share groups and streams groups: known, not served in this version.

Rows of the table only (see `key.py`); `definition.py` joins them with the other themes.
"""

from __future__ import annotations

from typing import Final

from kbroker.config.key import CLUSTER_WIDE, INT, INT_MAX, LIST, SHORT, STRING
from kbroker.config.key import ConfigKey as Key

SHARE_GROUP_KEYS: Final = (
    Key(
        "group.share.session.timeout.ms", INT, 45_000,
        "Silence after which a share group's member is taken for dead.",
        low=1,
    ),
    Key(
        "group.share.min.session.timeout.ms", INT, 45_000,
        "The shortest session timeout that a share group may be given.",
        low=1,
    ),
    Key(
        "group.share.max.session.timeout.ms", INT, 60_000,
        "The longest session timeout that a share group may be given.",
        low=1,
    ),
    Key(
        "group.share.heartbeat.interval.ms", INT, 5_000,
        "Pause between two heartbeats of a share group's member.",
        low=1,
    ),
    Key(
        "group.share.min.heartbeat.interval.ms", INT, 5_000,
        "The shortest heartbeat pause that a share group may be given.",
        low=1,
    ),
    Key(
        "group.share.max.heartbeat.interval.ms", INT, 15_000,
        "The longest heartbeat pause that a share group may be given.",
        low=1,
    ),
    Key(
        "group.share.max.size", INT, 200,
        "Members a share group may have.",
        low=1, high=1_000,
    ),
    Key(
        "group.share.assignors", LIST, ("simple",),
        "Server-side assignors of share groups.",
    ),
    Key(
        "group.share.assignment.interval.ms", INT, 1_000,
        "Pause between two assignments of a share group.",
        low=0, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "group.share.min.assignment.interval.ms", INT, 0,
        "The shortest pause between assignments that a share group may be given.",
        low=0,
    ),
    Key(
        "group.share.max.assignment.interval.ms", INT, 15_000,
        "The longest pause between assignments that a share group may be given.",
        low=0,
    ),
    Key(
        "group.share.delivery.count.limit", INT, 5,
        "How often a share group's record is delivered before it is given up.",
        low=2, high=10,
    ),
    Key(
        "group.share.min.delivery.count.limit", INT, 2,
        "The lowest delivery limit that a share group may be given.",
        low=2, high=5,
    ),
    Key(
        "group.share.max.delivery.count.limit", INT, 10,
        "The highest delivery limit that a share group may be given.",
        low=5, high=25,
    ),
    Key(
        "group.share.record.lock.duration.ms", INT, 30_000,
        "How long a record belongs to the share group's member that fetched it.",
        low=1_000, high=3_600_000,
    ),
    Key(
        "group.share.min.record.lock.duration.ms", INT, 15_000,
        "The shortest record lock that a share group may be given.",
        low=1_000, high=30_000,
    ),
    Key(
        "group.share.max.record.lock.duration.ms", INT, 60_000,
        "The longest record lock that a share group may be given.",
        low=30_000, high=3_600_000,
    ),
    Key(
        "group.share.partition.max.record.locks", INT, 2_000,
        "Records of one partition that a share group may hold at once.",
        low=100, high=10_000,
    ),
    Key(
        "group.share.min.partition.max.record.locks", INT, 100,
        "The lowest number of held records that a share group may be given.",
        low=100, high=2_000,
    ),
    Key(
        "group.share.max.partition.max.record.locks", INT, 4_000,
        "The highest number of held records that a share group may be given.",
        low=2_000, high=10_000,
    ),
    Key(
        "group.share.max.share.sessions", INT, 2_000,
        "Share sessions the broker remembers.",
        low=1,
    ),
    Key(
        "group.share.initialize.retry.interval.ms", INT, 30_000,
        "Pause before the set-up of a share group's partition is repeated.",
        low=1, internal=True,
    ),
    Key(
        "group.share.persister.class.name", STRING, None,
        "The class that keeps share state. Java classes do not run here.",
        internal=True, kafka="org.apache.kafka.server.share.persister.DefaultStatePersister",
    ),
    Key(
        "share.fetch.purgatory.purge.interval.requests", INT, 1_000,
        "Completed share fetches after which waiting lists are swept.",
    ),
)  # fmt: skip

SHARE_COORDINATOR_KEYS: Final = (
    Key(
        "share.coordinator.threads", INT, 1,
        "Threads of the share coordinator.",
        low=1,
    ),
    Key(
        "share.coordinator.append.linger.ms", INT, -1,
        "How long the share coordinator gathers writes; -1 adapts to the load.",
        low=-1,
    ),
    Key(
        "share.coordinator.cached.buffer.max.bytes", INT, 1_048_588,
        "The largest write buffer that the share coordinator keeps for the next time.",
        low=524_288, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "share.coordinator.load.buffer.size", INT, 5_242_880,
        "Bytes read at once when share state is loaded.",
        low=1,
    ),
    Key(
        "share.coordinator.write.timeout.ms", INT, 5_000,
        "How long a write of share state waits for its replicas.",
        low=1,
    ),
    Key(
        "share.coordinator.snapshot.update.records.per.snapshot", INT, 500,
        "Updates of share state between two snapshots.",
        low=0, high=500,
    ),
    Key(
        "share.coordinator.cold.partition.snapshot.interval.ms", INT, 300_000,
        "Pause between snapshots of share state that does not change.",
        low=1, internal=True,
    ),
    Key(
        "share.coordinator.state.topic.num.partitions", INT, 50,
        "Partitions of the share state topic; not to be changed later.",
        low=1,
    ),
    Key(
        "share.coordinator.state.topic.replication.factor", SHORT, 1,
        "Replicas of the share state topic.",
        low=1, kafka="3",
    ),
    Key(
        "share.coordinator.state.topic.min.isr", SHORT, 1,
        "min.insync.replicas of the share state topic.",
        low=1, kafka="2",
    ),
    Key(
        "share.coordinator.state.topic.segment.bytes", INT, 104_857_600,
        "Segment size of the share state topic.",
        low=1,
    ),
    Key(
        "share.coordinator.state.topic.compression.codec", INT, 0,
        "Codec number of the share state topic; 0: none.",
    ),
    Key(
        "share.coordinator.state.topic.prune.interval.ms", INT, 300_000,
        "Pause between two looks for share state that may go.",
        low=1, internal=True,
    ),
)  # fmt: skip

STREAMS_GROUP_KEYS: Final = (
    Key(
        "group.streams.session.timeout.ms", INT, 45_000,
        "Silence after which a streams group's member is taken for dead.",
        low=1,
    ),
    Key(
        "group.streams.min.session.timeout.ms", INT, 45_000,
        "The shortest session timeout that a streams group may be given.",
        low=1,
    ),
    Key(
        "group.streams.max.session.timeout.ms", INT, 60_000,
        "The longest session timeout that a streams group may be given.",
        low=1,
    ),
    Key(
        "group.streams.heartbeat.interval.ms", INT, 5_000,
        "Pause between two heartbeats of a streams group's member.",
        low=1,
    ),
    Key(
        "group.streams.min.heartbeat.interval.ms", INT, 5_000,
        "The shortest heartbeat pause that a streams group may be given.",
        low=1,
    ),
    Key(
        "group.streams.max.heartbeat.interval.ms", INT, 15_000,
        "The longest heartbeat pause that a streams group may be given.",
        low=1,
    ),
    Key(
        "group.streams.max.size", INT, INT_MAX,
        "Members a streams group may have.",
        low=1,
    ),
    Key(
        "group.streams.initial.rebalance.delay.ms", INT, 3_000,
        "How long an empty streams group waits for more members.",
        low=0,
    ),
    Key(
        "group.streams.assignment.interval.ms", INT, 1_000,
        "Pause between two assignments of a streams group.",
        low=0, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "group.streams.min.assignment.interval.ms", INT, 0,
        "The shortest pause between assignments that a streams group may be given.",
        low=0,
    ),
    Key(
        "group.streams.max.assignment.interval.ms", INT, 15_000,
        "The longest pause between assignments that a streams group may be given.",
        low=0,
    ),
    Key(
        "group.streams.num.standby.replicas", INT, 0,
        "Standby copies of each task of a streams group.",
        low=0,
    ),
    Key(
        "group.streams.max.standby.replicas", INT, 2,
        "The most standby copies that a streams group may be given.",
        low=0,
    ),
)  # fmt: skip

KEYS: Final = SHARE_GROUP_KEYS + SHARE_COORDINATOR_KEYS + STREAMS_GROUP_KEYS
