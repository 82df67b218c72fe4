"""Every metric of a broker, under all its names: the one table that everything else reads.

A row has a key (what the observer fills), a canonical name (CamelCase, as a rule-set without
lowercasing gives), and the names of other dialects: `strimzi` (the lowercase names of nearly every
public dashboard), `confluent` and `kafka-ui`. The admin side exposes rows, `kbroker generate`
builds alert rules and dashboards from them, and docs/metrics.md is written from them.

`...PerSec` is a gauge, the rate over one minute; its count is Strimzi's `_total`. Idle
percents are fractions, 0 to 1. Times are milliseconds where Kafka's name says Ms, else seconds.
Names of ours begin with `kbroker_`. Rows are in the order of the documentation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kbroker.metrics.rows import DIALECTS, Metric, Name
from kbroker.metrics.rows import gauge as _gauge
from kbroker.metrics.rows import meter as _meter
from kbroker.metrics.rows import plain as _plain
from kbroker.metrics.rows import times as _times

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

_TOPIC: Final = ("topic",)
_REQUEST: Final = ("request",)
_CONTROLLER_ONLY: Final = "0 on a broker that is not the controller."
_LAST_EVENTS: Final = "Quantiles of the last 1,024 events; brokers that follow have such, too."
_PARTITION: Final = ("topic", "partition")
_BY_PARTITION: Final = "Only with metrics.partitions.enable."

_TRAFFIC: Final = (
    _meter("bytes_in", "kafka_server_BrokerTopicMetrics_BytesInPerSec",
           "Bytes of record batches appended.", "bytes/s", _TOPIC),
    _meter("bytes_out", "kafka_server_BrokerTopicMetrics_BytesOutPerSec",
           "Bytes of record batches given to consumers.", "bytes/s", _TOPIC),
    _meter("messages_in", "kafka_server_BrokerTopicMetrics_MessagesInPerSec",
           "Records appended.", "records/s", _TOPIC),
    _meter("produce_requests", "kafka_server_BrokerTopicMetrics_TotalProduceRequestsPerSec",
           "Partitions named by produce requests.", "1/s", _TOPIC,
           "As in Kafka, a request counts once for each partition that it names."),
    _meter("fetch_requests", "kafka_server_BrokerTopicMetrics_TotalFetchRequestsPerSec",
           "Partitions read for fetch requests.", "1/s", _TOPIC,
           "As in Kafka, a request counts once for each partition that it reads."),
    _meter("failed_produce_requests",
           "kafka_server_BrokerTopicMetrics_FailedProduceRequestsPerSec",
           "Partitions of produce requests answered with an error.", "1/s", _TOPIC,
           "Kafka leaves out errors that it expects, such as NOT_LEADER_OR_FOLLOWER."),
    _meter("failed_fetch_requests", "kafka_server_BrokerTopicMetrics_FailedFetchRequestsPerSec",
           "Partitions of fetch requests answered with an error.", "1/s", _TOPIC,
           "Kafka leaves out errors that it expects, such as OFFSET_OUT_OF_RANGE."),
    _meter("bytes_rejected", "kafka_server_BrokerTopicMetrics_BytesRejectedPerSec",
           "Bytes of record batches refused as too large.", "bytes/s", _TOPIC),
    _meter("produce_message_conversions",
           "kafka_server_BrokerTopicMetrics_ProduceMessageConversionsPerSec",
           "Records converted from an old message format.", "records/s", _TOPIC,
           "Always 0: formats older than v2 are refused, as by Kafka 4."),
    _meter("replica_fetcher_bytes", "kafka_server_ReplicaManager_ReplicaFetcherBytesPerSec",
           "Bytes that this broker's replica fetchers have read from leaders.", "bytes/s"),
    _meter("replication_bytes_in",
           "kafka_server_BrokerTopicMetrics_ReplicationBytesInPerSec",
           "The same, under Apache Kafka's name.", "bytes/s", _TOPIC,
           "Of all topics together only."),
    _meter("replication_bytes_out",
           "kafka_server_BrokerTopicMetrics_ReplicationBytesOutPerSec",
           "Bytes of record batches given to followers.", "bytes/s", _TOPIC,
           "Of all topics together only."),
)  # fmt: skip

_QUOTAS: Final = tuple(
    _plain("gauge", f"quota_{name}", f"kafka_server_quota_{name}", help_, unit,
           ("resource", "user", "clientId"), "Of the 200 that were used last.")
    for name, help_, unit in (
        ("byte_rate", "Bytes that clients have used of a quota.", "bytes/s"),
        ("request_time", "Time of threads that clients have used of a quota.", "percent"),
        ("mutation_rate", "Partitions that clients have made or deleted.", "partitions/s"),
        ("tokens", "Partitions that clients may make or delete at once; below 0: they wait.", ""),
        ("throttle_time", "For how long clients over a quota had to wait, on average.", "ms"),
    )
)  # fmt: skip

_NETWORK: Final = (
    _gauge("network_idle", "kafka_network_SocketServer_NetworkProcessorAvgIdlePercent",
           "Share of the network threads' time that they waited for work, 0 to 1.", "fraction"),
    _gauge("processor_idle", "kafka_network_Processor_IdlePercent",
           "The same of each network thread.", "fraction", ("networkProcessor",)),
    _gauge("handler_idle", "kafka_server_KafkaRequestHandlerPool_RequestHandlerAvgIdlePercent",
           "Share of the request handlers' time that they waited for work, 0 to 1.", "fraction",
           (), "A handler is idle while it sleeps and no request is in the queue or is being"
           " taken from it; waiting for the GIL is not idle.",
           confluent="kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total"),
    _gauge("request_queue_size", "kafka_network_RequestChannel_RequestQueueSize",
           "Requests in the queue between network threads and handlers.", "requests"),
    _plain("gauge", "request_queue_bytes", "kbroker_request_queue_bytes",
           "Bytes of the requests in the queue.", "bytes"),
    _plain("gauge", "connections", "kafka_server_socket_server_metrics_connection_count",
           "Open connections.", "connections", ("listener", "networkProcessor")),
    _plain("gauge", "certificate_expiries", "kbroker_tls_certificate_not_after_seconds",
           "When the certificate of a listener with TLS expires, in seconds since 1970.", "s",
           ("listener",)),
    _plain("counter", "connections_opened", "kbroker_connections_opened_total",
           "Connections accepted.", "connections", ("listener",)),
    _plain("counter", "connections_refused", "kbroker_connections_refused_total",
           "Connections closed at once because a quota was full.", "connections", ("listener",)),
    _plain("counter", "connections_closed", "kbroker_connections_closed_total",
           "Connections ended, by whichever side.", "connections", ("listener",)),
    _plain("counter", "connections_cut", "kbroker_connections_cut_total",
           "Connections that the broker ended, by the cause.", "connections", ("cause",)),
    _plain("counter", "authentications", "kafka_server_socket_server_metrics_successful"
           "_authentication_total", "Clients that have logged in with SASL.", "connections",
           ("listener",)),
    _plain("counter", "authentications_failed", "kafka_server_socket_server_metrics_failed"
           "_authentication_total", "Connections ended since their clients did not log in.",
           "connections", ("listener",)),
    _plain("counter", "reauthentications", "kafka_server_socket_server_metrics_successful"
           "_reauthentication_total", "Sessions renewed by clients that logged in again.",
           "sessions", ("listener",)),
    _plain("counter", "reauthentications_failed", "kafka_server_socket_server_metrics_failed"
           "_reauthentication_total", "Connections ended since their clients did not log in again.",
           "connections", ("listener",)),
    _plain("counter", "sessions_expired", "kafka_server_socket_server_metrics"
           "_expired_connections_killed_total", "Connections ended since their sessions were over.",
           "connections"),
    _plain("counter", "connections_idle_closed", "kbroker_connections_idle_closed_total",
           "Connections closed because connections.max.idle.ms went by.", "connections",
           ("networkProcessor",)),
    _plain("counter", "connections_unread_closed", "kbroker_connections_unread_closed_total",
           "Connections closed because their clients did not read their answers.", "connections",
           ("networkProcessor",), "See queued.max.response.bytes."),
    _plain("counter", "protocol_errors", "kbroker_protocol_errors_total",
           "Connections closed because of the bytes that they sent.", "connections",
           ("networkProcessor",)),
    _gauge("acceptor_blocked", "kafka_network_Acceptor_AcceptorBlockedPercent",
           "Share of time that an acceptor waited for a network thread to take a connection.",
           "fraction", ("listener",)),
    _plain("counter", "accept_pauses", "kbroker_accept_pauses_total",
           "Times that accepting paused for want of file descriptors.", "", ("listener",)),
    _plain("counter", "received_bytes", "kbroker_network_received_bytes_total",
           "Bytes read from sockets.", "bytes", ("networkProcessor",)),
    _plain("counter", "sent_bytes", "kbroker_network_sent_bytes_total",
           "Bytes written to sockets.", "bytes", ("networkProcessor",)),
    _plain("histogram", "channel_muted_wait", "kbroker_channel_muted_wait_seconds",
           "How long a muted channel had bytes waiting in its socket, per wait.", "s",
           ("listener",), "The backlog that TotalTimeMs cannot see."),
    _plain("gauge", "channels_muted_waiting", "kbroker_channels_muted_waiting",
           "Channels that are muted with bytes waiting.", "channels", ("listener",)),
    _plain("counter", "channel_state", "kbroker_channel_state_seconds_total",
           "How long channels were in each state of docs/channel.md, until they left it.", "s",
           ("request", "state"), "By their last request: Produce, Fetch, other."),
    _plain("gauge", "pipelined_bytes", "kbroker_channel_pipelined_bytes",
           "Bytes of requests that are locally processed and await their answers.", "bytes"),
    _plain("gauge", "unsent_bytes", "kbroker_unsent_response_bytes",
           "Bytes of answers that wait in memory for their sockets.", "bytes", (),
           "Bounded by queued.max.response.bytes."),
    _plain("counter", "train_frames", "kbroker_train_frames_total",
           "Produce requests that came in trains of several.", "requests"),
)  # fmt: skip

_REQUESTS: Final = (
    _meter("requests", "kafka_network_RequestMetrics_RequestsPerSec",
           "Requests answered.", "1/s", ("request", "version")),
    _meter("errors", "kafka_network_RequestMetrics_ErrorsPerSec",
           "Answers by error code; NONE is success.", "1/s", ("request", "error"),
           "Produce and Fetch only, for each partition; Fetch for the answer, too."),
    _times("total_time", "kafka_network_RequestMetrics_TotalTimeMs",
           "From the last byte received to the last byte sent.", _REQUEST),
    _times("request_queue_time", "kafka_network_RequestMetrics_RequestQueueTimeMs",
           "From the last byte received until a handler took the request.", _REQUEST),
    _times("local_time", "kafka_network_RequestMetrics_LocalTimeMs",
           "A handler's work on the request.", _REQUEST),
    _times("remote_time", "kafka_network_RequestMetrics_RemoteTimeMs",
           "Waiting for others: followers, records for a long poll, the controller.", _REQUEST),
    _times("response_queue_time", "kafka_network_RequestMetrics_ResponseQueueTimeMs",
           "From the answer until it was taken to be sent.", _REQUEST),
    _times("response_send_time", "kafka_network_RequestMetrics_ResponseSendTimeMs",
           "Until the last byte of the answer was in the socket.", _REQUEST),
    _times("log_flush_time", "kafka_log_LogFlushStats_LogFlushRateAndTimeMs",
           "Bringing a log to the disk."),
    _gauge("purgatory_size", "kafka_server_DelayedOperationPurgatory_PurgatorySize",
           "Operations that wait.", "operations", ("delayedOperation",)),
    _plain("counter", "purgatory_expired", "kbroker_purgatory_expired_total",
           "Operations that ended by their timeout.", "operations", ("delayedOperation",)),
    _gauge("fetch_sessions", "kafka_server_FetchSessionCache_NumIncrementalFetchSessions",
           "Incremental fetch sessions.", "sessions"),
    _gauge("fetch_session_partitions",
           "kafka_server_FetchSessionCache_NumIncrementalFetchPartitionsCached",
           "Partitions in fetch sessions.", "partitions"),
    _meter("fetch_session_evictions",
           "kafka_server_FetchSessionCache_IncrementalFetchSessionEvictionsPerSec",
           "Fetch sessions that gave way to others.", "1/s"),
)  # fmt: skip

_REPLICAS: Final = (
    _gauge("under_replicated", "kafka_server_ReplicaManager_UnderReplicatedPartitions",
           "Partitions led here with fewer in-sync replicas than replicas.", "partitions"),
    _gauge("under_min_isr", "kafka_server_ReplicaManager_UnderMinIsrPartitionCount",
           "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
           "partitions"),
    _gauge("at_min_isr", "kafka_server_ReplicaManager_AtMinIsrPartitionCount",
           "Partitions led here with just min.insync.replicas in sync.", "partitions"),
    _gauge("partition_count", "kafka_server_ReplicaManager_PartitionCount",
           "Partitions on this broker.", "partitions"),
    _gauge("leader_count", "kafka_server_ReplicaManager_LeaderCount",
           "Partitions that this broker leads.", "partitions"),
    _gauge("offline_replicas", "kafka_server_ReplicaManager_OfflineReplicaCount",
           "Replicas here whose log is offline.", "partitions"),
    _meter("isr_shrinks", "kafka_server_ReplicaManager_IsrShrinksPerSec",
           "In-sync sets of partitions led here that lost a replica.", "1/s"),
    _meter("isr_expands", "kafka_server_ReplicaManager_IsrExpandsPerSec",
           "In-sync sets of partitions led here that a replica joined.", "1/s"),
    _gauge("replica_max_lag", "kafka_server_ReplicaFetcherManager_MaxLag",
           "The most that a partition here lags the high watermark of its leader.",
           "records", ("clientId",)),
    _plain("gauge", "replica_lag_bytes", "kbroker_replica_lag_bytes",
           "About how many bytes below their leaders' high watermarks the partitions here lack.",
           "bytes", (), "By the average size of the records that are here."),
    _plain("gauge", "replica_catch_up", "kbroker_replica_catch_up_seconds",
           "When the partitions here will have caught up: kbroker_replica_lag_bytes over"
           " ReplicaFetcherBytesPerSec.", "s", (),
           "0 if nothing is missing, +Inf if nothing comes. As if no records were added; the"
           " rate includes the bounds and the throttle of a fetch."),
    _gauge("replica_failed_partitions", "kafka_server_ReplicaFetcherManager_FailedPartitionsCount",
           "Partitions that others lead and that could not be fetched when last tried.",
           "partitions", ("clientId",)),
    _gauge("active_controllers", "kafka_controller_KafkaController_ActiveControllerCount",
           "1 on the broker that is the controller.", ""),
    _gauge("offline_partitions", "kafka_controller_KafkaController_OfflinePartitionsCount",
           "Partitions of the cluster without a leader.", "partitions", (), _CONTROLLER_ONLY),
    _gauge("global_topics", "kafka_controller_KafkaController_GlobalTopicCount",
           "Topics of the cluster.", "topics", (), _CONTROLLER_ONLY),
    _gauge("global_partitions", "kafka_controller_KafkaController_GlobalPartitionCount",
           "Partitions of the cluster.", "partitions", (), _CONTROLLER_ONLY),
    _meter("unclean_elections", "kafka_controller_ControllerStats_UncleanLeaderElectionsPerSec",
           "Leaders elected who may lack acknowledged records.", "1/s"),
    _plain("counter", "leader_elections", "kbroker_leader_elections_total",
           "Partitions for which this broker, as the controller, elected another leader.",
           "partitions"),
    _plain("counter", "offices_given_up", "kbroker_controller_offices_given_up_total",
           "How often this broker gave up the office of controller, since an event took longer"
           " than controller.event.max.ms, or since it could not read the metadata store.", ""),
    _gauge("controller_queue", "kafka_controller_ControllerEventManager_EventQueueSize",
           "Events that wait for this broker's controller thread.", "events"),
    _times("controller_queue_time", "kafka_controller_ControllerEventManager_EventQueueTimeMs",
           "How long events waited for this broker's controller thread.", (), _LAST_EVENTS),
    _times("controller_event_time",
           "kafka_controller_ControllerEventManager_EventQueueProcessingTimeMs",
           "How long its controller thread took for one.", (), _LAST_EVENTS),
    _gauge("offline_log_dirs", "kafka_log_LogManager_OfflineLogDirectoryCount",
           "Log directories that are gone or cannot be written.", "directories"),
    _gauge("broker_state", "kafka_server_KafkaServer_BrokerState",
           "1 starting, 2 recovering, 3 running, 6 and 7 stopping.", ""),
    _plain("gauge", "brokers", "kafka_brokers", "Brokers of the cluster.", "brokers"),
)  # fmt: skip

_LOGS: Final = (
    _plain("gauge", "topic_partitions", "kafka_topic_partitions", "Partitions of a topic.",
           "partitions", _TOPIC),
    _plain("gauge", "current_offset", "kafka_topic_partition_current_offset",
           "The offset after the last readable record (high watermark).", "offset", _PARTITION),
    _plain("gauge", "oldest_offset", "kafka_topic_partition_oldest_offset",
           "The first offset of the log.", "offset", _PARTITION),
    _gauge("log_size", "kafka_log_Log_Size", "Bytes of the log's segments.", "bytes",
           _PARTITION, _BY_PARTITION),
    _gauge("log_start_offset", "kafka_log_Log_LogStartOffset", "The first offset of the log.",
           "offset", _PARTITION, _BY_PARTITION),
    _gauge("log_end_offset", "kafka_log_Log_LogEndOffset", "The offset of the next record.",
           "offset", _PARTITION, _BY_PARTITION),
    _gauge("log_segments", "kafka_log_Log_NumLogSegments", "Segments of the log.", "segments",
           _PARTITION, _BY_PARTITION),
    _gauge("cleaner_dead_threads", "kafka_log_LogCleaner_DeadThreadCount",
           "Threads of the log cleaner that have ended by errors.", "threads"),
    _gauge("cleaner_uncleanable", "kafka_log_LogCleanerManager_uncleanable_partitions_count",
           "Compacted partitions here that cannot be cleaned.", "partitions"),
    _gauge("cleaner_uncleanable_bytes", "kafka_log_LogCleanerManager_uncleanable_bytes",
           "Bytes of the logs of those.", "bytes"),
    _gauge("cleaner_dirtiest", "kafka_log_LogCleanerManager_max_dirty_percent",
           "The largest share of bytes that came since a log's last cleaning, of all logs.", "%"),
    _gauge("cleaner_since_last_run", "kafka_log_LogCleanerManager_time_since_last_run_ms",
           "Since the log cleaner looked for a log to clean.", "ms"),
    _gauge("cleaner_recopied", "kafka_log_LogCleaner_cleaner_recopy_percent",
           "Share of the bytes that the last cleaning read and wrote again.", "%"),
    _gauge("cleaner_time", "kafka_log_LogCleaner_max_clean_time_secs",
           "How long the last cleaning took.", "s"),
    _gauge("cleaner_map_use", "kafka_log_LogCleaner_max_buffer_utilization_percent",
           "How full the table of keys was in the last cleaning.", "%"),
    _plain("gauge", "log_unreadable", "kbroker_log_unreadable_bytes",
           "Bytes of full segments that are no whole batches, and are not sent.", "bytes"),
    _plain("counter", "scrub_read", "kbroker_log_scrub_read_bytes_total",
           "Bytes of segments that the scrub has read.", "bytes"),
    _plain("gauge", "scrub_damaged", "kbroker_log_scrub_damaged_batches",
           "Batches that the scrub has found damaged, and that are there.", "batches"),
    _plain("counter", "scrub_repaired", "kbroker_log_scrub_repaired_batches_total",
           "Batches that it has had from another replica again.", "batches"),
    _plain("counter", "cleaner_read", "kbroker_log_cleaner_read_bytes_total",
           "Bytes of segments that the log cleaner has read.", "bytes"),
    _plain("counter", "cleaner_written", "kbroker_log_cleaner_written_bytes_total",
           "Bytes that it has written.", "bytes"),
    _plain("counter", "cleanings", "kbroker_log_cleanings_total",
           "Cleanings of a log.", "cleanings"),
    _plain("counter", "partition_messages", "kbroker_partition_messages_total",
           "Records appended to the partition.", "records", _PARTITION, _BY_PARTITION),
    _plain("counter", "partition_bytes", "kbroker_partition_bytes_total",
           "Bytes appended to the partition.", "bytes", _PARTITION, _BY_PARTITION),
)  # fmt: skip

_MARKERS: Final = "kafka_coordinator_transaction_TransactionMarkerChannelManager"
_LOADS: Final = "kafka_server_transaction_coordinator_metrics_partition_load_time"
_SINCE_START: Final = "Since the start; in Kafka of the last minute."

_TRANSACTIONS: Final = (
    _plain("gauge", "transactional_ids", "kbroker_transactional_ids",
           "Transactional ids that this broker coordinates, by state; Ongoing is an open"
           " transaction.", "ids", ("state",)),
    _plain("counter", "transactions_committed", "kbroker_transactions_committed_total",
           "Transactions that this broker has committed as their coordinator.", "transactions"),
    _plain("counter", "transactions_aborted", "kbroker_transactions_aborted_total",
           "Transactions that this broker has aborted as their coordinator: for their producers,"
           " for the next producer of the id, or for their timeout.", "transactions"),
    _plain("counter", "transactions_timed_out", "kbroker_transactions_timed_out_total",
           "Transactions that this broker has aborted since they were open for longer than their"
           " timeout.", "transactions"),
    _gauge("transactions_load_max", f"{_LOADS}_max",
           "The longest load of a partition of __transaction_state.", "ms", (), _SINCE_START),
    _gauge("transactions_load_avg", f"{_LOADS}_avg",
           "The average load of a partition of __transaction_state.", "ms", (), _SINCE_START),
    _plain("gauge", "markers_queued", "kbroker_transaction_markers_queued",
           "Partitions whose markers leave when an earlier request to their broker is answered.",
           "partitions"),
    _gauge("markers_unknown_destination", f"{_MARKERS}_UnknownDestinationQueueSize",
           "Partitions whose markers are sent again soon: the leader is unknown or away, or has"
           " refused them for a reason that passes.", "partitions", (),
           "In Kafka, those without a known leader only."),
    _gauge("transactions_append_retry", f"{_MARKERS}_LogAppendRetryQueueSize",
           "Transactions whose end could not be written to __transaction_state, and is written"
           " again soon.", "transactions"),
    _gauge("late_transactions", "kafka_server_ReplicaManager_PartitionsWithLateTransactionsCount",
           "Partitions led here with a transaction that is open for five minutes longer than"
           " transaction.max.timeout.ms.", "partitions", (),
           "Counted from when this leader has found it, not by the clock of a producer."),
    _plain("gauge", "last_stable_lag", "kbroker_last_stable_lag_records",
           "The most records of a partition led here that consumers of committed records cannot"
           " read yet.", "records"),
    _plain("gauge", "last_stable_age", "kbroker_last_stable_age_seconds",
           "How long, at most, a transaction has held the last stable offset of a partition led"
           " here.", "s"),
    _gauge("partition_stable_lag", "kafka_cluster_Partition_LastStableOffsetLag",
           "Records between the last stable offset and the high watermark.", "records",
           _PARTITION, _BY_PARTITION),
    _plain("gauge", "partition_stable_age", "kbroker_partition_last_stable_age_seconds",
           "How long a transaction has held the last stable offset; only where one does.", "s",
           _PARTITION, _BY_PARTITION),
    _plain("counter", "hanging_transactions", "kbroker_transactions_hanging_aborted_total",
           "Hanging transactions that this broker has aborted in partitions that it leads.",
           "transactions"),
)  # fmt: skip

_SHARE_LOADS: Final = "kafka_server_share_coordinator_metrics_partition_load_time"

_SHARE_PARTITION: Final = ("group", "topic", "partition")
_FIRST_SHARES: Final = "The first 20,000 series, by the names of the groups; the sum has them all."

_SHARE_GROUPS: Final = (
    _plain("gauge", "share_states", "kbroker_share_states",
           "Share-partitions whose state this broker keeps as their coordinator.",
           "share-partitions"),
    _plain("counter", "share_state_records", "kbroker_share_state_records_total",
           "Records that this broker has written to __share_group_state.", "records"),
    _plain("counter", "share_state_refused", "kbroker_share_state_refused_total",
           "Requests that a state of a share-partition refused: for an old epoch, or since there is"
           " no such state.", "requests"),
    _plain("counter", "share_state_unwritten", "kbroker_share_state_unwritten_total",
           "Requests whose record the log, or its followers, did not take in time.", "requests"),
    _gauge("share_state_load_max", f"{_SHARE_LOADS}_max",
           "The longest load of a partition of __share_group_state.", "ms", (), _SINCE_START),
    _gauge("share_state_load_avg", f"{_SHARE_LOADS}_avg",
           "The average load of a partition of __share_group_state.", "ms", (), _SINCE_START),
    _plain("gauge", "share_state_waiting", "kbroker_share_state_waiting",
           "Questions of this broker to share coordinators that are not answered.", "questions"),
    _plain("gauge", "share_partitions_led", "kbroker_share_partitions_led",
           "Share-partitions that this broker serves as the leader of their partitions.",
           "share-partitions"),
    _plain("counter", "share_acquired", "kbroker_share_records_acquired_total",
           "Records that members have acquired, each as often as it was delivered.", "records"),
    _meter("share_acknowledgements", "kafka_server_ShareGroupMetrics_RecordAcknowledgementsPerSec",
           "Records that members have acknowledged, by the type.", "records/s",
           ("ackType",), "Kafka counts a type that a client sends for many records once, and does"
           " not count gaps."),
    _plain("counter", "share_archived", "kbroker_share_records_archived_total",
           "Records that a share group is done with without having accepted them, by the reason.",
           "records", ("reason",),
           "lock ended, session ended and released: delivered as often as the group allows."),
    _plain("counter", "share_dead_letters", "kbroker_share_dead_letters_total",
           "Records that share groups with a dead-letter topic have given up, by the outcome of"
           " their copies.", "records", ("outcome",),
           "not written: the topic was not there, or did not take them in time. deleted before:"
           " the log has lost the records before their copies were written."),
    _plain("gauge", "share_archiving", "kbroker_share_dead_letters_waiting",
           "Records of which a copy is to be written to a dead-letter topic. They keep the start of"
           " their group.", "records"),
    _meter("share_lock_timeouts",
           "kafka_server_SharePartitionMetrics_AcquisitionLockTimeoutPerSec",
           "Records whose lock ended before they were acknowledged.", "records/s", (),
           "Of all share-partitions together only."),
    _plain("gauge", "share_in_flight_sum", "kbroker_share_records_in_flight",
           "Offsets that were handed out and are not done with, and those between them.",
           "records"),
    _gauge("share_in_flight", "kafka_server_SharePartitionMetrics_InFlightMessageCount",
           "The same, by share-partition.", "records", _SHARE_PARTITION, _FIRST_SHARES),
    _plain("gauge", "share_delayed", "kbroker_share_records_delayed",
           "Offsets that wait for their time: kb.share.release.delay.ms, kb-deliver-at. They are"
           " not in flight.", "records"),
    _plain("gauge", "share_full_of_delayed", "kbroker_share_partitions_full_of_delayed",
           "Share-partitions that deliver no new records, since 40,000 of theirs wait, or their"
           " windows have as many parts.",
           "share-partitions"),
    _gauge("share_in_flight_ranges", "kafka_server_SharePartitionMetrics_InFlightBatchCount",
           "Parts of them that have a state of their own.", "ranges", _SHARE_PARTITION,
           _FIRST_SHARES),
    _gauge("share_sessions", "kafka_server_ShareSessionCache_ShareSessionsCount",
           "Share sessions.", "sessions"),
    _gauge("share_session_partitions", "kafka_server_ShareSessionCache_SharePartitionsCount",
           "Partitions in share sessions.", "partitions"),
    _plain("counter", "share_sessions_ended", "kbroker_share_sessions_ended_total",
           "Share sessions that have ended: closed by the member, with its connection, replaced by"
           " another one of it, or evicted for a connection with fewer.", "sessions", ("cause",)),
    _plain("counter", "share_session_end_records", "kbroker_share_session_end_records_total",
           "Records that a member had when its share session ended. The delivery counts: many of"
           " them beside few acknowledgements are of clients that come and go too fast.",
           "records"),
    _plain("counter", "share_session_end_spared", "kbroker_share_session_end_uncounted_total",
           "Records that a member had for a short time when its share session ended, where the"
           " group does not count that: kb.share.session.end.count.", "records"),
    _times("share_load_time", "kafka_server_ShareGroupMetrics_PartitionLoadTimeMs",
           "From the first fetch of a share-partition until its state is there.", (),
           "Quantiles of the last 1,024."),
)  # fmt: skip

_GROUP_MANAGER: Final = "kafka_coordinator_group_GroupMetadataManager"
_GROUP: Final = ("consumergroup",)
_BY_GROUP: Final = ("consumergroup", "topic", "partition")
_FIRST_SERIES: Final = (
    "The first 20,000 series, by the names of the groups; the sums have them all."
)

_GROUPS: Final = (
    _plain("gauge", "group_lag", "kafka_consumergroup_lag",
           "Records between the committed offset and the high watermark.", "records", _BY_GROUP,
           _FIRST_SERIES),
    _plain("gauge", "group_lag_sum", "kafka_consumergroup_lag_sum",
           "The same, over the partitions of a topic.", "records", ("consumergroup", "topic")),
    _plain("gauge", "group_offset", "kafka_consumergroup_current_offset",
           "The committed offset.", "offset", _BY_GROUP, _FIRST_SERIES),
    _plain("gauge", "group_offset_sum", "kafka_consumergroup_current_offset_sum",
           "The same, over the partitions of a topic.", "offset", ("consumergroup", "topic")),
    _plain("gauge", "group_members", "kafka_consumergroup_members", "Members of the group.",
           "members", _GROUP),
    _gauge("groups", f"{_GROUP_MANAGER}_NumGroups", "Groups that this broker coordinates.",
           "groups"),
    _gauge("groups_preparing", f"{_GROUP_MANAGER}_NumGroupsPreparingRebalance",
           "Groups that wait for their members to join.", "groups"),
    _gauge("groups_completing", f"{_GROUP_MANAGER}_NumGroupsCompletingRebalance",
           "Groups that wait for their leader's assignment.", "groups"),
    _gauge("groups_stable", f"{_GROUP_MANAGER}_NumGroupsStable",
           "Groups whose members have their assignments.", "groups"),
    _gauge("groups_empty", f"{_GROUP_MANAGER}_NumGroupsEmpty", "Groups without members.",
           "groups"),
    _gauge("groups_dead", f"{_GROUP_MANAGER}_NumGroupsDead", "Groups that are being deleted.",
           "groups"),
    _plain("counter", "groups_refused", "kbroker_groups_refused_total",
           "Requests for a new group that were answered GROUP_MAX_SIZE_REACHED, since the broker"
           " coordinates as many groups, or share groups, as it may.", "requests", ("bound",)),
    _gauge("offsets", f"{_GROUP_MANAGER}_NumOffsets", "Committed offsets.", "offsets"),
    _plain("counter", "offsets_expired", "kbroker_group_offsets_expired_total",
           "Committed offsets whose time was over.", "offsets"),
)  # fmt: skip

_RESOURCES: Final = (
    _plain("gauge", "disk_read_rate", "kbroker_disk_read_bytes_per_second",
           "Read from the device that holds a log directory, over one minute.", "bytes/s",
           ("device",)),
    _plain("gauge", "disk_write_rate", "kbroker_disk_write_bytes_per_second",
           "Written to the device that holds a log directory, over one minute.", "bytes/s",
           ("device",)),
    _plain("counter", "disk_read", "kbroker_disk_read_bytes_total",
           "Read from the device that holds a log directory.", "bytes", ("device",)),
    _plain("counter", "disk_written", "kbroker_disk_written_bytes_total",
           "Written to the device that holds a log directory.", "bytes", ("device",)),
    _plain("gauge", "process_read_rate", "kbroker_process_disk_read_bytes_per_second",
           "Read from disks by this process, over one minute.", "bytes/s"),
    _plain("gauge", "process_write_rate", "kbroker_process_disk_write_bytes_per_second",
           "Sent to disks by this process, over one minute.", "bytes/s"),
    _plain("counter", "process_read", "kbroker_process_disk_read_bytes_total",
           "Read from disks by this process.", "bytes"),
    _plain("counter", "process_written", "kbroker_process_disk_written_bytes_total",
           "Sent to disks by this process.", "bytes"),
    _plain("gauge", "log_dir_free", "kbroker_log_dir_free_bytes",
           "Free space for a log directory.", "bytes", ("directory",)),
    _plain("gauge", "log_dir_total", "kbroker_log_dir_total_bytes",
           "Size of the file system of a log directory.", "bytes", ("directory",)),
    _plain("gauge", "log_dir_used", "kbroker_log_dir_log_bytes",
           "Bytes of the logs in a log directory.", "bytes", ("directory",)),
    _plain("gauge", "resident_memory", "process_resident_memory_bytes",
           "Resident memory.", "bytes"),
    _plain("gauge", "used_memory", "kbroker_memory_used_bytes",
           "What the allocator has given out; resident memory has what it keeps free, too, code, "
           "and Python's small objects.", "bytes"),
    _plain("gauge", "python_blocks", "kbroker_python_blocks",
           "Python's small objects: blocks of up to 512 bytes.", "objects"),
    _plain("gauge", "memory_limit", "kbroker_memory_limit_bytes",
           "What the process may use: the cgroup's limit, else the machine's memory.", "bytes"),
    _plain("gauge", "memory_share", "kbroker_memory_limit_share",
           "Resident memory as a share of the limit.", "fraction"),
    _plain("counter", "cpu_seconds", "process_cpu_seconds_total",
           "Processor time, user and system.", "s"),
    _plain("gauge", "open_fds", "process_open_fds", "Open file descriptors.", ""),
    _plain("gauge", "max_fds", "process_max_fds", "The limit of open file descriptors.", ""),
    _plain("gauge", "start_time", "process_start_time_seconds",
           "When the process began, in seconds since 1970.", "s"),
    _plain("gauge", "uptime", "kbroker_uptime_seconds", "How long the process has run.", "s"),
    _plain("gauge", "threads", "process_threads", "Threads of the process.", "threads"),
)  # fmt: skip

_RUNTIME: Final = (
    _plain("counter", "gc_collections", "kbroker_gc_collections_total",
           "Runs of Python's garbage collector.", "", ("generation",)),
    _plain("counter", "gc_collected", "kbroker_gc_collected_objects_total",
           "Objects that it freed.", "objects", ("generation",)),
    _plain("histogram", "gc_pause", "kbroker_gc_pause_seconds",
           "How long it held the GIL.", "s", ("generation",)),
    _plain("histogram", "gil_wait", "kbroker_gil_wait_seconds",
           "How long handlers waited for the GIL.", "s"),
    _plain("counter", "scheduler_runs", "kbroker_scheduler_runs_total",
           "Runs of background tasks.", "", ("task",)),
    _plain("counter", "scheduler_failures", "kbroker_scheduler_failures_total",
           "Runs of background tasks that failed.", "", ("task",)),
    _plain("counter", "scheduler_slow_steps", "kbroker_scheduler_slow_steps_total",
           "Steps of background tasks that took more than a millisecond.", "", ("task",)),
    _plain("gauge", "scheduler_longest_step", "kbroker_scheduler_longest_step_seconds",
           "The longest step of a background task.", "s", ("task",)),
    _plain("gauge", "live_objects", "kbroker_live_objects",
           "Objects of the compiled core: what connections cause goes with them.", "objects",
           ("kind",)),
    _plain("counter", "broken_invariants", "kbroker_broken_invariants_total",
           "Broken invariants of the compiled core, by the part that each has ended; one of a count"
           " ends nothing, the count is corrected. Standard error names them.", "", ("ended",)),
    _plain("counter", "step_failures", "kbroker_step_failures_total",
           "Steps of the broker's own work that raised; the log has the cause of each.", "",
           ("part",)),
    _plain("gauge", "threads_dead", "kbroker_threads_dead",
           "Threads of the broker that are lost: it must be restarted.", "threads"),
    _plain("gauge", "tasks_failing", "kbroker_tasks_failing",
           "Work that is to be done once, has failed and is tried again every second.", "tasks"),
    _plain("gauge", "build_info", "kbroker_build_info", "Always 1.", "",
           ("version", "python", "kafka")),
)  # fmt: skip

# Headings of the documentation, in its order.
THEMES: Final = (
    ("Traffic", _TRAFFIC),
    ("Network threads and request handlers", _NETWORK),
    ("Quotas of clients", _QUOTAS),
    ("Requests", _REQUESTS),
    ("Replicas and the controller", _REPLICAS),
    ("Topics and logs", _LOGS),
    ("Transactions", _TRANSACTIONS),
    ("Consumer groups", _GROUPS),
    ("Share groups", _SHARE_GROUPS),
    ("Resources", _RESOURCES),
    ("The runtime", _RUNTIME),
)
CATALOGUE: Final[tuple[Metric, ...]] = tuple(metric for _, theme in THEMES for metric in theme)
BY_KEY: Final[dict[str, Metric]] = {metric.key: metric for metric in CATALOGUE}


def names(dialects: Iterable[str] = DIALECTS) -> dict[str, Name]:
    """Every exposed name of these dialects, without the `_count`, `_sum` and `_bucket` of times."""
    return {
        name.text: name
        for metric in CATALOGUE
        for dialect in dialects
        if (name := metric.names.get(dialect)) is not None
    }
