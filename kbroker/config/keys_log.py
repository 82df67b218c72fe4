"""Broker keys of the log: directories, segments, retention, flushing, indexes, the cleaner.

Rows of the table only (see `key.py`). Most of them are the broker-wide defaults of a topic key;
`keys_topic.py` says of which.
"""

from __future__ import annotations

from typing import Final

from kbroker.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    PER_BROKER,
    STRING,
)
from kbroker.config.key import ConfigKey as Key

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

KEYS: Final = (
    Key(
        "log.dir", LIST, ("~/.local/share/kbroker",),
        "The data directory, for when log.dirs is unset.",
        supported=True, kafka="/tmp/kafka-logs",
    ),
    Key(
        "log.dirs", LIST, None,
        "The data directories, separated by commas; unset: log.dir.",
        supported=True,
    ),
    Key(
        "cordoned.log.dirs", LIST, (),
        "Data directories that get no new partitions; * means all of them.",
        dynamic=PER_BROKER,
    ),
    Key(
        "log.dir.failure.timeout.ms", LONG, 30_000,
        "How long a broker that cannot report a failed data directory goes on before it stops.",
        low=1,
    ),
    Key(
        "log.initial.task.delay.ms", LONG, 30_000,
        "Pause between start and the first look for logs to flush and for records that are kept no"
        " longer, and the first write of the recovery points.",
        low=0, internal=True, supported=True,
    ),
    Key(
        "num.recovery.threads.per.data.dir", INT, 2,
        "Threads for each data directory that load and recover logs at start.",
        low=1, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.segment.bytes", INT, 1_073_741_824,
        "Size at which a partition's log starts a new segment file.",
        low=1_048_576, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.roll.ms", LONG, None,
        "Age at which a segment is closed even if it is not full; unset: log.roll.hours.",
        low=1, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.roll.hours", INT, 168,
        "Age in hours at which a segment is closed, for when log.roll.ms is unset.",
        low=1, supported=True,
    ),
    Key(
        "log.roll.jitter.ms", LONG, None,
        "Up to this much is taken off the age at which a segment is closed, so that not all"
        " partitions do so at once; unset: log.roll.jitter.hours.",
        low=0, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.roll.jitter.hours", INT, 0,
        "The same in hours, for when log.roll.jitter.ms is unset.",
        low=0, supported=True,
    ),
    Key(
        "log.preallocate", BOOLEAN, False,
        "Reserve a new segment's whole size on disk at once.",
        dynamic=CLUSTER_WIDE,
    ),
    Key(
        "log.segment.delete.delay.ms", LONG, 60_000,
        "How long the files of a deleted segment or partition stay on disk under another name.",
        low=0, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.index.interval.bytes", INT, 4_096,
        "Bytes of records between two entries of the offset index.",
        low=0, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.index.size.max.bytes", INT, 10_485_760,
        "Size of a segment's offset index file while the segment is written.",
        low=4, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.retention.ms", LONG, None,
        "How long records are kept; -1 keeps them for ever; unset: log.retention.minutes.",
        dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.retention.minutes", INT, None,
        "How long records are kept, in minutes, for when log.retention.ms is unset; unset:"
        " log.retention.hours.",
        supported=True,
    ),
    Key(
        "log.retention.hours", INT, 168,
        "How long records are kept, in hours, for when the two finer keys are unset.",
        supported=True,
    ),
    Key(
        "log.retention.bytes", LONG, -1,
        "How large a partition's log may grow before old segments go; -1 sets no bound.",
        dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.dir.min.free.bytes", LONG, 0,
        "With less than that free on a data directory's volume producers are refused there; what"
        " the broker itself writes, and reads, go on.",
        low=0, dynamic=CLUSTER_WIDE, supported=True, kafka="-",
    ),
    Key(
        "log.retention.check.interval.ms", LONG, 300_000,
        "Pause between two looks for segments that may go.",
        low=1, supported=True,
    ),
    Key(
        "log.cleanup.policy", LIST, ("delete",),
        "Compact: of each key the last record stays, and records without one are refused. Delete:"
        " by retention and by request.",
        choices=("compact", "delete"), dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.flush.interval.messages", LONG, LONG_MAX,
        "Records after which a partition's log is forced to disk, before they are answered.",
        low=1, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.flush.interval.ms", LONG, None,
        "Time after which written records are forced to disk, looked for every"
        " log.flush.scheduler.interval.ms; unset: the same.",
        dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.flush.scheduler.interval.ms", LONG, LONG_MAX,
        "Pause between two looks for logs that are due to be forced to disk.",
        supported=True,
    ),
    Key(
        "log.flush.offset.checkpoint.interval.ms", INT, 60_000,
        "Pause between two writes of the recovery points.",
        low=0, supported=True,
    ),
    Key(
        "log.flush.start.offset.checkpoint.interval.ms", INT, 60_000,
        "Pause between two writes of the log start offsets.",
        low=0,
    ),
    Key(
        "message.max.bytes", INT, 1_048_588,
        "The largest record batch, as it is sent, that a topic takes.",
        low=0, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.message.timestamp.type", STRING, "CreateTime",
        "Whose clock stamps a record: the producer's (CreateTime) or the broker's"
        " (LogAppendTime).",
        choices=("CreateTime", "LogAppendTime"), dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.message.timestamp.before.max.ms", LONG, LONG_MAX,
        "How far a producer's stamp may lie behind the broker's clock.",
        low=0, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.message.timestamp.after.max.ms", LONG, 3_600_000,
        "How far a producer's stamp may lie ahead of the broker's clock.",
        low=0, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "compression.type", STRING, "producer",
        "The codec batches are stored with, whatever their level if they come in it; producer keeps"
        " what the producer chose.",
        choices=COMPRESSION_TYPES, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "compression.gzip.level", INT, -1,
        "Level for batches that the broker compresses with gzip; -1 is the library's own.",
        low=1, high=9, also=(-1,), dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "compression.lz4.level", INT, 9,
        "Level for batches that the broker compresses with lz4: 9 is its fast compressor, any"
        " other one packs tighter and takes several times as long.",
        low=1, high=17, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "compression.zstd.level", INT, 3,
        "Level for batches that the broker compresses with zstd.",
        low=-131_072, high=22, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "producer.id.expiration.ms", INT, 86_400_000,
        "How long a partition remembers an idempotent producer that has stopped writing.",
        low=1, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "producer.id.expiration.check.interval.ms", INT, 600_000,
        "Pause between two looks for producers to forget.",
        low=1, internal=True,
    ),
    Key(
        "log.cleaner.enable", BOOLEAN, True,
        "Run the cleaner, which compacts topics whose cleanup policy asks for it.",
        supported=True,
    ),
    Key(
        "log.cleaner.threads", INT, 1,
        "Threads that compact logs.",
        low=0, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.cleaner.backoff.ms", LONG, 15_000,
        "Pause of the cleaner when no log needs it.",
        low=0, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.cleaner.dedupe.buffer.size", LONG, 134_217_728,
        "Bytes of memory in which all cleaner threads together remember keys.",
        dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.cleaner.io.buffer.size", INT, 524_288,
        "Bytes of read and write buffers of all cleaner threads together.",
        low=0, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "log.cleaner.io.buffer.load.factor", DOUBLE, 0.9,
        "How full the cleaner's table of keys may get: more keys in one pass, more collisions.",
        dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX,
        "Bytes that the cleaner reads and writes per second at most, on average.",
        dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.scrub.interval.ms", LONG, 0,
        "How often every segment that is full is read and its batches are checked; 0: never.",
        low=0, dynamic=CLUSTER_WIDE, supported=True, kafka="-",
    ),
    Key(
        "log.scrub.max.bytes.per.second", DOUBLE, 10_485_760.0,
        "Bytes that are read per second for that at most, on average.",
        low=1, dynamic=CLUSTER_WIDE, supported=True, kafka="-",
    ),
    Key(
        "log.cleaner.delete.retention.ms", LONG, 86_400_000,
        "How long a compacted topic keeps its delete markers.",
        low=0, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5,
        "Share of not yet compacted bytes at which a log is worth compacting.",
        low=0, high=1, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.cleaner.min.compaction.lag.ms", LONG, 0,
        "A record younger than this is not compacted away.",
        low=0, dynamic=CLUSTER_WIDE, supported=True,
    ),
    Key(
        "log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX,
        "A record older than this is compacted whatever the ratio says.",
        low=1, dynamic=CLUSTER_WIDE, supported=True,
    ),
)  # fmt: skip
