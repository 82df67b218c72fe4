"""A Grafana dashboard as data: rows of panels over canonical and Strimzi names.

`kbroker generate grafana-dashboard` prints it as JSON to import. Every expression is held against a
running broker's scrape by a test. Variables: the Prometheus data source and the instance.

Data and pure functions; any thread.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

SCHEMA_VERSION: Final = 39
_WIDTH: Final = 24  # of Grafana's grid
_HEIGHT: Final = 8


class Query(NamedTuple):
    expr: str
    legend: str = "{{instance}}"


class Panel(NamedTuple):
    """A time series; `unit` is Grafana's word for it."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    description: str = ""


class Row(NamedTuple):
    title: str
    panels: tuple[Panel, ...]


def _of(name: str, labels: str = "") -> str:
    """A series of the chosen instances."""
    separator = "," if labels else ""
    return f'{name}{{instance=~"$instance"{separator}{labels}}}'


def _rate(name: str, labels: str = "") -> str:
    return f"rate({_of(name, labels)}[$__rate_interval])"


def _by_topic(name: str) -> Query:
    """Without the series of all topics together, which has no label."""
    rate = _rate(name, 'topic!=""')
    return Query(f"sum by (topic) ({rate})", "{{topic}}")


def _p99(part: str, request: str) -> Query:
    selector = f'request="{request}",quantile="0.99"'
    return Query(_of(f"kafka_network_RequestMetrics_{part}", selector), f"{part} {{{{instance}}}}")


def _quantile(of: float, histogram: str, by: str = "") -> Query:
    labels = f"le, instance{', ' + by if by else ''}"
    inner = f"sum by ({labels}) ({_rate(histogram + '_bucket')})"
    legend = "{{instance}}" + (f" {{{{{by}}}}}" if by else "")
    return Query(f"histogram_quantile({of}, {inner})", legend)


_PARTS: Final = (
    "TotalTimeMs",
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
)

