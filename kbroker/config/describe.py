"""Configurations as DescribeConfigs answers them: every key with value, source and synonyms.

Consoles and infrastructure tools compare these answers key by key, so nothing is left out: a key
that has no effect here is listed with its value all the same. Secrets are null. Entries are in
alphabetical order, which makes answers comparable between runs.

Pure functions over immutable configurations; any thread may call them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kbroker.config.broker import BrokerConfig
from kbroker.config.definition import BROKER_KEYS, TOPIC_KEYS, find_broker_key
from kbroker.config.key import READ_ONLY, ConfigKey, ConfigSource, format_value
from kbroker.config.keys_topic import SYNONYMS
from kbroker.config.topic import TopicConfig
from kbroker.errors import InvariantError

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


def _families() -> dict[str, tuple[str, ...]]:
    """Broker keys that stand for each other, finest first, by each of their names."""
    families = [tuple(s.broker_key for s in group) for group in SYNONYMS.values() if len(group) > 1]
    families.append(("node.id", "broker.id"))
    return {name: family for family in families for name in family}


_FAMILIES: Final = _families()


def describe_broker(config: BrokerConfig) -> list[ConfigEntry]:
    """Every broker key that is not internal, and whatever else is set."""
    names = {name for name, key in BROKER_KEYS.items() if not key.internal}
    return [describe_broker_key(config, name) for name in sorted(names.union(config.set_names()))]


def describe_broker_key(config: BrokerConfig, name: str) -> ConfigEntry:
    """One broker key; `name` is in the table or is set."""
    key = find_broker_key(name)
    if key is None:
        raise InvariantError(f"{name} is no broker key")
    family = _FAMILIES.get(name, (name,))
    synonyms = _broker_synonyms(config, family)
    # The key's own name comes first; a finer key that is set shows in that key's own entry.
    while synonyms and synonyms[0][0] != name:
        synonyms.pop(0)
    source = synonyms[0][2] if synonyms else int(ConfigSource.DEFAULT_CONFIG)
    value = config[name] if name in BROKER_KEYS or name in config else None
    return _entry(key, name, value, source, key.dynamic is READ_ONLY, synonyms)


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
    family = tuple(synonym.broker_key for synonym in SYNONYMS.get(name, ()))
    synonyms += _broker_synonyms(config.broker, family)
    return _entry(key, name, config[name], int(config.source(name)), False, synonyms)


def _broker_synonyms(config: BrokerConfig, family: tuple[str, ...]) -> list[ConfigSynonym]:
    """All that is said about the keys of `family`, strongest source first."""
    synonyms: list[ConfigSynonym] = []
    for source in _LAYERS:
        for name in family:
            setting = config.setting(name, source)
            key = find_broker_key(name)
            if setting is not None and key is not None:
                text = None if key.sensitive else format_value(key, setting.value)
                synonyms.append((name, text, int(source)))
    for name in family:
        key = BROKER_KEYS.get(name)
        if key is not None and key.default is not None and not key.sensitive:
            text = format_value(key, key.default)
            synonyms.append((name, text, int(ConfigSource.DEFAULT_CONFIG)))
    return synonyms


def _entry(
    key: ConfigKey,
    name: str,
    value: object,
    source: int,
    read_only: bool,
    synonyms: list[ConfigSynonym],
) -> ConfigEntry:
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
