"""Broker keys of tiered storage: known, not served in this version.

Rows of the table only (see `key.py`); `definition.py` joins them with the other themes.
"""

from __future__ import annotations

from typing import Final

from kbroker.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    LONG,
    LONG_MAX,
    STRING,
)
from kbroker.config.key import ConfigKey as Key

KEYS: Final = (
    Key(
        "remote.log.storage.system.enable", BOOLEAN, False,
        "Start the parts of the broker that tiered storage needs.",
    ),
    Key(
        "remote.log.storage.manager.class.name", STRING, None,
        "The class that stores segments remotely. Java classes do not run here.",
    ),
    Key(
        "remote.log.storage.manager.class.path", STRING, None,
        "Where that class is found.",
    ),
    Key(
        "remote.log.storage.manager.impl.prefix", STRING, "rsm.config.",
        "Prefix of the keys that are handed to that class.",
    ),
    Key(
        "remote.log.metadata.manager.class.name", STRING, None,
        "The class that keeps the metadata of remote segments. Java classes do not run here.",
        kafka="org.apache.kafka.server.log.remote.metadata.storage."
        "TopicBasedRemoteLogMetadataManager",
    ),
    Key(
        "remote.log.metadata.manager.class.path", STRING, None,
        "Where that class is found.",
    ),
    Key(
        "remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.",
        "Prefix of the keys that are handed to that class.",
    ),
    Key(
        "remote.log.metadata.manager.listener.name", STRING, None,
        "The listener on which that class reaches the brokers.",
    ),
    Key(
        "remote.log.metadata.custom.metadata.max.bytes", INT, 128,
        "The largest note that a storage class may attach to a segment.",
        low=0,
    ),
    Key(
        "remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824,
        "Disk space for index files of remote segments.",
        low=1, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "remote.log.index.file.cache.ttl.ms", LONG, 900_000,
        "How long an unused index file of a remote segment is kept.",
        low=-1, internal=True,
    ),
    Key(
        "remote.log.manager.thread.pool.size", INT, 2,
        "Threads that plan the copying and deleting of remote segments.",
        low=1,
    ),
    Key(
        "remote.log.manager.copier.thread.pool.size", INT, 10,
        "Threads that copy segments to remote storage.",
        low=1, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "remote.log.manager.expiration.thread.pool.size", INT, 10,
        "Threads that delete expired remote segments.",
        low=1, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "remote.log.manager.follower.thread.pool.size", INT, 2,
        "Threads that follow what leaders have copied.",
        low=1, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "remote.log.manager.task.interval.ms", LONG, 30_000,
        "Pause between two rounds of copying and deleting.",
        low=1,
    ),
    Key(
        "remote.log.manager.task.retry.backoff.ms", LONG, 500,
        "First pause before a failed remote task is repeated.",
        low=1, internal=True,
    ),
    Key(
        "remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000,
        "Longest pause before a failed remote task is repeated.",
        low=1, internal=True,
    ),
    Key(
        "remote.log.manager.task.retry.jitter", DOUBLE, 0.2,
        "Share of those pauses that is random.",
        low=0, high=0.5, internal=True,
    ),
    Key(
        "remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX,
        "Bytes per second copied to remote storage.",
        low=1, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "remote.log.manager.copy.quota.window.num", INT, 11,
        "Windows kept for measuring that rate.",
        low=1,
    ),
    Key(
        "remote.log.manager.copy.quota.window.size.seconds", INT, 1,
        "Length of one such window.",
        low=1,
    ),
    Key(
        "remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX,
        "Bytes per second read from remote storage.",
        low=1, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "remote.log.manager.fetch.quota.window.num", INT, 11,
        "Windows kept for measuring that rate.",
        low=1,
    ),
    Key(
        "remote.log.manager.fetch.quota.window.size.seconds", INT, 1,
        "Length of one such window.",
        low=1,
    ),
    Key(
        "remote.log.reader.threads", INT, 10,
        "Threads that read from remote storage.",
        low=1, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "remote.log.reader.max.pending.tasks", INT, 100,
        "Reads that may wait for those threads.",
        low=1,
    ),
    Key(
        "remote.fetch.max.wait.ms", INT, 500,
        "How long a fetch waits for remote storage.",
        low=1, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "remote.list.offsets.request.timeout.ms", LONG, 30_000,
        "How long a ListOffsets request waits for remote storage.",
        low=1, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "log.local.retention.bytes", LONG, -2,
        "With tiered storage, the bytes kept on local disk; -2: as log.retention.bytes.",
        low=-2, dynamic=CLUSTER_WIDE,
    ),
    Key(
        "log.local.retention.ms", LONG, -2,
        "With tiered storage, how long records stay on local disk; -2: as log.retention.ms.",
        low=-2, dynamic=CLUSTER_WIDE,
    ),
)  # fmt: skip