ROWS: Final = (
    Row("Health", (
        Panel("Under-replicated partitions", "none", (
            Query(_of("kafka_server_ReplicaManager_UnderReplicatedPartitions")),)),
        Panel("Partitions and leaders", "none", (
            Query(_of("kafka_server_replicamanager_partitioncount"), "partitions {{instance}}"),
            Query(_of("kafka_server_replicamanager_leadercount"), "leaders {{instance}}"))),
        Panel("Offline and under min ISR", "none", (
            Query(_of("kafka_controller_KafkaController_OfflinePartitionsCount"), "offline"),
            Query(_of("kafka_server_ReplicaManager_UnderMinIsrPartitionCount"), "under min ISR"))),
    )),
    Row("Replication", (
        Panel("Between brokers", "Bps", (
            Query(_of("kafka_server_ReplicaManager_ReplicaFetcherBytesPerSec"),
                  "from leaders {{instance}}"),
            Query(_of("kafka_server_BrokerTopicMetrics_ReplicationBytesOutPerSec"),
                  "to followers {{instance}}"))),
        Panel("Until replicas have caught up", "s", (
            Query(_of("kbroker_replica_catch_up_seconds")),),
            "What they lack over the rate at which it comes; infinite where nothing comes."),
        Panel("In-sync sets and leaders", "none", (
            Query(_of("kafka_server_ReplicaManager_IsrShrinksPerSec"), "shrinks {{instance}}"),
            Query(_of("kafka_server_ReplicaManager_IsrExpandsPerSec"), "expands {{instance}}"),
            Query(_rate("kbroker_leader_elections_total"), "elections {{instance}}"))),
    )),
    Row("Traffic", (
        Panel("Bytes in, by topic", "Bps", (
            _by_topic("kafka_server_brokertopicmetrics_bytesin_total"),)),
        Panel("Bytes out, by topic", "Bps", (
            _by_topic("kafka_server_brokertopicmetrics_bytesout_total"),)),
        Panel("Records in", "ops", (
            Query(_of("kafka_server_BrokerTopicMetrics_MessagesInPerSec", 'topic=""')),)),
    )),
    Row("Threads", (
        Panel("Network threads idle", "percentunit", (
            Query(_of("kafka_network_SocketServer_NetworkProcessorAvgIdlePercent")),),
            "Falls to 0 at saturation."),
        Panel("Request handlers idle", "percentunit", (
            Query(_of("kafka_server_KafkaRequestHandlerPool_RequestHandlerAvgIdlePercent")),),
            "Falls to 0 at saturation; waiting for the GIL counts as busy."),
        Panel("GIL wait, p99", "s", (_quantile(0.99, "kbroker_gil_wait_seconds"),)),
    )),
    Row("Requests", (
        Panel("Produce p99", "ms", tuple(_p99(part, "Produce") for part in _PARTS)),
        Panel("Fetch p99", "ms", tuple(_p99(part, "FetchConsumer") for part in _PARTS),
              "RemoteTimeMs is the wait for records at the end of a log."),
        Panel("Requests", "reqps", (
            Query("sum by (request) (" + _of("kafka_network_RequestMetrics_RequestsPerSec") + ")",
                  "{{request}}"),)),
        Panel("Muted with bytes waiting, p99", "s", (
            _quantile(0.99, "kbroker_channel_muted_wait_seconds", "listener"),),
            "What a request waits before it is read; TotalTimeMs cannot see it."),
        Panel("Queue", "none", (
            Query(_of("kafka_network_RequestChannel_RequestQueueSize")),)),
        Panel("Log flush, p99", "ms", (
            Query(_of("kafka_log_LogFlushStats_LogFlushRateAndTimeMs", 'quantile="0.99"')),)),
    )),
    Row("Consumer groups", (
        Panel("Lag, by group and topic", "none", (
            Query("sum by (consumergroup, topic) (" + _of("kafka_consumergroup_lag_sum") + ")",
                  "{{consumergroup}} {{topic}}"),),
            "Records between the committed offsets and the ends of the logs."),
        Panel("Members, by group", "none", (
            Query("sum by (consumergroup) (" + _of("kafka_consumergroup_members") + ")",
                  "{{consumergroup}}"),)),
        Panel("Groups, by state", "none", (
            Query(_of("kafka_coordinator_group_GroupMetadataManager_NumGroupsStable"), "stable"),
            Query(_of("kafka_coordinator_group_GroupMetadataManager_NumGroupsEmpty"), "empty"),
            Query(_of("kafka_coordinator_group_GroupMetadataManager_NumGroupsPreparingRebalance"),
                  "preparing"),
            Query(_of("kafka_coordinator_group_GroupMetadataManager_NumGroupsCompletingRebalance"),
                  "completing"))),
    )),
    Row("Transactions", (
        Panel("Transactional ids, by state", "none", (
            Query("sum by (state) (" + _of("kbroker_transactional_ids") + ")", "{{state}}"),)),
        Panel("Transactions a second", "none", (
            Query(_rate("kbroker_transactions_committed_total"), "committed {{instance}}"),
            Query(_rate("kbroker_transactions_aborted_total"), "aborted {{instance}}"),
            Query(_rate("kbroker_transactions_timed_out_total"), "timed out {{instance}}")),
            "By the coordinators, when the outcome is decided."),
        Panel("Markers that wait", "none", (
            Query(_of("kbroker_transaction_markers_queued"), "queued {{instance}}"),
            Query(_of("kafka_coordinator_transaction_TransactionMarkerChannelManager"
                      "_UnknownDestinationQueueSize"), "sent again {{instance}}")),
            "Partitions of transactions that are decided and not complete."),
        Panel("Last stable offset held for", "s", (
            Query(_of("kbroker_last_stable_age_seconds")),),
            "The oldest transaction that consumers of committed records wait for."),
        Panel("Records that are not committed", "none", (
            Query(_of("kbroker_last_stable_lag_records")),),
            "Of the partition with most: from the last stable offset to the high watermark."),
        Panel("Late and hanging", "none", (
            Query(_of("kafka_server_ReplicaManager_PartitionsWithLateTransactionsCount"),
                  "late {{instance}}"),
            Query(_rate("kbroker_transactions_hanging_aborted_total"), "aborted {{instance}}"))),
    )),
    Row("Share groups", (
        Panel("Records a second", "none", (
            Query(_rate("kbroker_share_records_acquired_total"), "acquired {{instance}}"),
            Query("sum by (ackType) ("
                  + _of("kafka_server_ShareGroupMetrics_RecordAcknowledgementsPerSec") + ")",
                  "{{ackType}}")),
            "By the leaders of their partitions."),
        Panel("Archived, by reason", "none", (
            Query("sum by (reason) (" + _rate("kbroker_share_records_archived_total") + ")",
                  "{{reason}}"),),
            "Lock ended, session ended and released: delivered as often as the group allows."),
        Panel("In flight, by group and topic", "none", (
            Query("sum by (group, topic) ("
                  + _of("kafka_server_SharePartitionMetrics_InFlightMessageCount") + ")",
                  "{{group}} {{topic}}"),),
            "Up to share.partition.max.record.locks for each partition."),
        Panel("Locks that ended", "none", (
            Query(_of("kafka_server_SharePartitionMetrics_AcquisitionLockTimeoutPerSec")),),
            "Records a second that were not acknowledged in time."),
        Panel("Sessions", "none", (
            Query(_of("kafka_server_ShareSessionCache_ShareSessionsCount")),
            Query(_rate("kbroker_share_sessions_ended_total"), "{{cause}} {{instance}}"))),
    )),
    Row("Resources", (
        Panel("Resident memory, share of the limit", "percentunit", (
            Query(_of("kbroker_memory_limit_share")),)),
        Panel("Processor time", "none", (Query(_rate("process_cpu_seconds_total"), "cores"),)),
        Panel("Disk", "Bps", (
            Query(_of("kbroker_disk_read_bytes_per_second"), "read {{device}}"),
            Query(_of("kbroker_disk_write_bytes_per_second"), "written {{device}}"))),
        Panel("Log directories", "bytes", (
            Query(_of("kbroker_log_dir_free_bytes"), "free {{directory}}"),
            Query(_of("kbroker_log_dir_log_bytes"), "logs {{directory}}"))),
        Panel("Collector pauses", "s", (
            Query(_rate("kbroker_gc_pause_seconds_sum"), "generation {{generation}}"),)),
        Panel("Connections", "none", (
            Query("sum by (listener) (" + _of("kafka_server_socket_server_metrics_connection_count")
                  + ")", "{{listener}}"),)),
    )),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """What Grafana imports."""
    return {
        "title": "kbroker",
        "uid": "kbroker-overview",
        "tags": ["kafka", "kbroker"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": _panels(),
    }


def _variables() -> list[dict[str, Any]]:
    instances = "label_values(kafka_server_ReplicaManager_UnderReplicatedPartitions, instance)"
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {
            "name": "instance",
            "type": "query",
            "label": "Broker",
            "datasource": _datasource(),
            "query": {"query": instances, "refId": "instances"},
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def _datasource() -> dict[str, str]:
    return {"type": "prometheus", "uid": "${datasource}"}


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": y}
        panels.append({"id": len(panels) + 1, "type": "row", "title": row.title,
                       "collapsed": False, "gridPos": place, "panels": []})  # fmt: skip
        y += 1
        for start in range(0, len(row.panels), 3):
            line = row.panels[start : start + 3]
            width = _WIDTH // len(line)
            for column, panel in enumerate(line):
                place = {"h": _HEIGHT, "w": width, "x": column * width, "y": y}
                panels.append(_time_series(panel, len(panels) + 1, place))
            y += _HEIGHT
    return panels


def _time_series(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _datasource(),
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "expr": query.expr,
                "legendFormat": query.legend,
                "datasource": _datasource(),
            }
            for index, query in enumerate(panel.queries)
        ],
    }
