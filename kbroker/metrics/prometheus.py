"""Prometheus' own files: what to scrape how often, and the alert rules, as YAML.

The scrape file has the form that users know from the monitoring guide: one job for network and
request figures every 15 s and one for resources every 30 s, each with `name` parameters that pick
metrics by the end of their canonical name. The names follow from the alert rules and the dashboard,
so a job brings what they ask for. The plain form is one job that takes everything.

YAML is written by hand, with JSON for every string, which is YAML too; no library is needed for
that, and tests read it back with promtool. Pure functions, any thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kbroker.metrics.alerts import JOB, Disk, alert_groups
from kbroker.metrics.catalogue import CATALOGUE

RESOURCES_JOB: Final = "kafka_jvm"  # the guide's name; there is no JVM, but boards filter by it
NETWORK_INTERVAL: Final = "15s"
RESOURCES_INTERVAL: Final = "30s"

# By the end of the canonical name. The first three are the guide's own.
NETWORK_NAMES: Final = (
    "BytesInPerSec",
    "BytesOutPerSec",
    "UnderReplicatedPartitions",
    "MessagesInPerSec",
    "NetworkProcessorAvgIdlePercent",
    "RequestHandlerAvgIdlePercent",
    "RequestQueueSize",
    "RequestsPerSec",
    "ErrorsPerSec",
    "TotalTimeMs",
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
    "LogFlushRateAndTimeMs",
    "ReplicaFetcherBytesPerSec",
    "ReplicationBytesOutPerSec",
    "kbroker_replica_catch_up_seconds",
    "MaxLag",
    "IsrShrinksPerSec",
    "IsrExpandsPerSec",
    "kbroker_leader_elections_total",
    "kbroker_controller_offices_given_up_total",
    "UnderMinIsrPartitionCount",
    "PartitionCount",
    "LeaderCount",
    "ActiveControllerCount",
    "OfflinePartitionsCount",
    "OfflineLogDirectoryCount",
    "UncleanLeaderElectionsPerSec",
    "connection_count",
    "kbroker_channel_muted_wait_seconds",
    "kbroker_last_stable_age_seconds",
    "kbroker_last_stable_lag_records",
    "PartitionsWithLateTransactionsCount",
    "kbroker_transactions_hanging_aborted_total",
    "kbroker_transactional_ids",
    "kbroker_transactions_committed_total",
    "kbroker_transactions_aborted_total",
    "kbroker_transactions_timed_out_total",
    "kbroker_transaction_markers_queued",
    "UnknownDestinationQueueSize",
    "kbroker_share_records_acquired_total",
    "kbroker_share_records_archived_total",
    "kbroker_share_dead_letters_total",
    "RecordAcknowledgementsPerSec",
    "AcquisitionLockTimeoutPerSec",
    "InFlightMessageCount",
    "ShareSessionsCount",
    "kbroker_share_sessions_ended_total",
)
RESOURCE_NAMES: Final = (
    "kbroker_disk_read_bytes_per_second",
    "kbroker_disk_write_bytes_per_second",
    "kbroker_log_dir_free_bytes",
    "kbroker_log_dir_total_bytes",
    "kbroker_log_dir_log_bytes",
    "kafka_log_LogCleanerManager_uncleanable_partitions_count",
    "kbroker_log_scrub_damaged_batches",
    "kbroker_log_unreadable_bytes",
    "process_resident_memory_bytes",
    "kbroker_memory_limit_bytes",
    "kbroker_memory_limit_share",
    "kbroker_step_failures_total",
    "kbroker_threads_dead",
    "kbroker_tls_certificate_not_after_seconds",
    "kbroker_tasks_failing",
    "process_cpu_seconds_total",
    "process_open_fds",
    "kbroker_gc_collections_total",
    "kbroker_gc_pause_seconds",
    "kbroker_gil_wait_seconds",
    "kafka_consumergroup_lag_sum",
    "kafka_consumergroup_lag",
    "kafka_consumergroup_members",
    "NumGroupsStable",
    "NumGroupsEmpty",
    "NumGroupsPreparingRebalance",
    "NumGroupsCompletingRebalance",
)


def scrape_config(
    targets: Sequence[str], *, plain: bool = False, rules: str | None = None
) -> Iterator[str]:
    """Lines of prometheus.yml."""
    if rules is not None:
        yield "rule_files:"
        yield f"  - {json.dumps(rules)}"
    yield "scrape_configs:"
    if plain:
        yield from _job(JOB, NETWORK_INTERVAL, targets, ())
        return
    yield "  # Network and requests, often."
    yield from _job(JOB, NETWORK_INTERVAL, targets, NETWORK_NAMES)
    yield "  # Resources, half as often."
    yield from _job(RESOURCES_JOB, RESOURCES_INTERVAL, targets, RESOURCE_NAMES)


def _job(name: str, interval: str, targets: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    yield f"  - job_name: {json.dumps(name)}"
    yield f"    scrape_interval: {interval}"
    yield "    metrics_path: /metrics"
    if names:
        yield "    params:"
        yield "      name:"
        yield from (f"        - {json.dumps(each)}" for each in names)
    yield "    static_configs:"
    yield f"      - targets: [{', '.join(json.dumps(target) for target in targets)}]"


def alert_rules(disk: Disk = "ssd") -> Iterator[str]:
    """Lines of a rule file."""
    yield "groups:"
    for group in alert_groups(disk):
        yield f"  - name: {json.dumps(group.name)}"
        yield "    rules:"
        for alert in group.alerts:
            if alert.note:
                yield f"      # {alert.note}"
            yield f"      - alert: {json.dumps(alert.name)}"
            yield f"        expr: {json.dumps(alert.expr)}"
            yield f"        for: {alert.for_}"
            yield "        labels:"
            yield f"          severity: {alert.severity}"
            yield "        annotations:"
            yield f"          summary: {json.dumps(alert.summary)}"
            yield f"          description: {json.dumps(alert.description)}"


def filtered(names: Iterable[str]) -> frozenset[str]:
    """The canonical names that `?name=` with these endings lets through."""
    endings = tuple(names)
    return frozenset(m.canonical for m in CATALOGUE if m.canonical.endswith(endings))
