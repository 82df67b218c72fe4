"""The alert rules of kbroker/metrics/alerts.py, as what they ask of the samples.

A rule's PromQL reads a scrape; here the same question is put to the topic's records. Its name and
its duration are alerts.py's own (read from there, so they cannot differ); the threshold is stated
here and a test reads it out of the PromQL. Rules about what samples do not tell (leaders, the
controller) stand in NOT_IN_SAMPLES with the reason: a test holds that every rule is in one of
the two.

`signal` names a frame of (broker_id, entity, at_ms, value) that alerts.py of this folder makes, one
row for each sample; several rules look at one signal. Data only.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from kbroker.metrics.alerts import (
    DISK_BYTES_PER_S_MAX,
    FORECAST_HOURS_MIN,
    Alert,
    Disk,
    alert_groups,
)

Unit = Literal["", "share", "ms", "s", "B/s", "h", "min"]


class Rule(NamedTuple):
    """Holds where value `than` threshold (all of the rule's duration: it fires)."""

    name: str
    signal: str
    than: Literal["<", ">"]
    threshold: float
    unit: Unit
    note: str = ""


RULES: Final = (
    Rule("HighUnderReplicatedPartitions", "under_replicated", ">", 0, ""),
    Rule("LowRequestHandlerIdle", "handler_idle", "<", 0.2, "share"),
    Rule("LowNetworkProcessorIdle", "network_idle", "<", 0.2, "share"),
    Rule("HighProduceLatencyP99", "produce_p99", ">", 200, "ms", "p99 of each minute"),
    Rule(
        "HighFetchLatencyP99", "fetch_p99", ">", 200, "ms",
        "p99 of each minute, without waiting for records",
    ),
    Rule(
        "HighDiskThroughput", "disk_rate", ">", DISK_BYTES_PER_S_MAX["ssd"], "B/s",
        "the limit of an SSD; --disk hdd: of a hard disk",
    ),
    Rule("HighMemoryUsage", "memory_share", ">", 0.7, "share"),
    Rule(
        "LogDirectoryFullSoon", "forecast", "<", FORECAST_HOURS_MIN, "h",
        "growth of the 24 h before each sample, scaled where there is less",
    ),
    Rule("KbrokerDown", "silence", ">", 3, "min", "no samples, where Prometheus has no scrape"),
    Rule("KbrokerUnderReplicatedPartitions", "under_replicated", ">", 0, ""),
    Rule("KbrokerUnderMinIsr", "under_min_isr", ">", 0, ""),
    Rule("KbrokerOfflinePartitions", "offline_partitions", ">", 0, "",
         "as the controller tells it"),
    Rule("KbrokerConsumerLagGrows", "group_lag", ">", 1000, "",
         "least of 15 min in which it grew; a group without a lag has no samples"),
    Rule("KbrokerGroupWithoutMembers", "group_unread", ">", 0, "", "by topic"),
    Rule("KbrokerTransactionHoldsConsumers", "stable_age", ">", 900, "s"),
    Rule("KbrokerHangingTransactions", "hanging_aborted", ">", 0, "", "in each sample"),
    Rule("KbrokerRequestHandlersBusy", "handler_idle", "<", 0.4, "share"),
    Rule("KbrokerDiskSpaceLow", "free_share", "<", 0.15, "share"),
)  # fmt: skip
LAG_GROWS_MS: Final = 15 * 60_000  # over so long, as that rule looks

NOT_IN_SAMPLES: Final[dict[str, str]] = {
    "KbrokerActiveControllers": "a cluster's figure; a broker's samples tell its own",
    "KbrokerControllerHangs": "samples do not count the offices that a controller gave up",
    "KbrokerOfflineLogDirectory": "a directory that is lost is missing from the samples",
    "KbrokerUncleanablePartitions": "samples do not count what cannot be cleaned",
    "KbrokerDamagedBatches": "samples do not count what has rotted",
    "KbrokerUnreadableBytes": "samples do not count what cannot be read",
    "KbrokerUncleanElections": "no rate of late in samples; Several brokers counts them",
    "KbrokerThreadDead": "samples do not name threads, and the one that takes them may be lost",
    "KbrokerStepFailures": "samples do not count what raised",
    "KbrokerShareRecordsGivenUp": "samples do not count records of share groups",
    "KbrokerShareDeadLettersLost": "samples do not count copies of records of share groups",
    "KbrokerCertificateExpires": "samples do not hold the dates of certificates",
    "KbrokerCertificateExpired": "samples do not hold the dates of certificates",
}

_FOR: Final = re.compile(r"(\d+)([smh])")
_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000}


def for_ms(text: str) -> int:
    """Prometheus' 5m in milliseconds."""
    match = _FOR.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration such as 5m")
    return int(match[1]) * _MS[match[2]]


def documented(disk: Disk = "ssd") -> dict[str, Alert]:
    """All rules of alerts.py by name, the documented ones first."""
    return {alert.name: alert for group in alert_groups(disk) for alert in group.alerts}


def rules(disk: Disk = "ssd") -> tuple[Rule, ...]:
    """RULES for a machine with this kind of disk."""
    return tuple(
        rule._replace(threshold=DISK_BYTES_PER_S_MAX[disk]) if rule.signal == "disk_rate" else rule
        for rule in RULES
    )
