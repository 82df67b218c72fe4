"""The settings in which the brokers of a cluster should agree, as texts that can be compared.

Each of these is read by one broker for all: by the one that is the controller, leads a partition or
coordinates a group just now. Where brokers differ, what holds changes with the next election.
docs/cluster.md says of each what a difference does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.config.definition import BROKER_KEYS
from kbroker.config.key import InvalidValue, format_value, parse_value
from kbroker.config.topic import TopicConfig

if TYPE_CHECKING:
    from kbroker.config.broker import BrokerConfig

_RETENTION_MS: Final = "log.retention.ms"  # which log.retention.hours and .minutes say as well
# Of each new kind of group: by the coordinator that a group has at that moment.
_TIMES: Final = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
_OF_GROUPS: Final = tuple(
    f"group.{kind}.{name}"
    for kind in ("consumer", "share", "streams")
    for name in (
        *(f"{bound}{time}" for time in _TIMES for bound in ("", "min.", "max.")),
        "max.size",
    )
)
# Of share groups: by the leader of the partition.
_SHARE_BOUNDS: Final = (
    "delivery.count.limit",
    "record.lock.duration.ms",
    "partition.max.record.locks",
)
_OF_SHARE_PARTITIONS: Final = tuple(
    f"group.share.{bound}{name}" for name in _SHARE_BOUNDS for bound in ("", "min.", "max.")
)
AGREED: Final = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "replica.lag.time.max.ms",
    "default.replication.factor",
    "num.partitions",
    "auto.create.topics.enable",
    "delete.topic.enable",
    "auto.leader.rebalance.enable",
    "message.max.bytes",
    "log.cleanup.policy",
    _RETENTION_MS,
    "log.retention.bytes",
    "log.message.timestamp.type",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
    "offsets.retention.minutes",
    "offset.metadata.max.bytes",
    "group.min.session.timeout.ms",
    "group.max.session.timeout.ms",
    "group.max.size",
    "group.coordinator.rebalance.protocols",
    *_OF_GROUPS,
    "group.consumer.assignors",
    "group.consumer.migration.policy",
    "group.streams.initial.rebalance.delay.ms",
    "group.streams.num.standby.replicas",
    "group.streams.max.standby.replicas",
    *_OF_SHARE_PARTITIONS,
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.segment.bytes",
    "transaction.max.timeout.ms",
    "transactional.id.expiration.ms",
    "transaction.partition.verification.enable",
    "share.coordinator.state.topic.num.partitions",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.segment.bytes",
    "replica.selector.class",
    "authorizer.class.name",
    "super.users",
    "allow.everyone.if.no.acl.found",
)
# These are compared by fingerprints, which only a registration has.
SECRETS: Final = ("password.encoder.secret", "delegation.token.secret.key")
UNSET: Final = "unset"


def agreed_settings(config: BrokerConfig) -> dict[str, str]:
    """What this configuration says of each."""
    found = {name: format_value(BROKER_KEYS[name], config[name]) for name in AGREED}
    retention_ms = TopicConfig(config, {})["retention.ms"]
    found[_RETENTION_MS] = str(retention_ms)
    return {name: text or UNSET for name, text in found.items()}


def same_text(name: str, text: str) -> str:
    """The text of a value as `agreed_settings` writes it."""
    key = BROKER_KEYS[name]
    try:
        return format_value(key, parse_value(key, text)) or UNSET
    except InvalidValue:
        return text
