"""Topic keys, and the broker keys that give a topic its defaults.

Rows of the table only (see `key.py`). A topic key's value is the topic's own, else the first of its
broker keys that is set, else the default of the last of them. `SYNONYMS` lists those broker keys
in that order, each with the factor that turns its value into the topic key's unit.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kbroker.config.key import BOOLEAN, DOUBLE, INT, LIST, LONG, LONG_MAX, STRING
from kbroker.config.key import ConfigKey as Key
from kbroker.config.keys_log import COMPRESSION_TYPES

_MS_PER_MINUTE: Final = 60_000
_MS_PER_HOUR: Final = 3_600_000


class Synonym(NamedTuple):
    """A broker key that is a topic key's default; its value times `factor` is the topic's."""

    broker_key: str
    factor: int = 1


SYNONYMS: Final[dict[str, tuple[Synonym, ...]]] = {
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "local.retention.bytes": (Synonym("log.local.retention.bytes"),),
    "local.retention.ms": (Synonym("log.local.retention.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "preallocate": (Synonym("log.preallocate"),),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MS_PER_MINUTE),
        Synonym("log.retention.hours", _MS_PER_HOUR),
    ),
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", _MS_PER_HOUR),
    ),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _MS_PER_HOUR)),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
}

_THROTTLE_WORDS: Final = "partition:broker pairs separated by commas, or *"


def _check_throttled_replicas(value: tuple[str, ...]) -> str | None:
    if value == ("*",):
        return None
    for pair in value:
        partition, colon, broker = pair.partition(":")
        if not (colon and partition.isdecimal() and broker.isdecimal() and pair.isascii()):
            return _THROTTLE_WORDS
    return None


KEYS: Final = (
    Key("cleanup.policy", LIST, ("delete",),
        "Compact: of each key the last record stays, and records without one are refused. Delete:"
        " by retention and by request.", choices=("compact", "delete"), supported=True),
    Key("compression.type", STRING, "producer",
        "The codec batches are stored with, whatever their level if they come in it; producer keeps"
        " what the producer chose.", choices=COMPRESSION_TYPES, supported=True),
    Key("compression.gzip.level", INT, -1,
        "Level if batches are compressed again with gzip; -1 is the library's own.", low=1, high=9,
        also=(-1,), supported=True),
    Key("compression.lz4.level", INT, 9,
        "Level if batches are compressed again with lz4: 9 is its fast compressor, any"
        " other one packs tighter and takes several times as long.", low=1, high=17,
        supported=True),
    Key("compression.zstd.level", INT, 3, "Level if batches are compressed again with zstd.",
        low=-131_072, high=22, supported=True),
    Key("delete.retention.ms", LONG, 86_400_000,
        "How long a compacted topic keeps its delete markers.", low=0, supported=True),
    Key("errors.deadletterqueue.group.enable", BOOLEAN, False,
        "Let share groups have the topic as their dead-letter topic.", kafka="-", supported=True),
    Key("file.delete.delay.ms", LONG, 60_000,
        "How long the files of a deleted segment stay on disk under another name.", low=0,
        supported=True),
    Key("flush.messages", LONG, LONG_MAX,
        "Records after which a partition's log is forced to disk, before they are answered.", low=1,
        supported=True),
    Key("flush.ms", LONG, LONG_MAX,
        "Time after which written records are forced to disk, looked for every"
        " log.flush.scheduler.interval.ms.", low=0, supported=True),
    Key("follower.replication.throttled.replicas", LIST, (),
        "Follower replicas whose replication traffic is limited.", check=_check_throttled_replicas,
        check_words=_THROTTLE_WORDS, supported=True),
    Key("leader.replication.throttled.replicas", LIST, (),
        "Leader replicas whose replication traffic is limited.", check=_check_throttled_replicas,
        check_words=_THROTTLE_WORDS, supported=True),
    Key("index.interval.bytes", INT, 4_096,
        "Bytes of records between two entries of the offset index.", low=0, supported=True),
    Key("local.retention.bytes", LONG, -2,
        "With tiered storage, the bytes kept on local disk; -2: as retention.bytes.", low=-2),
    Key("local.retention.ms", LONG, -2,
        "With tiered storage, how long records stay on local disk; -2: as retention.ms.", low=-2),
    Key("max.compaction.lag.ms", LONG, LONG_MAX,
        "A record older than this is compacted whatever the ratio says.", low=1, supported=True),
    Key("max.message.bytes", INT, 1_048_588,
        "The largest record batch, as it is sent, that the topic takes.", low=0, supported=True),
    Key("message.timestamp.after.max.ms", LONG, 3_600_000,
        "How far a producer's stamp may lie ahead of the broker's clock.", low=0, supported=True),
    Key("message.timestamp.before.max.ms", LONG, LONG_MAX,
        "How far a producer's timestamp may be before the broker's clock.", low=0, supported=True),
    Key("message.timestamp.type", STRING, "CreateTime",
        "Whose clock stamps a record: the producer's (CreateTime) or the broker's"
        " (LogAppendTime).", choices=("CreateTime", "LogAppendTime"), supported=True),
    Key("min.cleanable.dirty.ratio", DOUBLE, 0.5,
        "Share of not yet compacted bytes at which the log is worth compacting.", low=0, high=1,
        supported=True),
    Key("min.compaction.lag.ms", LONG, 0, "A record younger than this is not compacted away.",
        low=0, supported=True),
    Key("min.insync.replicas", INT, 1,
        "In-sync replicas without which a produce with acks=-1 is refused; where a partition has"
        " fewer replicas, all of them are enough.", low=1, supported=True),
    Key("preallocate", BOOLEAN, False, "Reserve a new segment's whole size on disk at once."),
    Key("remote.log.copy.disable", BOOLEAN, False,
        "With tiered storage, copy no further segments."),
    Key("remote.log.delete.on.disable", BOOLEAN, False,
        "Delete the remote copies when tiered storage is switched off for the topic."),
    Key("remote.storage.enable", BOOLEAN, False,
        "Keep old segments of the topic in tiered storage."),
    Key("retention.bytes", LONG, -1,
        "How large a partition may grow before old segments go; -1 sets no bound.", supported=True),
    Key("retention.ms", LONG, 604_800_000, "How long records are kept; -1 keeps them for ever.",
        low=-1, supported=True),
    Key("segment.bytes", INT, 1_073_741_824,
        "Size at which a partition's log starts a new segment file.", low=1_048_576,
        supported=True),
    Key("segment.index.bytes", INT, 10_485_760,
        "Size of a segment's offset index file while the segment is written.", low=4,
        supported=True),
    Key("segment.jitter.ms", LONG, 0,
        "Up to this much is taken off the age at which a segment is closed.", low=0,
        supported=True),
    Key("segment.ms", LONG, 604_800_000, "Age at which a segment is closed even if it is not full.",
        low=1, supported=True),
    Key("unclean.leader.election.enable", BOOLEAN, False,
        "Let a replica that is not in sync become leader when no other is left; acknowledged"
        " records may be lost.", supported=True),
)  # fmt: skip
