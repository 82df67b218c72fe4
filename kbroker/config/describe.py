"""Configurations as DescribeConfigs answers them: every key with value, source and synonyms.

Consoles and infrastructure tools compare these answers key by key, so nothing is left out: a key
that has no effect here is listed with its value all the same. Secrets are null. Entries are in
alphabetical order, which makes answers comparable between runs.

Pure functions over immutable configurations; any thread may call them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kbroker.config.broker import BrokerConfig, Value
from kbroker.config.definition import BROKER_KEYS, READ_AT_START, TOPIC_KEYS, find_broker_key
from kbroker.config.key import (
    READ_ONLY,
    ConfigKey,
    ConfigSource,
    InvalidValue,
    format_value,
)
from kbroker.config.keys_resources import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    broker_key_of_group,
    parse_resource_value,
)
from kbroker.config.keys_topic import SYNONYMS
from kbroker.config.topic import TopicConfig

ConfigSynonym = tuple[str, str | None, int]

_LAYERS: Final = (
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
)


class ConfigEntry(NamedTuple):
    """One key of a DescribeConfigs answer; `source` and `type` are the protocol's numbers."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    is_default: bool
    type: int
    documentation: str
    synonyms: list[ConfigSynonym]


# Broker keys that stand for each other, finest first, by each of their names.
_FAMILIES: Final = {
    synonym.broker_key: tuple(each.broker_key for each in group)
    for group in SYNONYMS.values()
    for synonym in group
}
_TYPE_UNKNOWN: Final = 0
# By the protocol's numbers, which a broker's own layers have nothing to do with.
_SOURCE_CLIENT_METRICS: Final = 7
_SOURCE_GROUP: Final = 8
_OTHER_NAME: Final = {"node.id": "broker.id", "broker.id": "node.id"}


def describe_broker(config: BrokerConfig) -> list[ConfigEntry]:
    """Every broker key that is not internal, and whatever else is set."""
    names = {name for name, key in BROKER_KEYS.items() if not key.internal}
    return [describe_broker_key(config, name) for name in sorted(names.union(config.set_names()))]


def describe_broker_key(config: BrokerConfig, name: str) -> ConfigEntry:
    """One broker key; `name` is in the table or is set."""
    key = find_broker_key(name)
    if key is None:
        return _unknown(name, [each for each in _LAYERS if name in config.layer(each)])
    value = config[name] if name in BROKER_KEYS or name in config else None
    synonyms = _broker_synonyms(config, name)
    return _entry(key, name, value, synonyms, read_only=_read_only(key, name))


def _read_only(key: ConfigKey, name: str) -> bool:
    """Apache Kafka says so of every key of a single listener, too, and sets them all the same."""
    return key.dynamic is READ_ONLY or name in READ_AT_START or name != key.name


