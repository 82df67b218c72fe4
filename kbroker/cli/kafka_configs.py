"""`kbroker kafka-configs`: settings and quotas, with the options and output of kafka-configs.sh.

This module reads the options; `kafka_configs_run.py` describes and alters.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kbroker.cli.kafka_tool import (
    FAILED,
    KafkaTool,
    connected,
    flag,
    given_of,
    in_order,
    option,
    refuse,
    text_of,
)
from kbroker.cli.numbers import INT_MAX, INT_MIN, number_of
from kbroker.cli.output import say
from kbroker.errors import KafkaError, UserError

TOPICS: Final = "topics"
CLIENTS: Final = "clients"
USERS: Final = "users"
BROKERS: Final = "brokers"
IPS: Final = "ips"
METRICS: Final = "client-metrics"
GROUPS: Final = "groups"
LOGGERS: Final = "broker-loggers"
_TYPES: Final = (TOPICS, CLIENTS, USERS, BROKERS, IPS, METRICS, GROUPS, LOGGERS)
# Options that name an entity by themselves, in the order in which the original looks for them.
_NAMING: Final[Mapping[str, str]] = {
    "topic": TOPICS,
    "client": CLIENTS,
    "user": USERS,
    "broker": BROKERS,
    "broker-logger": LOGGERS,
    "ip": IPS,
    "client-metrics": METRICS,
    "group": GROUPS,
}
_DEFAULTS: Final[Mapping[str, str]] = {
    "client-defaults": CLIENTS,
    "user-defaults": USERS,
    "broker-defaults": BROKERS,
    "ip-defaults": IPS,
}
_WITH_DEFAULTS: Final = (USERS, CLIENTS, BROKERS, IPS)
_OF_ALTER: Final = ("add-config", "add-config-file", "delete-config")
EVERY: Final = ""  # in place of a name: the defaults
# A comma or an equals sign outside of [brackets].
_OUTSIDE: Final = r"(?![^\[\]]*\])"
_KEY: Final = re.compile(r"[\w.$-]*", re.ASCII)
_TOPIC: Final = re.compile(r"[\w.-]+", re.ASCII)
_TOPIC_CHARS_MAX: Final = 249


class Refused(UserError):
    """What the original refuses without saying that a command failed: its message alone."""


class Asked(NamedTuple):
    """`types` are of one entity, or users and clients; `names` as many or fewer of them."""

    types: tuple[str, ...]
    names: tuple[str, ...]
    every: bool
    added: Mapping[str, str]
    deleted: tuple[str, ...]

    @property
    def name(self) -> str | None:
        return self.names[0] if self.names else None


class _ConfigsTool(KafkaTool):
    repeated_error = Refused

    def failed(self, error: KafkaError | UserError) -> int:
        """The original repeats the arguments here, which may have a password among them."""
        if not isinstance(error, Refused):
            say("Error while executing config command", err=True)
        say(text_of(error), err=True)
        return FAILED


def _run(**options: Any) -> None:
    from kbroker.cli import kafka_configs_run as run

    asked, bootstrap = _asked(options)
    with connected(bootstrap, options["command_config"]) as client:
        if options["describe"]:
            run.describe(client, asked)
        else:
            run.alter(client, asked)


def _asked(options: Mapping[str, Any]) -> tuple[Asked, str]:
    given = given_of(options)
    if ("describe" in given) == ("alter" in given):
        refuse("Command must include exactly one action: --describe, --alter")
    for name in _OF_ALTER:
        if "describe" in given and name in given:
            refuse(f'Option "[describe]" can\'t be used with option "[{name}]"')
    types, names = _entities(options, given)
    bootstrap = _bootstrap(options)
    _check_types(types)
    if given & {"entity-type", "entity-name", "entity-default"} and given & {*_NAMING, *_DEFAULTS}:
        refuse(
            "--entity-{type,name,default} should not be used in conjunction with specific entity"
            " flags"
        )
    _check_names(types, names)
    if "describe" in given:
        _check_describe(types, names, given)
        return Asked(types, names, options["all"], {}, ()), bootstrap
    _check_alter(types, names, given)
    added = _added(options)
    deleted = [each.strip() for each in (options["delete_config"] or "").split(",")]
    return Asked(types, names, False, added, tuple(each for each in deleted if each)), bootstrap


def _entities(
    options: Mapping[str, Any], given: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The types, and the names of as many entities or fewer."""
    named = [name for name in _NAMING if name in given]
    defaults = [name for name in _DEFAULTS if name in given]
    types = [
        *options["entity_type"],
        *(_NAMING[name] for name in named),
        *(_DEFAULTS[name] for name in defaults),
    ]
    several = list(options["entity_name"])
    names = [
        several.pop(0) if each == "entity_name" else EVERY
        for each in in_order("entity_name", "entity_default")
    ]
    names += [options[name.replace("-", "_")] for name in named]
    names += [EVERY for _ in defaults]
    twice = dict.fromkeys(each for each in types if types.count(each) > 1)
    if twice:
        refuse(f"Duplicate entity type(s) specified: {','.join(twice)}")
    return tuple(types), tuple(names)


