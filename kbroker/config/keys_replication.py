"""Broker keys of replication, fetching, the purgatories, quotas and metrics.

Rows of the table only (see `key.py`); `definition.py` joins them with the other themes.
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
    LONG_MAX,
    STRING,
)
from kbroker.config.key import ConfigKey as Key

# The values of `replica.selector.class`: Apache Kafka's own, by their names.
LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

REPLICATION_KEYS: Final = (
    Key("min.insync.replicas", INT, 1,
        "In-sync replicas without which a produce with acks=-1 is refused; where a partition has"
        " fewer replicas, all of them are enough.", low=1, dynamic=CLUSTER_WIDE, supported=True),
    Key("num.replica.fetchers", INT, 1,
        "Fetchers for each leader that this broker follows; each has two connections.", low=1,
        dynamic=CLUSTER_WIDE, supported=True),
    Key("num.replica.alter.log.dirs.threads", INT, None,
        "Threads that move replicas between data directories; unset: one for each directory."),
    Key("replica.lag.time.max.ms", LONG, 30_000,
        "A follower that has not caught up for this long leaves the in-sync replicas.",
        supported=True),
    Key("replica.fetch.max.bytes", INT, 1_048_576,
        "Bytes a follower asks for per partition; a larger first batch still comes whole.", low=0,
        supported=True),
    Key("replica.fetch.response.max.bytes", INT, 10_485_760,
        "Bytes a follower asks for in one answer; a larger first batch still comes whole.", low=0,
        supported=True),
    Key("replica.fetch.min.bytes", INT, 1,
        "Bytes for which a follower's fetch waits at the leader.", supported=True),
    Key("replica.fetch.wait.max.ms", INT, 500,
        "How long a follower's fetch may wait; must stay below replica.lag.time.max.ms.",
        supported=True),
    Key("replica.fetch.backoff.ms", INT, 1_000,
        "Longest pause of a follower after a failed fetch; the first is shorter.", low=0,
        supported=True),
    Key("replica.socket.timeout.ms", INT, 30_000,
        "Timeout of a follower's requests; at least replica.fetch.wait.max.ms.", supported=True),
    Key("replica.socket.receive.buffer.bytes", INT, 65_536,
        "SO_RCVBUF of a follower's connection; -1 leaves it to the kernel's own tuning."),
    Key("replica.high.watermark.checkpoint.interval.ms", LONG, 5_000,
        "Pause between two writes of the high watermarks to disk."),
    Key("replica.selector.class", STRING, None,
        "Where a leader sends consumers that say their client.rack: RackAwareReplicaSelector to an"
        " in-sync replica of that rack; LeaderSelector, and unset, nowhere.",
        choices=(LEADER_SELECTOR, RACK_AWARE_SELECTOR), supported=True),
    Key("follower.fetch.last.tiered.offset.enable", BOOLEAN, False,
        "Let an empty follower begin after the end of tiered storage.", dynamic=CLUSTER_WIDE),
    Key("fetch.max.bytes", INT, 57_671_680,
        "The largest fetch answer, whatever a consumer asks for.", low=1_024, supported=True),
    Key("max.incremental.fetch.session.cache.slots", INT, 1_000,
        "Fetch sessions the broker remembers; 0 switches them off.", low=0, supported=True),
    Key("fetch.purgatory.purge.interval.requests", INT, 1_000,
        "Completed fetches after which waiting lists are swept."),
    Key("producer.purgatory.purge.interval.requests", INT, 1_000,
        "Completed produces after which waiting lists are swept."),
    Key("delete.records.purgatory.purge.interval.requests", INT, 1,
        "Completed DeleteRecords requests after which waiting lists are swept."),
)  # fmt: skip

QUOTA_KEYS: Final = (
    Key("quota.window.num", INT, 11,
        "Windows kept for measuring client quotas; more than 1,000 count as 1,000.", low=1,
        supported=True),
    Key("quota.window.size.seconds", INT, 1, "Length of one window for client quotas.", low=1,
        supported=True),
    Key("replication.quota.window.num", INT, 11, "Windows kept for measuring replication quotas.",
        low=1),
    Key("replication.quota.window.size.seconds", INT, 1,
        "Length of one window for replication quotas.", low=1),
    Key("alter.log.dirs.replication.quota.window.num", INT, 11,
        "Windows kept for measuring moves between data directories.", low=1),
    Key("alter.log.dirs.replication.quota.window.size.seconds", INT, 1,
        "Length of one window for moves between data directories.", low=1),
    Key("controller.quota.window.num", INT, 11,
        "Windows kept for measuring quotas on changes of topics and partitions; more than 1,000"
        " count as 1,000.", low=1, supported=True),
    Key("controller.quota.window.size.seconds", INT, 1,
        "Length of one window for quotas on changes of topics and partitions.", low=1,
        supported=True),
    Key("client.quota.callback.class", CLASS, None,
        "A class that decides client quotas. Java classes do not run here."),
    # Apache Kafka knows these three only as dynamic values, without a row in its own table.
    Key("leader.replication.throttled.rate", LONG, LONG_MAX,
        "Bytes per second of throttled replicas that this broker sends as leader.", low=0,
        internal=True, dynamic=CLUSTER_WIDE, supported=True),
    Key("follower.replication.throttled.rate", LONG, LONG_MAX,
        "Bytes per second of throttled replicas that this broker receives as follower.", low=0,
        internal=True, dynamic=CLUSTER_WIDE, supported=True),
    Key("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX,
        "Bytes per second that moves between data directories may use.", low=0, internal=True,
        dynamic=CLUSTER_WIDE, supported=True),
)  # fmt: skip

METRICS_KEYS: Final = (
    Key("metrics.num.samples", INT, 2, "Samples kept for each rate and average.", low=1),
    Key("metrics.sample.window.ms", LONG, 30_000, "Length of one sample.", low=1),
    Key("metrics.recording.level", STRING, "INFO", "How detailed the recorded metrics are."),
    Key("metric.reporters", LIST, (),
        "Classes that report metrics. Java classes do not run here; /metrics needs none.",
        dynamic=CLUSTER_WIDE, kafka="org.apache.kafka.common.metrics.JmxReporter"),
    Key("kafka.metrics.reporters", LIST, (), "The older form of metric.reporters."),
    Key("kafka.metrics.polling.interval.secs", INT, 10,
        "Pause between two looks at metrics by kafka.metrics.reporters.", low=1),
    Key("telemetry.max.bytes", INT, 1_048_576,
        "The largest report of metrics that a client may push.", low=1),
    Key("metrics.topic.enable", BOOLEAN, False,
        "Whether this broker writes its figures to the topic __kbroker_metrics, which reports are"
        " made from, as JSON.", supported=True, kafka="-"),
    Key("metrics.topic.interval.ms", INT, 15_000,
        "How often traffic and requests are written to the topic __kbroker_metrics; resources and"
        " the lag of groups half as often.", low=1_000, high=3_600_000, supported=True, kafka="-"),
    Key("metrics.dialects", LIST, ("canonical", "strimzi"),
        "Under which names /metrics shows each figure: those of Kafka's own beans, and those that"
        " public dashboards ask for.", choices=("canonical", "strimzi", "confluent", "kafka-ui"),
        supported=True, kafka="-"),
    Key("metrics.partitions.enable", BOOLEAN, False,
        "Whether /metrics shows the size and the counts of every partition, too.", supported=True,
        kafka="-"),
)  # fmt: skip

KEYS: Final = REPLICATION_KEYS + QUOTA_KEYS + METRICS_KEYS
