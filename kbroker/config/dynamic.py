"""Settings made at run time: which may be made, and what comes of them.

Place in the flow: the controller asks `check_*` before it stores what a client wants to set; a
broker puts what is stored over its own configuration with `with_overrides`, when it starts and
after every change. A change is judged by the configuration that would come of it, so values that
do not go together are refused like those that are wrong by themselves.

What is refused, and the words for a key that may not change while a broker runs, are those of
Apache Kafka 4.3. It differs in this: `listeners` and their protocols are read at the start alone.

Pure functions over immutable configurations; any thread. Nothing here is secret: a value of a
password is never in a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kbroker.config.broker import BrokerConfig
from kbroker.config.definition import (
    BROKER_KEYS,
    LISTENER_PREFIX,
    READ_AT_START,
    find_broker_key,
)
from kbroker.config.expression import is_expression
from kbroker.config.key import (
    LIST,
    PER_BROKER,
    READ_ONLY,
    ConfigKey,
    ConfigSource,
    InvalidValue,
    format_value,
)
from kbroker.config.keys_resources import CLIENT_METRICS_KEYS, GROUP_KEYS, parse_resource_value
from kbroker.config.topic import edit_list
from kbroker.errors import ConfigError, ErrorCode, KafkaError

EVERY_BROKER: Final = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
THIS_BROKER: Final = ConfigSource.DYNAMIC_BROKER_CONFIG
_ORIGIN: Final = "set at run time"

# Threads are added and taken away in steps: at most to double, at least to half as many.
THREAD_POOLS: Final = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "log.cleaner.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
# Of one listener each, after its prefix.
_STORES: Final = frozenset(
    f"ssl.{name}"
    for name in (
        *("keystore.type", "keystore.location", "keystore.password", "keystore.key"),
        *("keystore.certificate.chain", "key.password", "truststore.type"),
        *("truststore.location", "truststore.password", "truststore.certificates"),
    )
)
# Of a listener, of its mechanisms, or without a prefix.
_SASL: Final = (
    "sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol", "sasl.jaas.config"
)  # fmt: skip


def with_overrides(
    started: BrokerConfig, every_broker: Mapping[str, str], this_broker: Mapping[str, str]
) -> tuple[BrokerConfig, list[ConfigError]]:
    """The configuration that holds, and what of the settings was left out of it.

    `started` is what the broker was started with. What is stored may be of another version, so a
    value that this one does not allow is left out and never ends a start.
    """
    errors: list[ConfigError] = []
    config = started
    for source, values in ((EVERY_BROKER, every_broker), (THIS_BROKER, this_broker)):
        after, some = _layer(config, source, values)
        if any(map(_of_sasl, values)) and (trouble := sasl_trouble(after)) is not None:
            others = {name: text for name, text in values.items() if not _of_sasl(name)}
            after, some = _layer(config, source, others)
            some = [*some, trouble]
        config = after
        errors += some
    return config, errors


def _layer(
    config: BrokerConfig, source: ConfigSource, values: Mapping[str, str]
) -> tuple[BrokerConfig, list[ConfigError]]:
    """With the values that go together: each is allowed, but perhaps not beside the others.

    One that fits none of the others, such as one from before a bound was checked, is left out by
    itself. Where it is not enough to leave out one, none of them holds.
    """
    try:
        return config.with_layer(source, values, _ORIGIN)
    except ConfigError as error:
        for name in values:
            others = {each: text for each, text in values.items() if each != name}
            try:
                after, some = config.with_layer(source, others, _ORIGIN)
            except ConfigError:
                continue
            return after, [*some, error]
        return config, [error]


def sasl_trouble(config: BrokerConfig) -> ConfigError | None:
    """Why no client could log in at a listener, or this broker at no other."""
    protocols = map(config.listeners.protocol_of, config.listeners.names)
    if not any(each.startswith("SASL") for each in protocols):
        return None
    from kbroker.config.sasl_logins import check_sasl  # where there is SASL

    try:
        check_sasl(config)
    except ConfigError as error:
        return error
    return None


def _of_sasl(name: str) -> bool:
    return name.endswith(_SASL)


def check_broker(
    current: BrokerConfig, source: ConfigSource, wanted: Mapping[str, str]
) -> BrokerConfig:
    """The configuration if one layer of a broker's settings becomes `wanted`; KafkaError
    INVALID_REQUEST if it may not."""
    keys = {name: find_broker_key(name) for name in wanted}
    fixed = {name for name, key in keys.items() if key is not None and key.dynamic is READ_ONLY}
    _refuse_all("Cannot update these configs dynamically", fixed.union(READ_AT_START & set(wanted)))
    _refuse_all(
        "These security configs can be dynamically updated only per-listener using the listener"
        " prefix",
        [name for name in wanted if name in _STORES],
    )
    config, errors = _judged(current, source, wanted)
    if errors:
        raise KafkaError(ErrorCode.INVALID_REQUEST, errors[0].message)
    if source is EVERY_BROKER:
        of_one = [
            name
            for name, key in keys.items()
            if key is not None and (key.dynamic is PER_BROKER or _of_a_listeners_store(name))
        ]
        _refuse_all(
            "Cannot update these configs at default cluster level, broker id must be specified",
            of_one,
        )
    if config["max.connections"] < 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "max.connections=0 would refuse all clients")
    if config["max.connections.per.ip"] < 1 and not config.connections_per_ip_overrides:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "max.connections.per.ip=0 refuses all clients unless max.connections.per.ip.overrides"
            " allows some",
        )
    _check_threads(current, config)
    return config


def _judged(
    current: BrokerConfig, source: ConfigSource, wanted: Mapping[str, str]
) -> tuple[BrokerConfig, list[ConfigError]]:
    try:
        return current.with_layer(source, wanted, _ORIGIN)
    except ConfigError as error:
        return current, [error]


def _refuse_all(reason: str, names: Iterable[str]) -> None:
    listed = ", ".join(sorted(names))
    if listed:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}: [{listed}]")


def _of_a_listeners_store(name: str) -> bool:
    key = find_broker_key(name)
    return name.startswith(LISTENER_PREFIX) and key is not None and key.name in _STORES


def _check_threads(current: BrokerConfig, wanted: BrokerConfig) -> None:
    for name in THREAD_POOLS:
        before, after = current[name], wanted[name]
        if before == after or before <= 0:
            continue
        start = f"Dynamic thread count update validation failed for {name}={after}, value should"
        if after < before / 2:
            problem = f"{start} be at least half the current value {before}"
        elif after > before * 2:
            problem = f"{start} not be greater than double the current value {before}"
        else:
            continue
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def edit_broker_list(own: Mapping[str, str], name: str, parts: str, add: bool) -> str:
    """The value of a list with parts added or taken away; KafkaError INVALID_CONFIG if it is none.

    One that this resource does not set itself begins with the key's default, as in Apache Kafka,
    whatever the broker's file or the cluster's settings say.
    """
    key = find_broker_key(name)
    if key is None or key.type is not LIST:
        raise no_list(name, add)
    text = own[name] if name in own else format_value(key, key.default) or ""
    return edit_list(text, parts, add)


def no_list(name: str, add: bool) -> KafkaError:
    """Why parts cannot be added to a key, or taken away."""
    verb = "APPEND" if add else "SUBTRACT"
    return KafkaError(ErrorCode.INVALID_CONFIG, f"{verb} is for lists, and {name} is none")


CLIENT_METRICS_INTERVAL_MS: Final = (100, 3_600_000)
_CLIENT_LABELS: Final = frozenset(
    {
        *("client_instance_id", "client_id", "client_software_name", "client_software_version"),
        *("client_source_address", "client_source_port"),
    }
)
_GROUP_KINDS: Final = ("consumer", "share", "streams")
# The bounds that a broker sets for its groups: group's key -> (least, most).
_GROUP_BOUNDS: Final[Mapping[str, tuple[str | None, str | None]]] = {
    **{
        f"{kind}.{each}.ms": (f"group.{kind}.min.{each}.ms", f"group.{kind}.max.{each}.ms")
        for kind in _GROUP_KINDS
        for each in ("session.timeout", "heartbeat.interval", "assignment.interval")
    },
    "share.record.lock.duration.ms": (
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    "share.delivery.count.limit": (
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    "share.partition.max.record.locks": (
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
}


def check_group(config: BrokerConfig, wanted: Mapping[str, str]) -> None:
    """Whether a group may have these settings; KafkaError INVALID_CONFIG."""
    if not wanted:
        return
    values = _parsed(GROUP_KEYS, wanted, "group")
    for name, value in values.items():
        least, most = _GROUP_BOUNDS.get(name, (None, None))
        if least in BROKER_KEYS and value < config[least]:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={value} is less than {least}")
        if most in BROKER_KEYS and value > config[most]:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={value} is more than {most}")
    for kind in _GROUP_KINDS:
        _check_silence(config, values, kind)


def _check_silence(config: BrokerConfig, values: Mapping[str, Any], kind: str) -> None:
    """A member must have time for a heartbeat before it is taken for dead."""
    silence, pause = (
        values.get(name, config[f"group.{name}"])
        for name in (f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
    )
    if silence <= pause:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{kind}.session.timeout.ms={silence} is not longer than"
            f" {kind}.heartbeat.interval.ms={pause}",
        )


def check_client_metrics(wanted: Mapping[str, str]) -> None:
    """Whether a subscription may have these settings; KafkaError, INVALID_CONFIG mostly."""
    if not wanted:
        return
    unknown = sorted(set(wanted).difference(CLIENT_METRICS_KEYS))
    if unknown:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"client metrics have no setting {', '.join(unknown)}"
        )
    values = _parsed(CLIENT_METRICS_KEYS, wanted, "client metrics")
    interval = values.get("interval.ms")
    low, high = CLIENT_METRICS_INTERVAL_MS
    if isinstance(interval, int) and not low <= interval <= high:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"interval.ms={interval} is not between {low} and {high}"
        )
    patterns = values.get("match", ())
    for pattern in patterns if isinstance(patterns, tuple) else ():
        _check_pattern(pattern)


def _check_pattern(text: str) -> None:
    """name=expression, as in client_id=consumer-.*; it is stored, and not matched yet."""
    name, _, expression = text.partition("=")
    known = expression and "=" not in expression and name.strip() in _CLIENT_LABELS
    if not known or not is_expression(expression):
        message = f"{text!r} does not match clients: use name=pattern"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def _parsed(keys: Mapping[str, ConfigKey], wanted: Mapping[str, str], what: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in wanted.items():
        key = keys.get(name)
        if key is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"a {what} has no setting {name}")
        try:
            values[name] = parse_resource_value(key, text)
        except InvalidValue as error:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{name}={text!r} is not allowed: use {error.allowed}"
            ) from None
    return values
