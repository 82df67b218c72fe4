"""The settings of a group of the consumer protocol: its own where it has some, else the broker's.

Groups are given settings as resources (type 32), before or after they exist; they are checked
against the bounds of that moment (`dynamic.check_group`). Where a broker's bounds have been
narrowed since, the value is brought within them when it is used, and stays as it is stored, as in
Apache Kafka 4.3 (KIP-1240). What is stored may be of another version: a text that is no value
counts as none.

Pure functions; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.config.key import InvalidValue, parse_value
from kbroker.config.keys_resources import GROUP_KEYS
from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.config.broker import BrokerConfig

CLASSIC: Final = "classic"
# Those of Apache Kafka by their names; classes of a user's own cannot be loaded here.
ASSIGNORS: Final = ("uniform", "range")

SESSION_TIMEOUT: Final = "session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "heartbeat.interval.ms"
_ASSIGNMENT_INTERVAL: Final = "assignment.interval.ms"
_BOUNDED: Final = (SESSION_TIMEOUT, HEARTBEAT_INTERVAL, _ASSIGNMENT_INTERVAL)


class ConsumerGroupSettings(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def consumer_group_settings(config: BrokerConfig, own: Mapping[str, str]) -> ConsumerGroupSettings:
    """`own`: what is stored for the group."""
    return ConsumerGroupSettings(*(_value(config, own, name) for name in _BOUNDED))


def _value(config: BrokerConfig, own: Mapping[str, str], name: str) -> int:
    value: int = config[f"group.consumer.{name}"]
    text = own.get(f"consumer.{name}")
    if text is None:
        return value
    try:
        value = parse_value(GROUP_KEYS[f"consumer.{name}"], text)
    except InvalidValue:
        return value
    least: int = config[f"group.consumer.min.{name}"]
    most: int = config[f"group.consumer.max.{name}"]
    return min(max(value, least), most)


def check_consumer_groups(config: BrokerConfig) -> None:
    """Whether the broker's settings for groups go together; ConfigError."""
    protocols = config["group.coordinator.rebalance.protocols"]
    if CLASSIC not in protocols:
        raise ConfigError(
            f"group.coordinator.rebalance.protocols={','.join(protocols)} leaves out classic",
            "add it: there is no coordinator without classic groups",
        )
    assignors = config["group.consumer.assignors"]
    unknown = [name for name in assignors if name not in ASSIGNORS]
    if unknown or not assignors:
        raise ConfigError(
            f"group.consumer.assignors={','.join(assignors)} names"
            f" {unknown[0] if unknown else 'none'}",
            f"use some of {', '.join(ASSIGNORS)}",
        )
    for name in _BOUNDED:
        key = f"group.consumer.{name}"
        value, least, most = config[key], f"group.consumer.min.{name}", f"group.consumer.max.{name}"
        if config[least] > config[most]:
            raise ConfigError(
                f"{least}={config[least]} is more than {most}={config[most]}", "lower the first"
            )
        if not config[least] <= value <= config[most]:
            raise ConfigError(
                f"{key}={value} is not between {least}={config[least]} and {most}={config[most]}",
                "use a value between them",
            )
    silence = config[f"group.consumer.{SESSION_TIMEOUT}"]
    pause = config[f"group.consumer.{HEARTBEAT_INTERVAL}"]
    if silence <= pause:
        raise ConfigError(
            f"group.consumer.{SESSION_TIMEOUT}={silence} is not longer than"
            f" group.consumer.{HEARTBEAT_INTERVAL}={pause}",
            "use more",
        )