def _bootstrap(options: Mapping[str, Any]) -> str:
    server, controller = options["bootstrap_server"], options["bootstrap_controller"]
    if server is not None and controller is not None:
        refuse("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    if server is None and controller is None:
        refuse("Either --bootstrap-server or --bootstrap-controller must be specified.")
    found: str = server if server is not None else controller
    return found


def _check_types(types: Sequence[str]) -> None:
    for each in types:
        if each not in _TYPES:
            refuse(
                f"Invalid entity type {each}, the entity type must be one of {', '.join(_TYPES)}"
                " with a --bootstrap-server or --bootstrap-controller argument"
            )
    if not types:
        refuse("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        refuse("Only 'users' and 'clients' entity types may be specified together")


def _check_names(types: Sequence[str], names: Sequence[str]) -> None:
    """Of the kinds of names that can be wrong before a broker is asked."""
    if not names:
        return
    kind, name = types[0], names[0]
    if kind in (BROKERS, LOGGERS) and name != EVERY and not _is_int(name):
        refuse(f"The entity name for {kind} must be a valid integer broker id, but it is: {name}")
    if kind in (BROKERS, LOGGERS, IPS) and len(names) > 1:
        refuse("Found multiple arguments for option entity-name, but you asked for only one")
    if kind == IPS and name != EVERY and not _is_host(name):
        refuse(f"The entity name for ips must be a valid IP or resolvable host, but it is: {name}")


def _is_int(text: str) -> bool:
    return number_of(text, INT_MIN, INT_MAX) is not None


def _is_host(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return False
    return True


def _check_describe(types: Sequence[str], names: Sequence[str], given: frozenset[str]) -> None:
    kind = types[0]
    if kind not in _WITH_DEFAULTS and "entity-default" in given:
        refuse(f"--entity-default must not be specified with --describe of {kind}")
    if kind == LOGGERS and not (names and names[0]):
        refuse(f"An entity name must be specified with --describe of {kind}")
    if kind == TOPICS and names:
        _check_topic(names[0])


def _check_topic(name: str) -> None:
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > _TOPIC_CHARS_MAX:
        why = f"the length of '{name}' is longer than the max allowed length {_TOPIC_CHARS_MAX}"
    elif not _TOPIC.fullmatch(name):
        why = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics,"
            " '.', '_' and '-'"
        )
    else:
        return
    refuse(f"Topic name is invalid: {why}")


def _check_alter(types: Sequence[str], names: Sequence[str], given: frozenset[str]) -> None:
    kind = types[0]
    if kind in _WITH_DEFAULTS:
        if not names:
            refuse(
                "An entity-name or default entity must be specified with --alter of"
                " users, clients, brokers or ips"
            )
        if len(names) != len(types):
            refuse("An entity name must be specified for every entity type")
    elif not (names and names[0]):
        refuse(f"An entity name must be specified with --alter of {kind}")
    if not given & {*_OF_ALTER}:
        refuse(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified"
            " with --alter"
        )
    if {"add-config", "add-config-file"} <= given:
        refuse("Only one of --add-config or --add-config-file must be specified")


def _added(options: Mapping[str, Any]) -> dict[str, str]:
    added: dict[str, str] = {}
    if options["add_config_file"] is not None:
        from kbroker.cli.command_config import settings_of_file

        added = settings_of_file(options["add_config_file"])
    if options["add_config"] is not None:
        text = options["add_config"]
        parts = re.split("," + _OUTSIDE, text)
        while len(parts) > 1 and not parts[-1]:  # as Java splits
            parts.pop()
        for part in parts:
            pair = re.split(r"\s*=\s*" + _OUTSIDE, part)
            if len(pair) != 2:
                refuse(
                    "requirement failed: Invalid entity config: all configs to be added must be in"
                    ' the format "key=val" or  "key=[val1,val2]" to group values which contain'
                    " commas."
                )
            added[pair[0].strip()] = re.sub(r"[\[\]]", "", pair[1]).strip()
    for key in added:
        if not _KEY.fullmatch(key):
            refuse(f"Invalid character found for config key: {key}")
    return added


command: Final = _ConfigsTool(
    "kafka-configs",
    callback=_run,
    help="Show and change settings and quotas, with the options of kafka-configs.sh.",
    params=[
        option("bootstrap-server", "HOST:PORT,...", "Brokers to ask first."),
        option("bootstrap-controller", "HOST:PORT,...", "The same as --bootstrap-server."),
        option("command-config", "FILE", "How to authenticate."),
        flag("describe", "Show what was set."),
        flag("alter", "Change it."),
        option(
            "add-config", "KEY=VALUE,...",
            "Set these; a value with commas is in brackets: k=[v1,v2].",
        ),
        option("add-config-file", "FILE", "Set those of a file of properties."),
        option("delete-config", "KEY,...", "Take these away."),
        flag("all", "Show defaults too."),
        option("entity-type", "TYPE", f"{', '.join(_TYPES)}.", multiple=True),
        option("entity-name", "NAME", "Of such a type.", multiple=True),
        flag("entity-default", "The defaults of such a type."),
        option("topic", "TOPIC", "A topic."),
        option("client", "CLIENT-ID", "A client id; with --user that of the user alone."),
        option("user", "USER", "A user."),
        option("broker", "ID", "A broker."),
        option("broker-logger", "ID", "The loggers of a broker."),
        option("ip", "ADDRESS", "An IP address."),
        option("client-metrics", "NAME", "A subscription to the metrics of clients."),
        option("group", "GROUP", "A group."),
        flag("client-defaults", "Every client id without its own."),
        flag("user-defaults", "Every user without its own."),
        flag("broker-defaults", "Every broker."),
        flag("ip-defaults", "Every IP address without its own."),
    ],
)  # fmt: skip
