"""Broker keys of consumer groups, committed offsets and transactions.

Rows of the table only (see `key.py`); `definition.py` joins them with the other themes.
"""

from __future__ import annotations

from typing import Final

from kbroker.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    SHORT,
    STRING,
)
from kbroker.config.key import ConfigKey as Key

GROUP_KEYS: Final = (
    Key("group.initial.rebalance.delay.ms", INT, 0,
        "How long an empty group waits for more members before its first assignment. 0 suits one"
        " developer; a group of many members wants some seconds.", kafka="3000", supported=True),
    Key("group.min.session.timeout.ms", INT, 6_000,
        "The shortest session timeout that a member of a classic group may ask for.",
        supported=True),
    Key("group.max.session.timeout.ms", INT, 1_800_000,
        "The longest session timeout that a member of a classic group may ask for.",
        supported=True),
    Key("group.max.size", INT, INT_MAX, "Members a classic group may have.", low=1, supported=True),
    Key("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer", "streams"),
        "The kinds of group that the coordinator serves.",
        choices=("consumer", "classic", "share", "streams"), supported=True),
    Key("group.coordinator.threads", INT, 4, "Threads of the group coordinator.", low=1),
    Key("group.coordinator.background.threads", INT, 2,
        "Threads for the group coordinator's background work.", low=1),
    Key("group.coordinator.append.linger.ms", INT, -1,
        "How long the group coordinator gathers writes; -1 adapts to the load.", low=-1),
    Key("group.coordinator.cached.buffer.max.bytes", INT, 1_048_588,
        "The largest write buffer that the group coordinator keeps for the next time.", low=524_288,
        dynamic=CLUSTER_WIDE),
    Key("group.consumer.session.timeout.ms", INT, 45_000,
        "Silence after which a consumer group's member is taken for dead.", low=1),
    Key("group.consumer.min.session.timeout.ms", INT, 45_000,
        "The shortest session timeout that a consumer group may be given.", low=1),
    Key("group.consumer.max.session.timeout.ms", INT, 60_000,
        "The longest session timeout that a consumer group may be given.", low=1),
    Key("group.consumer.heartbeat.interval.ms", INT, 5_000,
        "Pause between two heartbeats of a consumer group's member.", low=1),
    Key("group.consumer.min.heartbeat.interval.ms", INT, 5_000,
        "The shortest heartbeat pause that a consumer group may be given.", low=1),
    Key("group.consumer.max.heartbeat.interval.ms", INT, 15_000,
        "The longest heartbeat pause that a consumer group may be given.", low=1),
    Key("group.consumer.max.size", INT, INT_MAX, "Members a consumer group may have.", low=1),
    Key("group.consumer.assignors", LIST, ("uniform", "range"),
        "Server-side assignors; the first is the default."),
    Key("group.consumer.assignment.interval.ms", INT, 1_000,
        "Pause between two assignments of a consumer group.", low=0, dynamic=CLUSTER_WIDE),
    Key("group.consumer.min.assignment.interval.ms", INT, 0,
        "The shortest pause between assignments that a consumer group may be given.", low=0),
    Key("group.consumer.max.assignment.interval.ms", INT, 15_000,
        "The longest pause between assignments that a consumer group may be given.", low=0),
    Key("group.consumer.migration.policy", STRING, "bidirectional",
        "Which way a group with members may change between the classic and the consumer protocol.",
        choices=("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), ignore_case=True),
    Key("group.consumer.regex.refresh.interval.ms", INT, 600_000,
        "Pause between two looks for topics that match a group's patterns.", low=10_000,
        internal=True),
)  # fmt: skip

OFFSETS_KEYS: Final = (
    Key("offsets.topic.num.partitions", INT, 50,
        "Partitions of the topic of committed offsets; not to be changed later.", low=1,
        supported=True),
    Key("offsets.topic.replication.factor", SHORT, 1,
        "Replicas of the topic of committed offsets, which is made when so many brokers live. Until"
        " then groups have no coordinator.", low=1, kafka="3", supported=True, clustered=3,
        default_words="1, with zookeeper.connect 3"),
    Key("offsets.topic.segment.bytes", INT, 104_857_600,
        "Segment size of the topic of committed offsets.", low=1, supported=True),
    Key("offsets.topic.compression.codec", INT, 0,
        "Codec number of the topic of committed offsets; 0: none."),
    Key("offsets.retention.minutes", INT, 10_080,
        "How long the offsets of an empty group are kept.", low=1, supported=True),
    Key("offsets.retention.check.interval.ms", LONG, 600_000,
        "Pause between two looks for offsets that may go.", low=1, supported=True),
    Key("offsets.load.buffer.size", INT, 5_242_880,
        "Bytes read at once when committed offsets are loaded.", low=1, supported=True),
    Key("offsets.commit.timeout.ms", INT, 5_000,
        "How long a commit, or another write of a group, waits for its replicas.", low=1,
        supported=True),
    Key("offset.metadata.max.bytes", INT, 4_096,
        "The longest note that a client may store with an offset.", supported=True),
)  # fmt: skip

TRANSACTION_KEYS: Final = (
    Key("transactional.id.expiration.ms", INT, 604_800_000,
        "How long a transactional id that is not used is remembered.", low=1, supported=True),
    Key("transaction.max.timeout.ms", INT, 900_000,
        "The longest transaction timeout that a producer may ask for.", low=1, supported=True),
    Key("transaction.state.log.num.partitions", INT, 50,
        "Partitions of the transaction topic; not to be changed later.", low=1, supported=True),
    Key("transaction.state.log.replication.factor", SHORT, 1,
        "Replicas of the transaction topic, or as many as brokers live when it is made.",
        low=1, kafka="3", supported=True, clustered=3,
        default_words="1, with zookeeper.connect 3"),
    Key("transaction.state.log.min.isr", INT, 1,
        "min.insync.replicas of the transaction topic; not more than its replicas.",
        low=1, kafka="2", supported=True, clustered=2,
        default_words="1, with zookeeper.connect 2"),
    Key("transaction.state.log.segment.bytes", INT, 104_857_600,
        "Segment size of the transaction topic.", low=1, supported=True),
    Key("transaction.state.log.load.buffer.size", INT, 5_242_880,
        "Bytes read at once when transaction state is loaded.", low=1, supported=True),
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000,
        "Pause between two looks for transactions that have timed out.", low=1, supported=True),
    Key("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000,
        "Pause between two looks for transactional ids to forget.", low=1, supported=True),
    Key("transaction.partition.verification.enable", BOOLEAN, True,
        "Ask the coordinator, before a transactional append, whether the partition belongs to the"
        " transaction.", dynamic=CLUSTER_WIDE, supported=True),
    Key("kbroker.transaction.hanging.abort.enable", BOOLEAN, True,
        "Abort a transaction that is open in a partition for five minutes longer than"
        " transaction.max.timeout.ms, where no coordinator has it.",
        supported=True, kafka="-"),
    Key("transaction.two.phase.commit.enable", BOOLEAN, False,
        "Let producers take part in two-phase commits."),
    Key("add.partitions.to.txn.retry.backoff.ms", INT, 20,
        "Longest pause before the broker repeats adding a partition to a transaction.", low=1,
        supported=True),
    Key("add.partitions.to.txn.retry.backoff.max.ms", INT, 100,
        "How long the broker repeats adding a partition to a transaction.", low=0, supported=True),
)  # fmt: skip

KEYS: Final = GROUP_KEYS + OFFSETS_KEYS + TRANSACTION_KEYS
