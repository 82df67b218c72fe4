"""Alert rules as a table: the documented names and thresholds first, then stricter ones of our own.

`kbroker generate alert-rules` writes them for Prometheus. Expressions use canonical names of the
catalogue only, and tests hold each one against a running broker's scrape. Thresholds are those of
the monitoring guide that users know the alerts from; where our figure has another unit, the note
says how they meet.

Data and pure functions; any thread.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Disk = Literal["ssd", "hdd"]

DISK_BYTES_PER_S_MAX: Final[dict[Disk, int]] = {"ssd": 500_000_000, "hdd": 200_000_000}
FORECAST_HOURS_MIN: Final = 72
CERTIFICATE_S_MIN: Final = 14 * 86_400
JOB: Final = "kafka_broker"


class Alert(NamedTuple):
    """One rule; `note` becomes a comment above it."""

    name: str
    expr: str
    for_: str
    severity: Literal["warning", "critical"]
    summary: str
    description: str
    note: str = ""


class AlertGroup(NamedTuple):
    name: str
    alerts: tuple[Alert, ...]


_UNDER_REPLICATED: Final = "kafka_server_ReplicaManager_UnderReplicatedPartitions"
_HANDLER_IDLE: Final = "kafka_server_KafkaRequestHandlerPool_RequestHandlerAvgIdlePercent"
_NETWORK_IDLE: Final = "kafka_network_SocketServer_NetworkProcessorAvgIdlePercent"
_P99: Final = 'quantile="0.99"'
# The time of a fetch without its wait for records that are not there yet.
_FETCH_PARTS: Final = ("RequestQueueTimeMs", "LocalTimeMs", "ResponseQueueTimeMs",
                       "ResponseSendTimeMs")  # fmt: skip
_GROWTH: Final = "delta(kbroker_log_dir_log_bytes[24h])"
# Of records that no member of their share group has accepted or rejected.
_GIVEN_UP: Final = (
    'kbroker_share_records_archived_total{reason=~"lock ended|session ended|released"}'
)
_NOT_COPIED: Final = 'kbroker_share_dead_letters_total{outcome=~"not written|deleted before"}'


def _fetch_p99() -> str:
    selector = f'{{request="FetchConsumer",{_P99}}}'
    return " + ".join(f"kafka_network_RequestMetrics_{part}{selector}" for part in _FETCH_PARTS)


_THREADS_AND_REQUESTS: Final = (
    Alert(
        "HighUnderReplicatedPartitions",
        f"{_UNDER_REPLICATED} > 0",
        "5m",
        "critical",
        "Broker {{ $labels.instance }} has under-replicated partitions",
        "For 5 minutes there have been partitions without all replicas in sync: {{ $value }}.",
    ),
    Alert(
        "LowRequestHandlerIdle",
        f"{_HANDLER_IDLE} < 0.2",
        "10m",
        "warning",
        "The request handlers of {{ $labels.instance }} are overloaded",
        "They were idle for {{ $value | humanizePercentage }} of the time.",
        "The guide writes < 20, in percent; the gauge is a fraction, 0 to 1.",
    ),
    Alert(
        "LowNetworkProcessorIdle",
        f"{_NETWORK_IDLE} < 0.2",
        "10m",
        "warning",
        "The network threads of {{ $labels.instance }} are overloaded",
        "They were idle for {{ $value | humanizePercentage }} of the time.",
        "20 percent in the guide, as a fraction.",
    ),
    Alert(
        "HighProduceLatencyP99",
        f'kafka_network_RequestMetrics_TotalTimeMs{{request="Produce",{_P99}}} > 200',
        "10m",
        "warning",
        "Produce requests on {{ $labels.instance }} are slow",
        "99 % of them take up to {{ $value }} ms.",
    ),
    Alert(
        "HighFetchLatencyP99",
        f"{_fetch_p99()} > 200",
        "10m",
        "warning",
        "Fetch requests on {{ $labels.instance }} are slow",
        "Apart from waiting for records, 99 % of them take up to {{ $value }} ms.",
        "Without RemoteTimeMs: a consumer at the end of the log waits there by its own wish.",
    ),
)
_MEMORY_AND_SPACE: Final = (
    Alert(
        "HighMemoryUsage",
        "kbroker_memory_limit_share > 0.7",
        "10m",
        "warning",
        "Broker {{ $labels.instance }} uses much of its memory",
        "Resident: {{ $value | humanizePercentage }} of the limit.",
        "The guide's limit for a heap; there is none here, so it is resident memory.",
    ),
    Alert(
        "LogDirectoryFullSoon",
        f"kbroker_log_dir_free_bytes / ({_GROWTH} / 24) * 0.8 < {FORECAST_HOURS_MIN}"
        f" and {_GROWTH} > 0",
        "30m",
        "critical",
        "{{ $labels.directory }} of {{ $labels.instance }} fills up",
        "At the growth of the last day it is full in {{ $value | humanize }} hours.",
        "Hours = free / (growth over 24 h / 24) x 0.8; below three days it is time for a disk.",
    ),
)


def _disk(disk: Disk) -> Alert:
    limit = DISK_BYTES_PER_S_MAX[disk]
    return Alert(
        "HighDiskThroughput",
        f"kbroker_disk_read_bytes_per_second + kbroker_disk_write_bytes_per_second > {limit}",
        "10m",
        "warning",
        "Disk {{ $labels.device }} of {{ $labels.instance }} is near its limit",
        "It moves {{ $value | humanize }}B/s.",
        f"The guide's limit for this kind of disk ({disk}): {limit // 10**6} MB/s."
        " Another kind: --disk ssd|hdd.",
    )


_STRICTER: Final = (
    Alert(
        "KbrokerDown",
        f'up{{job="{JOB}"}} == 0 or absent(up{{job="{JOB}"}})',
        "3m",
        "critical",
        "Broker {{ $labels.instance }} is not scraped",
        "Prometheus has had no answer for 3 minutes.",
    ),
    Alert(
        "KbrokerCertificateExpires",
        f"kbroker_tls_certificate_not_after_seconds - time() < {CERTIFICATE_S_MIN}",
        "1h",
        "warning",
        "The certificate of {{ $labels.listener }} of {{ $labels.instance }} expires",
        "In {{ $value | humanizeDuration }}. Replace its file: the broker sees it by itself.",
    ),
    Alert(
        "KbrokerCertificateExpired",
        "kbroker_tls_certificate_not_after_seconds - time() <= 0",
        "0m",
        "critical",
        "The certificate of {{ $labels.listener }} of {{ $labels.instance }} has expired",
        "Clients do not connect any more. Replace its file: the broker sees it by itself.",
    ),
    Alert(
        "KbrokerThreadDead",
        "kbroker_threads_dead > 0",
        "0m",
        "critical",
        "Broker {{ $labels.instance }} has lost {{ $value }} of its threads",
        "It cannot serve without them; /readyz names them. Restart it, and look into its log.",
    ),
    Alert(
        "KbrokerStepFailures",
        "increase(kbroker_step_failures_total[10m]) > 0",
        "0m",
        "warning",
        "Something raised in {{ $labels.part }} of {{ $labels.instance }}",
        "The log has the cause: a fault of the broker, or a machine short of memory.",
    ),
    Alert(
        "KbrokerUnderReplicatedPartitions",
        f"{_UNDER_REPLICATED} > 0",
        "1m",
        "warning",
        "Broker {{ $labels.instance }} has under-replicated partitions",
        "{{ $value }} partitions have not had all replicas in sync for a minute.",
    ),
    Alert(
        "KbrokerActiveControllers",
        "sum(kafka_controller_KafkaController_ActiveControllerCount) != 1",
        "1m",
        "critical",
        "The cluster has {{ $value }} controllers",
        "It has to be one.",
    ),
    Alert(
        "KbrokerShareRecordsGivenUp",
        f"increase({_GIVEN_UP}[10m]) > 0",
        "0m",
        "warning",
        "Share groups give up records at {{ $labels.instance }}: {{ $labels.reason }}",
        "{{ $value | humanize }} records in 10 minutes were delivered as often as their groups"
        " allow, and no member accepted or rejected them. The log names the groups.",
    ),
    Alert(
        "KbrokerShareDeadLettersLost",
        f"increase({_NOT_COPIED}[10m]) > 0",
        "0m",
        "warning",
        "Records have no copies in dead-letter topics at {{ $labels.instance }}",
        "{{ $value | humanize }} records in 10 minutes that share groups have given up: {{"
        " $labels.outcome }}. The log names the groups and the reasons.",
    ),
    Alert(
        "KbrokerControllerHangs",
        "increase(kbroker_controller_offices_given_up_total[10m]) > 0",
        "0m",
        "warning",
        "Broker {{ $labels.instance }} has given up the office of controller",
        "An event took it longer than controller.event.max.ms, or it could not read the metadata"
        " store. See whether a disk of it hangs, and what its log says.",
    ),
    Alert(
        "KbrokerOfflinePartitions",
        "kafka_controller_KafkaController_OfflinePartitionsCount > 0",
        "1m",
        "critical",
        "{{ $value }} partitions have no leader",
        "No client can write to them or read from them.",
    ),
    Alert(
        "KbrokerUnderMinIsr",
        "kafka_server_ReplicaManager_UnderMinIsrPartitionCount > 0",
        "1m",
        "critical",
        "{{ $value }} partitions on {{ $labels.instance }} refuse acks=all",
        "Fewer replicas are in sync than min.insync.replicas asks for.",
    ),
    Alert(
        "KbrokerOfflineLogDirectory",
        "kafka_log_LogManager_OfflineLogDirectoryCount > 0",
        "1m",
        "critical",
        "Broker {{ $labels.instance }} has lost {{ $value }} log directories",
        "Look into its log for the first error of the directory.",
    ),
    Alert(
        "KbrokerUncleanablePartitions",
        "kafka_log_LogCleanerManager_uncleanable_partitions_count > 0",
        "1m",
        "warning",
        "{{ $value }} compacted partitions on {{ $labels.instance }} are not cleaned any more",
        "They grow. The broker's log says why; kbroker dump-log --verify shows where.",
    ),
    Alert(
        "KbrokerDamagedBatches",
        "kbroker_log_scrub_damaged_batches > 0",
        "0m",
        "critical",
        "{{ $value }} batches on {{ $labels.instance }} have rotted on the disk",
        "The broker's log says where. Replace the replica's disk while another one is in sync.",
    ),
    Alert(
        "KbrokerUnreadableBytes",
        "kbroker_log_unreadable_bytes > 0",
        "0m",
        "critical",
        "{{ $value }} bytes of full segments on {{ $labels.instance }} cannot be read",
        "Records may be lost there. kbroker dump-log --verify shows where; replace the replica.",
    ),
    Alert(
        "KbrokerUncleanElections",
        "kafka_controller_ControllerStats_UncleanLeaderElectionsPerSec > 0.0001",
        "0m",
        "critical",
        "A leader was elected from outside the in-sync replicas",
        "Acknowledged records may be lost.",
        "A rate of the last minute never gets to 0 again: that of one election is below this after"
        " five minutes.",
    ),
    Alert(
        "KbrokerConsumerLagGrows",
        "min_over_time(kafka_consumergroup_lag_sum[15m]) > 1000"
        " and delta(kafka_consumergroup_lag_sum[15m]) > 0",
        "15m",
        "warning",
        "Group {{ $labels.consumergroup }} lags more and more on {{ $labels.topic }}",
        "Its lag has been more than 1,000 records for 15 minutes, and it grows:"
        " {{ $value | humanize }} now.",
    ),
    Alert(
        "KbrokerGroupWithoutMembers",
        "kafka_consumergroup_members == 0 and on (consumergroup, instance)"
        " sum by (consumergroup, instance) (kafka_consumergroup_lag_sum) > 0",
        "15m",
        "warning",
        "Group {{ $labels.consumergroup }} has records to read and no member",
        "No member has read for it for 15 minutes; its offsets are kept for"
        " offsets.retention.minutes.",
    ),
    Alert(
        "KbrokerTransactionHoldsConsumers",
        "kbroker_last_stable_age_seconds > 900",
        "1m",
        "warning",
        "A transaction holds consumers of committed records on {{ $labels.instance }}",
        "It has been open for {{ $value | humanizeDuration }}. The broker's log names the"
        " partition; kbroker explain TOPIC/PARTITION --isolation read_committed says whose it is.",
        "900 s is the default of transaction.max.timeout.ms.",
    ),
    Alert(
        "KbrokerHangingTransactions",
        "increase(kbroker_transactions_hanging_aborted_total[10m]) > 0",
        "0m",
        "warning",
        "A hanging transaction was aborted on {{ $labels.instance }}",
        "No coordinator had it: its producer's protocol was not kept. The broker's log names the"
        " partition and the producer id.",
    ),
    Alert(
        "KbrokerRequestHandlersBusy",
        f"{_HANDLER_IDLE} < 0.4",
        "10m",
        "warning",
        "The request handlers of {{ $labels.instance }} are busy",
        "They were idle for {{ $value | humanizePercentage }} of the time.",
    ),
    Alert(
        "KbrokerDiskSpaceLow",
        "kbroker_log_dir_free_bytes / kbroker_log_dir_total_bytes < 0.15",
        "5m",
        "critical",
        "{{ $labels.directory }} of {{ $labels.instance }} is nearly full",
        "{{ $value | humanizePercentage }} is free.",
    ),
)  # fmt: skip


def alert_groups(disk: Disk = "ssd") -> tuple[AlertGroup, ...]:
    documented = (*_THREADS_AND_REQUESTS, _disk(disk), *_MEMORY_AND_SPACE)
    return (
        AlertGroup("kbroker-documented", documented),
        AlertGroup("kbroker-stricter", _STRICTER),
    )
