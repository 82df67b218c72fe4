"""Values for the keys of a topic's configuration, good and bad: each is asked on its own."""

from __future__ import annotations

from typing import Final

_MAX_LONG: Final = str(2**63 - 1)

VALUES: Final[tuple[tuple[str, str], ...]] = (
    *(("cleanup.policy", v) for v in ("delete", "compact", "compact,delete", "delete,compact")),
    *(("cleanup.policy", v) for v in ("delete, compact", "compact,compact", "", ",", "delete,x")),
    *(("cleanup.policy", v) for v in ("Delete", " delete ")),
    *(("compression.type", v) for v in ("producer", "gzip", "zstd", "uncompressed", "none", "x")),
    *(("compression.gzip.level", v) for v in ("-1", "0", "1", "9", "10")),
    *(("compression.lz4.level", v) for v in ("0", "1", "17", "18")),
    *(("compression.zstd.level", v) for v in ("-131072", "-131073", "0", "22", "23")),
    *(("delete.retention.ms", v) for v in ("-1", "0", _MAX_LONG)),
    *(("file.delete.delay.ms", v) for v in ("-1", "0")),
    *(("flush.messages", v) for v in ("0", "1", _MAX_LONG)),
    *(("flush.ms", v) for v in ("-1", "0")),
    *(("index.interval.bytes", v) for v in ("-1", "0", str(2**31), "4096")),
    *(("max.compaction.lag.ms", v) for v in ("0", "1")),
    *(("max.message.bytes", v) for v in ("-1", "0", "1", "2147483647", "2147483648")),
    *(("message.timestamp.after.max.ms", v) for v in ("-1", "0", "1")),
    *(("message.timestamp.before.max.ms", v) for v in ("-1", "0", "1")),
    *(("message.timestamp.type", v) for v in ("CreateTime", "LogAppendTime", "createtime", "")),
    *(("min.cleanable.dirty.ratio", v) for v in ("-0.1", "0", "0.5", "1", "1.1", "x", "1e-1")),
    *(("min.cleanable.dirty.ratio", v) for v in ("NaN", "0x1p-1", "0.5f", ".5")),
    *(("min.compaction.lag.ms", v) for v in ("-1", "0", _MAX_LONG)),
    *(("min.insync.replicas", v) for v in ("0", "1", "2", "2147483647")),
    *(("preallocate", v) for v in ("true", "false", "TRUE", "1", "", " true ")),
    *(("retention.bytes", v) for v in ("-2", "-1", "0", _MAX_LONG, str(2**63))),
    *(("retention.ms", v) for v in ("-2", "-1", "0", "77", " 77 ", "+77", "077", "7.0", "", "7L")),
    *(("retention.ms", v) for v in ("1_000", "\u0667\u0667", "0x10", "-0")),
    *(("segment.bytes", v) for v in ("1", "1048575", "1048576", "2147483647", "2147483648")),
    *(("segment.index.bytes", v) for v in ("3", "4")),
    *(("segment.jitter.ms", v) for v in ("-1", "0")),
    *(("segment.ms", v) for v in ("0", "1")),
    *(("unclean.leader.election.enable", v) for v in ("true", "false", "yes")),
    *(("leader.replication.throttled.replicas", v) for v in ("", "*", "0:1,1:1", "0:1,", "x", "0")),
    *(("follower.replication.throttled.replicas", v) for v in ("*", "0:1", "0:x", "*,0:1")),
    *(("local.retention.ms", v) for v in ("-3", "-2", "-1", "0", "604800001")),
    *(("local.retention.bytes", v) for v in ("-3", "-2", "-1", "0")),
    *(("remote.storage.enable", v) for v in ("false", "x")),
    *(("remote.log.copy.disable", v) for v in ("true", "false")),
    *(("remote.log.delete.on.disable", v) for v in ("true", "false")),
    # Keys that Apache Kafka once had.
    *(("message.format.version", v) for v in ("3.0", "x")),
    ("message.downconversion.enable", "true"),
    ("message.timestamp.difference.max.ms", "1"),
)