def describe_every_broker(config: BrokerConfig) -> list[ConfigEntry]:
    """What is set at run time for every broker, and nothing else."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = []
    for name, setting in sorted(config.layer(source).items()):
        key = find_broker_key(name)
        if key is None:
            entries.append(_unknown(name, [source]))
            continue
        text = None if key.sensitive else setting.text
        synonyms: list[ConfigSynonym] = [(name, text, int(source))]
        entry = _entry(key, name, setting.value, synonyms, read_only=_read_only(key, name))
        entries.append(entry._replace(value=text))
    return entries


def _unknown(name: str, sources: list[ConfigSource]) -> ConfigEntry:
    """A key without a row in the table, set at run time: as Apache Kafka, it may be a secret."""
    synonyms: list[ConfigSynonym] = [(name, None, int(source)) for source in sources]
    return ConfigEntry(
        name=name,
        value=None,
        source=int(sources[0]) if sources else int(ConfigSource.DEFAULT_CONFIG),
        read_only=True,
        sensitive=True,
        is_default=False,
        type=_TYPE_UNKNOWN,
        documentation="",
        synonyms=synonyms,
    )


def describe_topic(config: TopicConfig) -> list[ConfigEntry]:
    """Every topic key."""
    return [describe_topic_key(config, name) for name in sorted(TOPIC_KEYS)]


def describe_topic_key(config: TopicConfig, name: str) -> ConfigEntry:
    """One topic key."""
    key = TOPIC_KEYS[name]
    synonyms: list[ConfigSynonym] = []
    if name in config.overrides:
        own = None if key.sensitive else format_value(key, config[name])
        synonyms.append((name, own, int(ConfigSource.DYNAMIC_TOPIC_CONFIG)))
    if name in SYNONYMS:
        synonyms += _broker_synonyms(config.broker, SYNONYMS[name][0].broker_key)
    return _entry(key, name, config[name], synonyms)


def describe_group(config: BrokerConfig, own: Mapping[str, str]) -> list[ConfigEntry]:
    """Every key of a group: its own values, the others from the broker."""
    entries = []
    for name, key in sorted(GROUP_KEYS.items()):
        broker_key = broker_key_of_group(name)
        if broker_key is None:
            value = key.default
            default = format_value(key, key.default)
            synonyms: list[ConfigSynonym] = [(name, default, int(ConfigSource.DEFAULT_CONFIG))]
        else:
            value = config[broker_key]
            synonyms = _broker_synonyms(config, broker_key)
        if name in own:
            value = _own_value(key, own[name])
            synonyms = [(name, format_value(key, value), _SOURCE_GROUP), *synonyms]
        entries.append(_entry(key, name, value, synonyms))
    return entries


def describe_client_metrics(own: Mapping[str, str]) -> list[ConfigEntry]:
    """Every key of a subscription to client metrics: its own values, or the defaults."""
    entries = []
    for name, key in sorted(CLIENT_METRICS_KEYS.items()):
        value, synonyms = key.default, list[ConfigSynonym]()
        if name in own:
            value = _own_value(key, own[name])
            synonyms = [(name, format_value(key, value), _SOURCE_CLIENT_METRICS)]
        entries.append(_entry(key, name, value, synonyms))
    return entries


def _own_value(key: ConfigKey, text: str) -> object:
    """A stored value was allowed once; where it is not any more, it is returned as stored."""
    try:
        return parse_resource_value(key, text)
    except InvalidValue:
        return key.default


def _broker_synonyms(config: BrokerConfig, name: str) -> list[ConfigSynonym]:
    """What is said about broker key `name` and about the keys that stand for it.

    Strongest source first. What comes before the key's own name is left out, as Apache Kafka does
    it: a coarser key that is set alone (log.retention.hours for log.retention.ms) does not show.
    """
    family = _FAMILIES.get(name, (name,))
    governing = find_broker_key(name)
    if governing is not None and governing.name != name:
        family = (name, governing.name)  # one listener's, and the broker's
    synonyms: list[ConfigSynonym] = []
    for source in _LAYERS:
        for each in family:
            setting = _setting(config, each, source)
            key = find_broker_key(each)
            if setting is not None and key is not None:
                written = source is ConfigSource.STATIC_BROKER_CONFIG
                text = format_value(key, setting.value) if written else setting.text
                text = None if key.sensitive else text
                synonyms.append((each, text, int(source)))
    for each in family:
        key = BROKER_KEYS.get(each)
        if key is not None and key.default is not None and not key.sensitive:
            text = format_value(key, config.default_of(key))
            synonyms.append((each, text, int(ConfigSource.DEFAULT_CONFIG)))
    while synonyms and synonyms[0][0] != name:
        synonyms.pop(0)
    return synonyms


def _setting(config: BrokerConfig, name: str, source: ConfigSource) -> Value | None:
    """What a source says of a key; the node's id has two names, and either sets both."""
    setting = config.setting(name, source)
    if setting is None and name in _OTHER_NAME:
        setting = config.setting(_OTHER_NAME[name], source)
    return setting


def _entry(
    key: ConfigKey,
    name: str,
    value: object,
    synonyms: list[ConfigSynonym],
    *,
    read_only: bool = False,
) -> ConfigEntry:
    source = synonyms[0][2] if synonyms else int(ConfigSource.DEFAULT_CONFIG)
    return ConfigEntry(
        name=name,
        value=None if key.sensitive else format_value(key, value),
        source=source,
        read_only=read_only,
        sensitive=key.sensitive,
        is_default=source == ConfigSource.DEFAULT_CONFIG,
        type=int(key.type),
        documentation=key.help,
        synonyms=synonyms,
    )
