"""`kbroker config explain KEY`: what a key means, what it may hold, and where its value comes from.

Reads the same file, environment and overrides as `kbroker start` would and asks no broker, unless a
topic, broker or group of a running cluster is named. Works for broker keys and for topic keys; a
topic key shows the broker keys that it falls back to. Secrets stay hidden.
"""

from __future__ import annotations

import os
from typing import Any, Final

import click

from kbroker.cli import config_values
from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.output import output_option, say, write_json
from kbroker.config import BROKER_KEYS, TOPIC_KEYS, BrokerConfig, ConfigKey, ConfigSource
from kbroker.config.definition import REMOVED_KEYS, find_broker_key, nearest_name
from kbroker.config.describe import ConfigEntry, describe_broker_key, describe_topic_key
from kbroker.config.key import SAME, allowed_values, format_value
from kbroker.config.keys_topic import SYNONYMS
from kbroker.config.topic import TopicConfig, broker_value
from kbroker.errors import UsageError

HIDDEN: Final = "(hidden)"


@click.group("config")
def command() -> None:
    """Explain keys; show and change settings of topics, brokers, loggers and groups."""


command.add_command(config_values.get)
command.add_command(config_values.set_values)
command.add_command(config_values.unset)


@command.command("explain")
@click.argument("key")
@click.option("--config", "file", metavar="FILE", help="The server.properties file to read.")
@click.option("--override", "overrides", metavar="KEY=VALUE", multiple=True, help="As for start.")
@config_values.resource_options
@bootstrap_option
@output_option
def explain(
    key: str,
    file: str | None,
    overrides: tuple[str, ...],
    bootstrap: str,
    output: str,
    **named: tuple[str, ...],
) -> None:
    """Say what KEY means, what it may hold and where its value comes from.

    With -t, --broker, --logger or -g as it is in the running cluster, else as a broker that is
    started now would have it.
    """
    name = key.strip()
    if any(named.values()):
        if file is not None or overrides:
            raise UsageError("a running broker has its own file", "leave --config, --override out")
        _explain_running(name, bootstrap, output, named)
        return
    broker = BrokerConfig.load(file, os.environ, overrides)
    explanation = _explain_broker_key(broker, name) or _explain_topic_key(broker, name)
    if explanation is None:
        raise UsageError(*_unknown(name))
    if output == "json":
        write_json(explanation)
    else:
        _print(explanation)


def _explain_running(
    name: str, bootstrap: str, output: str, named: dict[str, tuple[str, ...]]
) -> None:
    kind, resources = config_values.chosen(named)
    explanations = []
    with connect(bootstrap) as client:
        for resource in resources:
            entries = client.configs(resource, [name], details=True)
            if not entries:
                raise UsageError(f"there is no {kind} key {name}", _unknown(name)[1])
            explanations.append({kind: resource.name, **config_values.explanation(entries[0])})
    if output == "json":
        write_json(explanations)
        return
    for number, each in enumerate(explanations):
        if number:
            click.echo()
        config_values.print_explanation(config_values.label(kind, each[kind]), each)


def _unknown(name: str) -> tuple[str, str]:
    if name in REMOVED_KEYS:
        return f"{name} is a key of older releases", REMOVED_KEYS[name]
    near = nearest_name(name, [*BROKER_KEYS, *TOPIC_KEYS])
    return (
        f"there is no key {name}",
        f"did you mean {near}?" if near else "see docs/configuration.md",
    )


def _explain_broker_key(broker: BrokerConfig, name: str) -> dict[str, Any] | None:
    key = find_broker_key(name)
    if key is None:
        return None
    entry = describe_broker_key(broker, name)
    explanation = _common(key, entry, "broker", broker.origin(name))
    explanation["dynamic"] = key.dynamic.value
    if key.kafka is not SAME:
        explanation["apache_kafka_default"] = None if key.own else key.kafka
    return explanation


def _explain_topic_key(broker: BrokerConfig, name: str) -> dict[str, Any] | None:
    key = TOPIC_KEYS.get(name)
    if key is None:
        return None
    fallback = broker_value(broker, name)
    origin = "default" if fallback is None else broker.origin(fallback.broker_key)
    if fallback is not None and origin != "default":
        origin = f"{fallback.broker_key} ({origin})"
    entry = describe_topic_key(TopicConfig(broker), name)
    explanation = _common(key, entry, "topic", origin)
    explanation["source"] = TopicConfig(broker).source(name).name
    explanation["dynamic"] = "per topic"
    explanation["broker_keys"] = [synonym.broker_key for synonym in SYNONYMS.get(name, ())]
    return explanation


def _common(key: ConfigKey, entry: ConfigEntry, kind: str, origin: str) -> dict[str, Any]:
    """The fields that both kinds of key have, in the order in which they are printed."""
    is_set = entry.source != ConfigSource.DEFAULT_CONFIG
    return {
        "key": entry.name,
        "kind": kind,
        "help": key.help,
        "value": HIDDEN if key.sensitive and is_set else entry.value,
        "origin": origin,
        "source": ConfigSource(entry.source).name,
        "default": key.default_words or format_value(key, key.default),
        "type": key.type.name,
        "allowed": allowed_values(key),
        "in_effect": key.supported,
        "synonyms": [
            {"name": name, "value": value, "source": ConfigSource(source).name}
            for name, value, source in entry.synonyms
        ],
    }


def _print(explanation: dict[str, Any]) -> None:
    say(explanation["key"])
    say(f"  {explanation['help']}")
    if not explanation["in_effect"]:
        say("  Known, without effect in this version.")
    kafka = explanation.get("apache_kafka_default", explanation["default"])
    default = _shown(explanation["default"])
    if kafka != explanation["default"]:
        default += f" (Apache Kafka: {_shown(kafka)})"
    rows = [
        ("value", f"{_shown(explanation['value'])}, from: {explanation['origin']}"),
        ("default", default),
        ("type", explanation["type"].lower()),
        ("allowed", explanation["allowed"]),
        ("change", explanation["dynamic"]),
    ]
    fallback = explanation.get("broker_keys") or [
        s["name"] for s in explanation["synonyms"] if s["name"] != explanation["key"]
    ]
    if fallback:
        rows.append(("fallback", ", ".join(dict.fromkeys(fallback))))
    for label, text in rows:
        say(f"  {label:<10}{text}")


def _shown(value: str | None) -> str:
    if value is None:
        return "unset"
    return value if value else "empty"
