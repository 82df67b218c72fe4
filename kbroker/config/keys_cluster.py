"""Broker keys of the node and its cluster: identity, topics, metadata store, controller, KRaft.

Rows of the table only (see `key.py`). The keys of Apache Kafka's Raft quorum are known so that a
file written for it starts here; kbroker keeps its metadata in its own store or in ZooKeeper.
"""

from __future__ import annotations

from typing import Final

from kbroker.config.key import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    STRING,
)
from kbroker.config.key import ConfigKey as Key

KEYS: Final = (
    Key(
        "node.id", INT, 1,
        "The number of this broker in its cluster.",
        low=0, supported=True, kafka=None,
    ),
    Key(
        "broker.id", INT, -1,
        "The older name of node.id; -1: unset. Where both are set they must be equal.",
        supported=True,
    ),
    Key(
        "broker.rack", STRING, None,
        "Where this broker stands; clients may prefer a replica of their own rack.",
        supported=True,
    ),
    Key(
        "auto.create.topics.enable", BOOLEAN, True,
        "Create a topic when a client asks for the metadata of one that does not exist.",
        supported=True,
    ),
    Key(
        "delete.topic.enable", BOOLEAN, True,
        "Whether topics may be deleted.",
        supported=True,
    ),
    Key(
        "num.partitions", INT, 1,
        "Partitions of a topic whose creator does not say.",
        low=1, supported=True,
    ),
    Key(
        "default.replication.factor", INT, 1,
        "Replicas of each partition of a topic whose creator does not say.",
        low=1, high=32_767, supported=True,
    ),
    Key(
        "create.topic.policy.class.name", CLASS, None,
        "A class that may refuse the creation of a topic. Java classes do not run here.",
    ),
    Key(
        "alter.config.policy.class.name", CLASS, None,
        "A class that may refuse a change of configuration. Java classes do not run here.",
    ),
    Key(
        "config.providers", LIST, (),
        "Names of providers that fetch values, such as passwords, from elsewhere.",
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "controlled.shutdown.enable", BOOLEAN, True,
        "Hand leadership over before a broker of a cluster stops.",
        supported=True,
    ),
    Key(
        "controlled.shutdown.max.retries", INT, 3,
        "How often the controller is asked to hand leadership over, until nothing is left.",
        low=1, supported=True, kafka="-",
    ),
    Key(
        "controlled.shutdown.retry.backoff.ms", LONG, 5_000,
        "Pause before it is asked again; a change in the cluster ends it.",
        low=1, supported=True, kafka="-",
    ),
    Key(
        "auto.leader.rebalance.enable", BOOLEAN, True,
        "Move leadership back to the preferred replicas from time to time.",
        supported=True,
    ),
    Key(
        "leader.imbalance.check.interval.seconds", LONG, 300,
        "Pause between two looks for partitions whose leader is not the preferred one.",
        low=1, supported=True,
    ),
    Key(
        "unclean.leader.election.enable", BOOLEAN, False,
        "Let a replica that is not in sync become leader when no other is left; acknowledged"
        " records may be lost.",
        dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "unclean.leader.election.interval.ms", LONG, 300_000,
        "Pause between two looks for partitions that only an unclean election can bring back.",
        low=1, internal=True,
    ),
    Key(
        "inter.broker.protocol.version", STRING, "3.9",
        "The release whose features consoles may assume in a cluster without a Raft quorum."
        " Reported to them, without other effect.",
        supported=True, kafka="-",
    ),
    Key(
        "controller.event.max.ms", INT, 5_000,
        "How long the controller may be at one event, such as an election, before it gives its"
        " office up to another broker; at most once a minute.",
        low=1_000, supported=True, kafka="-",
    ),
    Key(
        "controller.socket.timeout.ms", INT, 30_000,
        "Timeout of the connection between controller and brokers.",
    ),
    Key(
        "controller.listener.names", LIST, None,
        "Listener names that belong to a Raft controller. kbroker has none; listeners of these"
        " names are left closed.",
        supported=True,
    ),
    Key(
        "process.roles", LIST, None,
        "The roles of the process under a Raft quorum. kbroker is always broker and may be"
        " elected controller.",
        choices=("broker", "controller"),
    ),
    Key(
        "controller.quorum.voters", LIST, (),
        "The voters of a Raft quorum.",
    ),
    Key(
        "controller.quorum.bootstrap.servers", LIST, (),
        "Where to find a Raft quorum at first.",
    ),
    Key(
        "controller.quorum.append.linger.ms", INT, 25,
        "How long a Raft leader gathers writes before it flushes them.",
        low=0,
    ),
    Key(
        "controller.quorum.auto.join.enable", BOOLEAN, False,
        "Whether a Raft controller joins the voters by itself.",
    ),
    Key(
        "controller.quorum.election.backoff.max.ms", INT, 1_000,
        "The longest pause before a new Raft election.",
        low=0,
    ),
    Key(
        "controller.quorum.election.timeout.ms", INT, 1_000,
        "Silence after which a Raft voter calls an election.",
        low=0,
    ),
    Key(
        "controller.quorum.fetch.max.bytes", INT, 1_048_576,
        "Bytes asked for in one fetch from a Raft leader.",
        low=1,
    ),
    Key(
        "controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576,
        "Bytes asked for in one fetch of a Raft snapshot.",
        low=1,
    ),
    Key(
        "controller.quorum.fetch.timeout.ms", INT, 2_000,
        "Time without a successful fetch after which a Raft voter calls an election.",
        low=0,
    ),
    Key(
        "controller.quorum.request.timeout.ms", INT, 2_000,
        "Timeout of a request between Raft nodes.",
        low=0,
    ),
    Key(
        "controller.quorum.retry.backoff.ms", INT, 20,
        "Pause before a request between Raft nodes is repeated.",
        low=0,
    ),
    Key(
        "controller.performance.always.log.threshold.ms", LONG, 2_000,
        "A controller event that takes longer is logged.",
        low=0, internal=True,
    ),
    Key(
        "controller.performance.sample.period.ms", LONG, 60_000,
        "Pause between two log lines about the speed of controller events.",
        low=100, internal=True,
    ),
    Key(
        "broker.heartbeat.interval.ms", INT, 2_000,
        "Pause between two heartbeats of a broker to a Raft controller.",
    ),
    Key(
        "broker.session.timeout.ms", INT, 9_000,
        "Silence after which a Raft controller takes a broker for dead.",
    ),
    Key(
        "initial.broker.registration.timeout.ms", INT, 60_000,
        "How long the start of a broker of a cluster waits to be told what holds, by a controller,"
        " before it gives up.",
        supported=True,
    ),
    Key(
        "metadata.log.dir", STRING, None,
        "The directory of a Raft quorum's metadata log.",
    ),
    Key(
        "metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520,
        "Bytes in the metadata log after which a snapshot is written.",
        low=1,
    ),
    Key(
        "metadata.log.max.snapshot.interval.ms", LONG, 3_600_000,
        "Time after which a snapshot of the metadata log is written; 0: never by time.",
        low=0,
    ),
    Key(
        "metadata.log.segment.bytes", INT, 1_073_741_824,
        "Size of a segment of the metadata log.",
        low=8_388_608,
    ),
    Key(
        "metadata.log.segment.ms", LONG, 604_800_000,
        "Age at which a segment of the metadata log is closed.",
    ),
    Key(
        "metadata.max.idle.interval.ms", INT, 500,
        "Pause after which an idle Raft controller writes an empty record; 0: never.",
        low=0,
    ),
    Key(
        "metadata.max.retention.bytes", LONG, 104_857_600,
        "Size of metadata log and snapshots at which old ones go.",
    ),
    Key(
        "metadata.max.retention.ms", LONG, 604_800_000,
        "Age at which parts of the metadata log go.",
    ),
    Key(
        "internal.metadata.delete.delay.millis", LONG, 60_000,
        "Pause before files of the metadata log are removed.",
        internal=True,
    ),
    Key(
        "internal.metadata.log.segment.bytes", INT, None,
        "Size of a segment of the metadata log, for tests.",
        internal=True,
    ),
    Key(
        "internal.metadata.max.batch.size.in.bytes", INT, 8_388_608,
        "The largest batch in the metadata log.",
        internal=True,
    ),
    Key(
        "server.max.startup.time.ms", LONG, 9_223_372_036_854_775_807,
        "How long a start may take before it is given up.",
        low=0, internal=True,
    ),
    Key(
        "unstable.api.versions.enable", BOOLEAN, False,
        "Offer versions of the protocol that are still in work.",
        internal=True,
    ),
    Key(
        "unstable.feature.versions.enable", BOOLEAN, False,
        "Offer feature levels that are still in work.",
        internal=True,
    ),
    Key(
        "delegation.token.secret.key", PASSWORD, None,
        "The secret, the same on all brokers, with which delegation tokens are signed.",
    ),
    Key(
        "delegation.token.max.lifetime.ms", LONG, 604_800_000,
        "The longest life of a delegation token, renewals included.",
        low=1,
    ),
    Key(
        "delegation.token.expiry.time.ms", LONG, 86_400_000,
        "How long a delegation token is valid between renewals.",
        low=1,
    ),
    Key(
        "delegation.token.expiry.check.interval.ms", LONG, 3_600_000,
        "Pause between two looks for expired delegation tokens.",
        low=1,
    ),
)  # fmt: skip
