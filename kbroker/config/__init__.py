"""Configuration: one table of keys, and everything that is read from it.

Place in the flow: a broker's start turns command line, environment and server.properties into a
`BrokerConfig`; every other package reads typed values from it by Kafka's names. Topics read theirs
through `TopicConfig`; DescribeConfigs answers come from `describe_broker` and `describe_topic`.

Everything here is immutable and may be read by any thread. The package imports nothing slow: it is
on the way from exec to the first acknowledged produce.
"""

from __future__ import annotations

from kbroker.config.broker import BrokerConfig
from kbroker.config.definition import BROKER_KEYS, TOPIC_KEYS
from kbroker.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_every_broker,
    describe_group,
    describe_topic,
)
from kbroker.config.key import ConfigKey, ConfigSource, ConfigType
from kbroker.config.listeners import Endpoint, Listener, ListenerSet, SecurityProtocol
from kbroker.config.topic import TopicConfig, edit_topic_list, validate_topic_overrides

__all__ = [
    "BROKER_KEYS",
    "TOPIC_KEYS",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigKey",
    "ConfigSource",
    "ConfigType",
    "Endpoint",
    "Listener",
    "ListenerSet",
    "SecurityProtocol",
    "TopicConfig",
    "describe_broker",
    "describe_client_metrics",
    "describe_every_broker",
    "describe_group",
    "describe_topic",
    "edit_topic_list",
    "validate_topic_overrides",
]
