"""`kbroker kafka-consumer-groups`: with the options and output of kafka-consumer-groups.sh.

This module reads the options and lists; `kafka_groups_describe.py` describes groups,
`kafka_groups_change.py` deletes them and their offsets, and resets offsets. As in the original, an
error after the options were read is on standard output, and the status is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kbroker.cli.kafka_tool import (
    TIMEOUT_MS,
    KafkaTool,
    connected,
    exception_of,
    fail,
    flag,
    given_of,
    in_hash_order,
    option,
    refuse,
)
from kbroker.cli.numbers import LONG_MAX, LONG_MIN, number_of
from kbroker.cli.output import say, say_to_programs
from kbroker.errors import KafkaError, UserError
from kbroker.peer.consumer_protocol import PROTOCOL_TYPE

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.groups import Listed

ACTIONS: Final = (
    "list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex",
)  # fmt: skip
SCENARIOS: Final = (
    "from-file", "to-datetime", "by-duration", "to-latest", "to-current", "to-earliest",
    "to-offset", "shift-by",
)  # fmt: skip
_VIEWS: Final = ("members", "offsets", "state")
# Options that are there with some actions alone.
_ONLY_WITH: Final[Mapping[str, tuple[str, ...]]] = {
    "members": ("describe",),
    "offsets": ("describe",),
    "verbose": ("describe",),
    "state": ("describe", "list"),
    "type": ("list",),
}
# In the order of the messages of the original.
_STATES: Final = (
    "Reconciling", "PreparingRebalance", "Assigning", "Stable", "Empty", "Dead",
    "CompletingRebalance",
)  # fmt: skip
_TYPES: Final = ("Consumer", "Classic")
_GROUP_WIDTH: Final = 15
_MARGIN: Final = 10


class Asked(NamedTuple):
    """What the options say; `given` are their names."""

    given: frozenset[str]
    options: Mapping[str, Any]
    groups: tuple[str, ...]
    topics: tuple[str, ...]

    def has(self, name: str) -> bool:
        return name in self.given

    def text(self, name: str) -> str:
        found: str = self.options[name.replace("-", "_")]
        return found

    def number(self, name: str) -> int:
        text = self.text(name)
        number = number_of(text, LONG_MIN, LONG_MAX)
        if number is None:
            fail(f"Cannot parse argument '{text}' of option {name}")
        return number


class _GroupsTool(KafkaTool):
    def failed(self, error: KafkaError | UserError) -> int:
        text = error.message if isinstance(error, UserError) else exception_of(error.code)
        say_error(f"Executing consumer group command failed due to {text}")
        return 0


def say_error(message: str) -> None:
    say_to_programs("")
    say_to_programs(f"Error: {message}")


def _run(**options: Any) -> None:
    asked = _asked(options)
    if asked.has("validate-regex"):
        _validate(asked.text("validate-regex"))
        return
    timeout_ms = asked.number("timeout") if asked.has("timeout") else TIMEOUT_MS
    with connected(
        options["bootstrap_server"], options["command_config"], timeout_ms=timeout_ms
    ) as client:
        _do(client, asked)


def _do(client: Client, asked: Asked) -> None:
    if asked.has("list"):
        _list(client, asked)
        return
    if asked.has("all-groups"):
        names = in_hash_order(each.group.group for each in listed(client))
        asked = asked._replace(groups=tuple(names))
    if asked.has("describe"):
        from kbroker.cli import kafka_groups_describe

        kafka_groups_describe.describe(client, asked)
        return
    from kbroker.cli import kafka_groups_change as change

    if asked.has("delete"):
        change.delete(client, asked)
    elif asked.has("delete-offsets"):
        change.delete_offsets(client, asked)
    else:
        change.reset(client, asked)


# --- options --------------------------------------------------------------------------------------


def _asked(options: Mapping[str, Any]) -> Asked:
    given = given_of(options)
    actions = [each for each in ACTIONS if each in given]
    for name, takers in _ONLY_WITH.items():
        if name in given and not given & {*takers}:
            refuse(f"Option(s) [{name}] are unavailable given other options on the command line")
    wrong = "Command must include exactly one action: " + ", ".join(f"--{e}" for e in ACTIONS)
    if not actions:
        refuse(wrong)
    if "validate-regex" not in given and "bootstrap-server" not in given:
        refuse('Missing required argument "[bootstrap-server]"')
    if "reset-offsets" in given:
        _warn_of_dry_run(given)
    for action in ("describe", "delete", "reset-offsets"):
        if action in given and not given & {"group", "all-groups"}:
            refuse(f"Option [{action}] takes one of these options: [group], [all-groups]")
    if "describe" in given:
        _check_describe(options, given)
    if "delete" in given and "topic" in given:
        refuse(
            "The consumer does not support topic-specific offset deletion from a consumer group."
        )
    if "delete-offsets" in given and not {"group", "topic"} <= given:
        refuse("Option [delete-offsets] takes the following options: [group], [topic]")
    _refuse_two(given)
    if len(actions) != 1:
        refuse(wrong)
    asked = Asked(given, options, tuple(dict.fromkeys(options["group"])), options["topic"])
    _check_scope(asked, options)
    return asked


def _warn_of_dry_run(given: frozenset[str]) -> None:
    if {"execute", "dry-run"} <= given:
        refuse("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not given & {"execute", "dry-run"}:
        say(
            "WARN: No action will be performed as the --execute option is missing. In version 5.0"
            " of Apache Kafka either --dry-run or --execute is required: add --dry-run to scripts.",
            err=True,
        )


def _check_describe(options: Mapping[str, Any], given: frozenset[str]) -> None:
    if len(given & {*_VIEWS}) > 1:
        views = ", ".join(f"[{each}]" for each in _VIEWS)
        refuse(f"Option [describe] takes at most one of these options: {views}")
    if options["state"]:
        refuse("Option [describe] does not take a value for [state]")


def _refuse_two(given: frozenset[str]) -> None:
    def refuse_both(name: str, others: Sequence[str]) -> None:
        for other in others:
            if other in given and name in given:
                refuse(f'Option "[{name}]" can\'t be used with option "[{other}]"')

    refuse_both("group", ("all-groups", "list"))
    refuse_both("topic", ("list", "describe"))
    for name in ("to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest",
                 "shift-by", "to-current", "from-file"):  # fmt: skip
        if "reset-offsets" in given:
            refuse_both(name, [each for each in _OTHERS if each != name])


# In the order in which the original names the other one of two scenarios.
_OTHERS: Final = (
    "to-datetime", "by-duration", "to-earliest", "to-latest", "shift-by", "to-current",
    "from-file", "to-offset",
)  # fmt: skip


def _check_scope(asked: Asked, options: Mapping[str, Any]) -> None:
    if asked.has("delete-offsets") and len(options["group"]) > 1:
        fail("Found multiple arguments for option group, but you asked for only one")
    if not asked.has("reset-offsets"):
        return
    if not asked.has("from-file") and not asked.given & {"topic", "all-topics"}:
        refuse("One of the reset scopes should be defined: --all-topics, --topic.")
    if not asked.given & {*SCENARIOS}:
        names = ", ".join(f"[{each}]" for each in SCENARIOS)
        refuse(f"Option '[reset-offsets]' requires one of the following scenarios: [{names}]")


def _validate(text: str) -> None:
    from kbroker.coordinator.group.expression_parser import ExpressionError, parse

    try:
        parse(text)
    except ExpressionError as error:
        say_to_programs(f"The regular expression `{text}` is invalid: {error}.")
    else:
        say_to_programs(f"The regular expression `{text}` is valid.")


# --- list -----------------------------------------------------------------------------------------


def _list(client: Client, asked: Asked) -> None:
    states = _chosen(asked, "state", _STATES)
    types = _chosen(asked, "type", _TYPES)
    found = [
        each
        for each in listed(client, states)
        if not types or each.group.group_type.capitalize() in types
    ]
    by_name = {each.group.group: each.group for each in found}
    width = max([_GROUP_WIDTH, *map(len, by_name)]) + _MARGIN
    columns = [name for name in ("type", "state") if asked.has(name)]
    if columns:
        say_to_programs(f"{'GROUP':<{width}} " + " ".join(f"{n.upper():<20}" for n in columns))
    for name in in_hash_order(by_name):
        group = by_name[name]
        cells = {"type": group.group_type.capitalize(), "state": group.state}
        line = " ".join([f"{name:<{width}}", *(f"{cells[each]:<20}" for each in columns)])
        say_to_programs(line if columns else name)


def listed(client: Client, states: Sequence[str] = ()) -> list[Listed]:
    """Groups of consumers, and those that were made by a commit alone."""
    from kbroker.peer.group_descriptions import CLASSIC, CONSUMER
    from kbroker.peer.groups import Groups

    return [
        each
        for each in Groups(client).list_groups(states, by_name=False)
        if (each.group.group_type or CLASSIC).lower() in (CLASSIC, CONSUMER)
        and each.group.protocol_type in ("", PROTOCOL_TYPE)
    ]


def _chosen(asked: Asked, name: str, known: Sequence[str]) -> tuple[str, ...]:
    """The values of an option that has some, or none, in whatever case they are written."""
    text = asked.options[name]
    if not text:
        return ()
    by_lower = {each.lower(): each for each in known}
    words = [each.strip().lower() for each in text.split(",")]
    if not all(word in by_lower for word in words):
        kind = "state" if name == "state" else "types"
        plural = "states" if name == "state" else "types"
        refuse(f"Invalid {kind} list '{text}'. Valid {plural} are: {', '.join(known)}")
    return tuple(by_lower[word] for word in words)


def _perhaps(name: str, metavar: str, words: str) -> click.Option:
    """An option with a value that may be left out."""
    return click.Option(
        [f"--{name}", name], metavar=metavar, help=words, is_flag=False, flag_value=""
    )


command: Final = _GroupsTool(
    "kafka-consumer-groups",
    callback=_run,
    help="List, describe, reset and delete groups, with the options of kafka-consumer-groups.sh.",
    params=[
        option("bootstrap-server", "HOST:PORT,...", "Brokers to ask first."),
        option("command-config", "FILE", "How to authenticate."),
        flag("list", "List groups."),
        flag("describe", "Show offsets and lag, members or the state of groups."),
        flag("delete", "Delete groups without members."),
        flag("reset-offsets", "Set committed offsets of groups without members."),
        flag("delete-offsets", "Forget what a group has committed."),
        option("validate-regex", "EXPRESSION", "Say whether a group may subscribe by it."),
        option("group", "GROUP", "A group.", multiple=True),
        flag("all-groups", "Every group."),
        flag("members", "Show members."),
        flag("offsets", "Show offsets and lag."),
        _perhaps("state", "[STATE,...]", "Show states; with --list of these alone."),
        _perhaps("type", "[TYPE,...]", "With --list: show types; of these alone."),
        flag("verbose", "Show epochs and assignments."),
        option("topic", "TOPIC[:0,1]", "A topic, or partitions.", multiple=True),
        flag("all-topics", "Every topic that a group has offsets of."),
        flag("dry-run", "Change nothing."),
        flag("execute", "Do it."),
        flag("export", "Print lines for --from-file."),
        option("from-file", "FILE", "To the offsets of lines TOPIC,PARTITION,OFFSET."),
        option("to-datetime", "MOMENT", "To the first record since 2026-11-21T14:00:00.000."),
        option("by-duration", "SPAN", "To the first record of the last P1DT2H."),
        option("to-offset", "N", "To this one."),
        option("shift-by", "N", "From the commits, may be negative."),
        flag("to-earliest", "To the first record."),
        flag("to-latest", "To the end."),
        flag("to-current", "To the committed offsets, else to the end."),
        option("timeout", "MS", "How long to wait for answers."),
    ],
)
