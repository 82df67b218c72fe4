"""The configuration of one broker: typed values, each with where it came from.

`BrokerConfig.load` joins command line, environment, file and defaults (in that order of strength),
checks every value against its row of the table and the values against each other, and gathers
warnings for the settings that it ignores. The result is immutable: a change makes a new object
(`with_values`), which other threads pick up by one reference.

`config["num.io.threads"]` is the typed value of a key; an unknown name is a KeyError, since only
the program asks. A value that a person gave and that is not allowed is a ConfigError with key,
value, origin and allowed range on one line; secrets are never printed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.config.absent_features import check_absent, check_quorum, refusal
from kbroker.config.admin_listeners import (
    ADMIN,
    ADMIN_LISTENERS,
    AdminListener,
    parse_admin_listeners,
)
from kbroker.config.definition import (
    BROKER_KEYS,
    REMOVED_KEYS,
    RENAMED_KEYS,
    find_broker_key,
    nearest_name,
)
from kbroker.config.group_settings import (
    check_consumer_groups,
    check_share_members,
    check_streams_groups,
)
from kbroker.config.key import (
    ConfigKey,
    ConfigSource,
    InvalidValue,
    parse_value,
)
from kbroker.config.keys_network import parse_ip_overrides
from kbroker.config.listeners import ListenerSet, SecurityProtocol, parse_listeners
from kbroker.config.secret_files import file_of, is_secret, warning_of
from kbroker.config.share_settings import check_share_groups
from kbroker.config.sources import Setting, read_environment, read_file, read_overrides
from kbroker.errors import ConfigError, InvariantError
from kbroker.limits import PROCESSORS_MAX

if TYPE_CHECKING:
    from kbroker.config.listener_security import ListenerSecurity

# Set in a broker of a cluster, and only there.
_CLUSTER: Final = "zookeeper.connect"
# Two names of one thing: the first that is set gives both their value.
_NODE_ID_NAMES: Final = ("node.id", "broker.id")


class Value(NamedTuple):
    """A typed value with its text as given and its origin."""

    value: Any
    text: str
    origin: str


Layers = Mapping[ConfigSource, Mapping[str, Value]]


class BrokerConfig:
    """All settings of a broker. Immutable; any thread may read it."""

    __slots__ = ("_effective", "_layers", "admin_listeners", "listeners", "warnings")

    def __init__(self, layers: Layers, warnings: tuple[str, ...] = ()) -> None:
        self._layers: Final = layers
        self._effective: Final = _effective_values(layers)
        self.warnings: Final = warnings
        _check_together(self)
        self.listeners: Final = _parse_listener_keys(self)
        self.admin_listeners: Final[tuple[AdminListener, ...]] = parse_admin_listeners(
            self[ADMIN_LISTENERS]
        )
        _check_security(self)

    @classmethod
    def load(
        cls,
        file: str | None = None,
        environ: Mapping[str, str] | None = None,
        overrides: Iterable[str] = (),
        defaults: Mapping[str, Setting] = MappingProxyType({}),
    ) -> BrokerConfig:
        """The configuration a broker starts with. Reads `file` and nothing else; `defaults` are
        the settings of an image, which any other source replaces."""
        settings = dict(defaults)
        if file is not None:
            settings.update(read_file(file))
        secret_files = [file] if file is not None and any(map(is_secret, settings)) else []
        settings.update(read_environment(environ or {}))
        settings.update(read_overrides(overrides))
        values, warnings = _parse_settings(settings)
        named = (file_of(name, each.text) for name, each in values.items())
        secret_files += filter(None, named)
        if (warning := warning_of(secret_files)) is not None:
            warnings.append(warning)
        return cls({ConfigSource.STATIC_BROKER_CONFIG: values}, tuple(warnings))

    def with_values(
        self,
        values: Mapping[str, str],
        source: ConfigSource = ConfigSource.STATIC_BROKER_CONFIG,
        origin: str = "set at run time",
    ) -> BrokerConfig:
        """A copy in which `values` are set at `source`; an unknown key is a ConfigError."""
        parsed = dict(self._layers.get(source, {}))
        for name, text in values.items():
            key = find_broker_key(name)
            if key is None:
                raise ConfigError(f"unknown key {name}", _did_you_mean(name))
            parsed[name] = Value(_parse(key, name, Setting(text, origin)), text, origin)
        return BrokerConfig({**self._layers, source: parsed}, self.warnings)

    def with_warning(self, warning: str) -> BrokerConfig:
        """A copy with one more line for the log of the start."""
        return BrokerConfig(self._layers, (*self.warnings, warning))

    def with_layer(
        self, source: ConfigSource, values: Mapping[str, str], origin: str
    ) -> tuple[BrokerConfig, list[ConfigError]]:
        """A copy in which `source` says exactly this, and what of it could not be taken.

        A name without a row in the table is kept, as Apache Kafka keeps it: it has no effect. What
        asks for an absent feature (`absent_features.py`) is left out like a value that is none.
        """
        parsed: dict[str, Value] = {}
        errors: list[ConfigError] = []
        for name, text in values.items():
            key = find_broker_key(name)
            try:
                value = text if key is None else _parse(key, name, Setting(text, origin))
            except ConfigError as error:
                errors.append(error)
                continue
            # An earlier version may have taken it: by itself it costs none of the others.
            if (error_of := refusal(name, value, origin)) is not None:
                errors.append(error_of)
            else:
                parsed[name] = Value(value, text, origin)
        return BrokerConfig({**self._layers, source: parsed}, self.warnings), errors

    def __getitem__(self, name: str) -> Any:
        if name in self._effective:
            return self._effective[name]
        return self.default_of(BROKER_KEYS[name])

    def default_of(self, key: ConfigKey) -> Any:
        """The value of a key that is not set: some differ in a cluster."""
        if key.clustered is not None and self._effective.get(_CLUSTER) is not None:
            return key.clustered
        return key.default

    def __contains__(self, name: object) -> bool:
        return name in self._effective or name in BROKER_KEYS

    def __repr__(self) -> str:
        return f"<BrokerConfig node.id={self.node_id}, {len(self._effective)} keys set>"

    def source(self, name: str) -> ConfigSource:
        """The strongest source that sets `name` itself."""
        return next((s for s in _PRECEDENCE if name in self._layers.get(s, ())), _DEFAULT)

    def origin(self, name: str) -> str:
        """Where the value of `name` was written, in words."""
        setting = self.setting(name, self.source(name))
        return "default" if setting is None else setting.origin

    def setting(self, name: str, source: ConfigSource) -> Value | None:
        """What `source` says about `name`; None if nothing."""
        return self._layers.get(source, {}).get(name)

    def layer(self, source: ConfigSource) -> Mapping[str, Value]:
        """Everything that `source` says, by name."""
        return self._layers.get(source, {})

    def set_names(self) -> list[str]:
        """Names that some source sets, keys with a listener's prefix among them."""
        return sorted({name for layer in self._layers.values() for name in layer})

    @property
    def node_id(self) -> int:
        return int(self["node.id"])

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The data directories with `~` resolved, as absolute paths."""
        directories: tuple[str, ...] = self["log.dirs"] or self["log.dir"]
        return tuple(os.path.abspath(os.path.expanduser(path)) for path in directories)

    def security_of(self, listener: str) -> ListenerSecurity:
        """The security settings of a listener, by its name in capitals; ADMIN: of the admin port,
        if it speaks TLS."""
        from kbroker.config.listener_security import ListenerSecurity

        if listener == ADMIN and self.has_https:
            return ListenerSecurity(self, ADMIN, SecurityProtocol.SSL, ADMIN_LISTENERS)
        protocol = SecurityProtocol(self.listeners.protocol_of(listener))
        return ListenerSecurity(self, listener, protocol)

    @property
    def has_https(self) -> bool:
        """Whether the admin port speaks TLS somewhere."""
        return any(each.tls for each in self.admin_listeners)

    @property
    def with_tls(self) -> list[str]:
        """The listeners that speak TLS, by name; ADMIN: the admin port does."""
        listeners = self.listeners
        found = [each for each in listeners.names if listeners.protocol_of(each).endswith("SSL")]
        return [*found, ADMIN] if self.has_https else found

    @property
    def connections_per_ip_overrides(self) -> dict[str, int]:
        """max.connections.per.ip.overrides by host."""
        return parse_ip_overrides(self["max.connections.per.ip.overrides"])


_DEFAULT: Final = ConfigSource.DEFAULT_CONFIG
# Strongest first, without the defaults.
_PRECEDENCE: Final = (
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
)


def _effective_values(layers: Layers) -> dict[str, Any]:
    unknown = set(layers) - set(_PRECEDENCE)
    if unknown:
        raise InvariantError(f"a broker has no settings from {unknown}")
    effective: dict[str, Any] = {}
    for source in reversed(_PRECEDENCE):
        for name, value in layers.get(source, {}).items():
            effective[name] = value.value
    ids = {effective[name] for name in _NODE_ID_NAMES if effective.get(name, -1) != -1}
    if len(ids) > 1:
        raise ConfigError(
            f"node.id={effective['node.id']} and broker.id={effective['broker.id']} differ",
            "set only node.id",
        )
    node_id = ids.pop() if ids else BROKER_KEYS["node.id"].default
    return {**effective, **dict.fromkeys(_NODE_ID_NAMES, node_id)}


def _parse_settings(settings: Mapping[str, Setting]) -> tuple[dict[str, Value], list[str]]:
    values: dict[str, Value] = {}
    unsupported: list[str] = []
    warnings: list[str] = []
    for written, setting in settings.items():
        name = RENAMED_KEYS.get(written, written)
        if name != written:
            if name in settings:
                warnings.append(f"{written} is the old name of {name}, which is set, too")
                continue
            warnings.append(f"{written} is the old name of {name}")
        key = find_broker_key(name)
        if name in REMOVED_KEYS:
            unsupported.append(f"{name} ({REMOVED_KEYS[name]})")
        elif key is None:
            warnings.append(f"unknown key {name} ({setting.origin}) {_did_you_mean(name)}".rstrip())
        elif key.default is None and not setting.text.strip() and name != "log.dirs":
            continue  # templates leave optional keys empty: unset
        else:
            values[name] = Value(_parse(key, name, setting), setting.text, setting.origin)
            if not key.supported:
                unsupported.append(name)
    if unsupported:
        warnings.append(f"known keys without effect in this version: {', '.join(unsupported)}")
    return values, warnings


def _parse(key: ConfigKey, name: str, setting: Setting) -> Any:
    try:
        value = parse_value(key, setting.text)
    except InvalidValue as error:
        text = "(hidden)" if key.sensitive else repr(setting.text)
        raise ConfigError(
            f"{name}={text} ({setting.origin}) is not allowed", f"use {error.allowed}"
        ) from None
    if name in ("log.dirs", "log.dir") and not value:
        raise ConfigError(f"{name} ({setting.origin}) is empty", "name a directory")
    return value


def _did_you_mean(name: str) -> str:
    near = nearest_name(name, BROKER_KEYS)
    return f"did you mean {near}?" if near else ""


def _check_together(config: BrokerConfig) -> None:
    """Values that are each allowed but do not go together."""
    queued, largest = config["queued.max.request.bytes"], config["socket.request.max.bytes"]
    if 0 < queued < largest:
        raise ConfigError(
            f"queued.max.request.bytes={queued} would never admit a request of"
            f" socket.request.max.bytes={largest}",
            "use -1 or at least as much",
        )
    for name, most in (("num.network.threads", PROCESSORS_MAX), ("num.io.threads", 1_000)):
        if config[name] > most:
            raise ConfigError(f"{name}={config[name]} is more than there can be", f"use {most}")
    _check_retention(config)
    wait, lag = config["replica.fetch.wait.max.ms"], config["replica.lag.time.max.ms"]
    if wait > lag:
        raise ConfigError(
            f"replica.fetch.wait.max.ms={wait} is longer than replica.lag.time.max.ms={lag}",
            "use less",
        )
    check_consumer_groups(config)
    check_share_members(config)
    check_streams_groups(config)
    check_share_groups(config)
    check_absent(config)
    check_quorum(config)


def _check_retention(config: BrokerConfig) -> None:
    """The finest of the three keys that is set is what counts."""
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if config[name] == 0:
            raise ConfigError(f"{name}=0 would keep nothing", "use -1 or at least 1")
        if config[name] is not None:
            return


def _check_security(config: BrokerConfig) -> None:
    secured = [
        name for name in config.listeners.names if config.listeners.protocol_of(name) != "PLAINTEXT"
    ]
    if config.has_https:
        if ADMIN in config.listeners.names:
            raise ConfigError(
                f"listeners: {ADMIN} is the name of {ADMIN_LISTENERS} with https", "use another"
            )
        secured.append(ADMIN)
    if secured:  # else nothing more is imported
        from kbroker.config.listener_security import check_listener_security

        for name in secured:
            check_listener_security(config.security_of(name))


def _parse_listener_keys(config: BrokerConfig) -> ListenerSet:
    return parse_listeners(
        listeners=config["listeners"],
        advertised=config["advertised.listeners"],
        protocol_map=config["listener.security.protocol.map"],
        inter_broker_name=config["inter.broker.listener.name"],
        inter_broker_protocol=config["security.inter.broker.protocol"],
        controller_names=config["controller.listener.names"] or (),
    )
