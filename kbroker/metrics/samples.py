"""The records of `__kbroker_metrics` as one table: which kinds there are and their fields.

A record's value is one JSON object, its key `broker` or `broker:topic:partition`, its timestamp the
event time. Every object has the COMMON fields; the others depend on `metric_name`. Over all kinds a
field name has one type, so that the whole topic reads as one flat table (a field that a kind lacks
is null), and the view `kafka_metrics` of reports is that table.

Counts are growth since the previous record of the same kind and entity, so sums over time, topics
and brokers need no care. Histograms are growth too: buckets `{"le": upper bound, "count": n}`, not
cumulative, with fixed bounds, so buckets of equal bounds add up; never average a percentile.

A broker's records are numbered within one run (`run_ms`, `sequence`): the same pair twice is the
same record sent again. A change that breaks readers raises SCHEMA_VERSION; new fields do not.

Data only; `observe/metrics_sampler.py` fills it. Any thread.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

SCHEMA_VERSION: Final = 1
TOPIC: Final = "__kbroker_metrics"
DAY_MS: Final = 24 * 3_600_000
# Of every topic of measurements. Spark's Kafka source fails for ever on a record
# whose timestamp has no microseconds (KafkaIllegalStateException), so the broker refuses those.
TOPIC_CONFIGS: Final = {
    "retention.ms": str(7 * DAY_MS),
    "cleanup.policy": "delete",
    "message.timestamp.before.max.ms": str(3650 * DAY_MS),
}

# By default; metrics.topic.interval.ms is the first, and the second is twice that.
OFTEN_S: Final = 15
SELDOM_S: Final = 30
# An unchanged log is given again after this many slow rounds: by default ten minutes.
UNCHANGED_ROUNDS_MAX: Final = 20

FieldType = Literal["long", "double", "string", "boolean", "buckets"]
Entity = Literal["broker", "partition"]


class Field(NamedTuple):
    """`figure` is the catalogue's key that fills it; `growth` says since the previous record.

    `of`: values of the figure's first label, whose sum it is; without them the sum of all.
    """

    name: str
    type: FieldType
    help: str
    figure: str = ""
    growth: bool = False
    of: tuple[str, ...] = ()


class Kind(NamedTuple):
    """A metric name. `by` names the label that makes one record each, such as a directory.

    `from_zero`: its counts began with the process, so the first record tells all of them.
    """

    metric_name: str
    period_s: int
    entity: Entity
    help: str
    fields: tuple[Field, ...]
    by: str = ""
    from_zero: bool = True


COMMON: Final = (
    Field("schema_version", "long", "Of this table."),
    Field("broker_id", "long", "Who measured."),
    Field("run_ms", "long", "When that broker's sampling began, in ms since 1970 UTC."),
    Field("sequence", "long", "The record's number within the run."),
    Field("event_time_ms", "long", "When it was measured, in ms since 1970 UTC."),
    Field("interval_ms", "long", "What the record's counts cover."),
    Field("metric_name", "string", "Which kind of record this is."),
)

_PARTITION: Final = (
    Field("topic", "string", "The topic."),
    Field("partition", "long", "The partition's number."),
)

PARTITION_MESSAGES: Final = Kind(
    "PartitionMessages", OFTEN_S, "partition",
    "What was appended to a partition. Left out where nothing was.",
    (
        *_PARTITION,
        Field("message_count", "long", "Records appended.", growth=True),
        Field("bytes_in", "long", "Bytes of record batches appended.", growth=True),
    ),
)  # fmt: skip
PARTITION_LOG: Final = Kind(
    "PartitionLog", SELDOM_S, "partition",
    "A partition's log. Left out where nothing changed, but for every twentieth time.",
    (
        *_PARTITION,
        Field("directory", "string", "The log directory that holds it."),
        Field("size_bytes", "long", "Bytes of its segments."),
        Field("log_start_offset", "long", "The first offset."),
        Field("log_end_offset", "long", "The offset of the next record."),
        Field("high_watermark", "long", "Consumers read below this offset."),
    ),
)  # fmt: skip
REQUEST_TIME: Final = Kind(
    "RequestTime", OFTEN_S, "broker",
    "Times of one kind of request, split as Kafka splits them. Left out where there were none.",
    (
        Field("request", "string", "Produce, FetchConsumer and so on."),
        Field("part", "string", "TotalTimeMs, RequestQueueTimeMs and so on."),
        Field("count", "long", "Requests, or flushes.", growth=True),
        Field("buckets", "buckets", "By duration, in ms.", growth=True),
    ),
)  # fmt: skip
LOG_FLUSH: Final = Kind(
    "LogFlush", OFTEN_S, "broker",
    "How long logs took to get to the disk, per log. Left out where none was flushed; the flushes "
    "of a stop come after the last sample and are left out.",
    (
        Field("count", "long", "Requests, or flushes.", growth=True),
        Field("buckets", "buckets", "By duration, in ms.", growth=True),
    ),
)  # fmt: skip
GROUP_LAG: Final = Kind(
    "GroupLag", SELDOM_S, "broker",
    "The lag of a consumer group in a topic, all partitions together. Left out while it is 0, but "
    "for the first time; of very many, those with the largest.",
    (
        Field("consumer_group", "string", "The group."),
        Field("topic", "string", "The topic."),
        Field("lag", "long", "Records between the committed offset and the high watermark."),
        Field("members", "long", "Members of the group."),
    ),
)  # fmt: skip
GROUP_LAGS_MAX: Final = 1_000  # in a round
ABORTED_TRANSACTIONS: Final = Kind(
    "AbortedTransactions", OFTEN_S, "broker",
    "Aborted transactions of a transactional id, by its coordinator. Left out where there were "
    "none; of very many ids, those with most.",
    (
        Field("transactional_id", "string", "The transactional id."),
        Field("transactions_aborted", "long", "Aborted, for whatever reason.", growth=True),
        Field("transactions_timed_out", "long", "Of them: open for longer than their timeout.",
              growth=True),
        Field("client_id", "string", "Of the id's last client, where its coordinator knows it."),
        Field("client_host", "string", "The address of that client."),
    ),
)  # fmt: skip
OPEN_TRANSACTION: Final = Kind(
    "OpenTransaction", OFTEN_S, "broker",
    "A transaction that has been open for ten seconds, by its coordinator; of very many, those "
    "that began first.",
    (
        Field("transactional_id", "string", "The transactional id."),
        Field("producer_id", "long", "The producer's id."),
        Field("producer_epoch", "long", "The producer's epoch."),
        Field("transaction_state", "string", "Ongoing, PrepareCommit or PrepareAbort."),
        Field("open_s", "double", "How long it has been open."),
        Field("timeout_ms", "long", "After so long its coordinator aborts it."),
        Field("transaction_partitions", "long", "Partitions in it."),
        Field("client_id", "string", "Of the id's last client, where its coordinator knows it."),
        Field("client_host", "string", "The address of that client."),
    ),
)  # fmt: skip
LAST_STABLE_OFFSET: Final = Kind(
    "LastStableOffset", OFTEN_S, "partition",
    "A partition whose last stable offset a transaction has held for ten seconds, by its leader; "
    "of very many, those held longest.",
    (
        *_PARTITION,
        Field("producer_id", "long", "The producer's id."),
        Field("producer_epoch", "long", "The producer's epoch."),
        Field("last_stable_offset", "long", "Consumers of committed records read below it."),
        Field("open_s", "double", "How long it has been open."),
        Field("waiting_records", "long", "Records from there to the high watermark."),
    ),
)  # fmt: skip
SHARE_IN_FLIGHT: Final = Kind(
    "ShareInFlight", SELDOM_S, "broker",
    "Records of a topic that members of a share group have and are not done with, in the "
    "partitions that this broker leads. Left out while there are none, but for the first time; of "
    "very many, those with most.",
    (
        Field("share_group", "string", "The share group."),
        Field("topic", "string", "The topic."),
        Field("share_in_flight", "long", "Records handed out and not done with, and those between "
              "them."),
    ),
)  # fmt: skip
SHARES_IN_FLIGHT_MAX: Final = 1_000  # in a round
OPEN_MIN_S: Final = 10.0  # before it is sampled
OPEN_MAX: Final = 1_000  # of each of these kinds, in a round
# Filled from the catalogue's figures alone.
FROM_FIGURES: Final = (
    Kind(
        "BrokerTraffic", OFTEN_S, "broker", "All topics together.",
        (
            Field("messages_in", "long", "Records appended.", "messages_in", True),
            Field("bytes_in", "long", "Bytes of batches appended.", "bytes_in", True),
            Field("bytes_out", "long", "Bytes given to consumers.", "bytes_out", True),
            Field("produce_requests", "long", "Partitions produced to.", "produce_requests", True),
            Field("fetch_requests", "long", "Partitions fetched.", "fetch_requests", True),
            Field("failed_produce_requests", "long", "Those answered with an error.",
                  "failed_produce_requests", True),
            Field("failed_fetch_requests", "long", "Those answered with an error.",
                  "failed_fetch_requests", True),
        ),
    ),
    Kind(
        "Threads", OFTEN_S, "broker", "How busy the broker is.",
        (
            Field("network_idle", "double", "Network threads, 0 to 1.", "network_idle"),
            Field("handler_idle", "double", "Request handlers, 0 to 1.", "handler_idle"),
            Field("request_queue_size", "long", "Requests that wait.", "request_queue_size"),
            Field("connections", "long", "Open connections.", "connections"),
        ),
    ),
    Kind(
        "MutedSockets", OFTEN_S, "broker",
        "Requests that wait in their sockets because their connection is muted, after one that "
        "is not answered: no request's time has them.",
        (
            Field("listener", "string", "The listener."),
            Field("muted_waiting", "long", "Connections muted with bytes waiting, now.",
                  "channels_muted_waiting"),
            Field("muted_waits_s", "buckets", "How long bytes waited, per wait that has ended.",
                  "channel_muted_wait", True),
        ),
        by="listener",
    ),
    Kind(
        "Replicas", OFTEN_S, "broker", "Partitions and how well they are replicated.",
        (
            Field("partition_count", "long", "Partitions here.", "partition_count"),
            Field("leader_count", "long", "Partitions led.", "leader_count"),
            Field("under_replicated", "long", "With replicas out of sync.", "under_replicated"),
            Field("under_min_isr", "long", "Refusing acks=all.", "under_min_isr"),
            Field("replica_fetcher_bytes", "long", "Read from leaders.",
                  "replica_fetcher_bytes", True),
            Field("replication_bytes_out", "long", "Given to followers.",
                  "replication_bytes_out", True),
            Field("replica_lag", "long", "Records that the partition with the largest lag "
                  "lacks up to its leader's high watermark.", "replica_max_lag"),
            Field("replica_lag_bytes", "long", "About how many bytes all of them lack.",
                  "replica_lag_bytes"),
            Field("catch_up_s", "double", "Until they have them, at the rate of late; null where "
                  "nothing comes.", "replica_catch_up"),
            Field("isr_shrinks", "long", "In-sync sets that lost a replica.", "isr_shrinks", True),
            Field("isr_expands", "long", "In-sync sets that got one.", "isr_expands", True),
        ),
    ),
    Kind(
        "Controller", OFTEN_S, "broker", "The cluster, as its controller knows it.",
        (
            Field("active_controller", "long", "1 of the controller, else 0.",
                  "active_controllers"),
            Field("offline_partitions", "long", "Without a leader; 0 of all but the controller.",
                  "offline_partitions"),
            Field("leader_elections", "long", "Partitions that got another leader.",
                  "leader_elections", True),
            Field("unclean_elections", "long", "Leaders who may lack acknowledged records.",
                  "unclean_elections", True),
            Field("controller_queue", "long", "Events that wait for the controller's thread.",
                  "controller_queue"),
        ),
    ),
    Kind(
        "Transactions", OFTEN_S, "broker",
        "Transactions that this broker coordinates, and those in partitions that it leads.",
        (
            Field("transactions_committed", "long", "Committed.", "transactions_committed", True),
            Field("transactions_aborted", "long", "Aborted, for whatever reason.",
                  "transactions_aborted", True),
            Field("transactions_timed_out", "long", "Of them: open for longer than their timeout.",
                  "transactions_timed_out", True),
            Field("hanging_aborted", "long", "Hanging ones that were ended in a partition.",
                  "hanging_transactions", True),
            Field("late_partitions", "long", "Partitions with a transaction that is older than "
                  "any timeout.", "late_transactions"),
            Field("stable_age_s", "double", "How long, at most, one has held the last stable "
                  "offset of a partition.", "last_stable_age"),
            Field("stable_lag", "long", "The most records of a partition that consumers of "
                  "committed records cannot read yet.", "last_stable_lag"),
        ),
    ),
    Kind(
        "ShareGroups", OFTEN_S, "broker", "Share groups, in the partitions that this broker leads.",
        (
            Field("share_partitions", "long", "Share-partitions that it serves.",
                  "share_partitions_led"),
            Field("share_sessions", "long", "Sessions of their members.", "share_sessions"),
            Field("share_in_flight", "long", "Records handed out and not done with, and those "
                  "between them.", "share_in_flight_sum"),
            Field("share_acquired", "long", "Records handed out, each as often as it was.",
                  "share_acquired", True),
            Field("share_accepted", "long", "Records that members accepted.",
                  "share_acknowledgements", True, ("Accept",)),
            Field("share_released", "long", "Records that they gave back, for another delivery.",
                  "share_acknowledgements", True, ("Release",)),
            Field("share_rejected", "long", "Records that they rejected.",
                  "share_acknowledgements", True, ("Reject",)),
            Field("share_locks_ended", "long", "Records whose lock ended before they were "
                  "acknowledged.", "share_lock_timeouts", True),
            Field("share_used_up", "long", "Records given up, since they were delivered as often "
                  "as their group allows.", "share_archived", True,
                  ("lock ended", "session ended", "released")),
        ),
    ),
    Kind(
        "LogDirectory", SELDOM_S, "broker", "Space, for the forecast of when it ends.",
        (
            Field("directory", "string", "The log directory."),
            Field("free_bytes", "long", "Free on its file system.", "log_dir_free"),
            Field("total_bytes", "long", "Size of its file system.", "log_dir_total"),
            Field("log_bytes", "long", "Bytes of the logs in it.", "log_dir_used"),
        ),
        by="directory",
    ),
    Kind(
        "Disk", SELDOM_S, "broker", "A device under a log directory.",
        (
            Field("device", "string", "The device."),
            Field("read_bytes", "long", "Read.", "disk_read", True),
            Field("written_bytes", "long", "Written.", "disk_written", True),
        ),
        by="device",
        from_zero=False,  # the device's since the machine's start
    ),
    Kind(
        "Process", SELDOM_S, "broker", "The broker's process.",
        (
            Field("resident_bytes", "long", "Resident memory.", "resident_memory"),
            Field("memory_limit_bytes", "long", "What it may use.", "memory_limit"),
            Field("cpu_s", "double", "Processor time.", "cpu_seconds", True),
            Field("read_bytes", "long", "Read from disks.", "process_read", True),
            Field("written_bytes", "long", "Sent to disks.", "process_written", True),
            Field("open_fds", "long", "Open file descriptors.", "open_fds"),
            Field("threads", "long", "Threads.", "threads"),
        ),
    ),
    Kind(
        "GarbageCollection", SELDOM_S, "broker", "Python's collector, by generation.",
        (
            Field("generation", "string", "0, 1 or 2."),
            Field("collections", "long", "Runs.", "gc_collections", True),
            Field("pauses_s", "buckets", "How long it held the GIL.", "gc_pause", True),
        ),
        by="generation",
    ),
    Kind(
        "GilWait", SELDOM_S, "broker", "Request handlers that waited for the GIL.",
        (Field("waits_s", "buckets", "How long.", "gil_wait", True),),
    ),
)  # fmt: skip
SAMPLING: Final = Kind(
    "Sampling", SELDOM_S, "broker", "How the sampling itself fares.",
    (
        Field("dropped", "long", "Records given up because the topic could not take them.",
              growth=True),
    ),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (
    PARTITION_MESSAGES, PARTITION_LOG, REQUEST_TIME, LOG_FLUSH, GROUP_LAG, ABORTED_TRANSACTIONS,
    OPEN_TRANSACTION, LAST_STABLE_OFFSET, SHARE_IN_FLIGHT, *FROM_FIGURES, SAMPLING,
)  # fmt: skip


def columns() -> dict[str, FieldType]:
    """The flat table over all kinds: every field once, the common ones first."""
    found: dict[str, FieldType] = {field.name: field.type for field in COMMON}
    for kind in KINDS:
        found.update((field.name, field.type) for field in kind.fields)
    return found
