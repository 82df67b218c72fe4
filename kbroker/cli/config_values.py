"""`kbroker config get|set|unset`: settings in a running cluster.

Of topics (`-t`), of brokers (`--broker 1`, or `--broker all` for the settings of every broker), of
a broker's loggers (`--logger 1`, where the keys are loggers and the values levels), of groups
(`-g`). `get` shows what was set, or every key, or some; `set` and `unset` change several resources
in one request each. One that is refused is named on standard error, the others are changed all the
same, and the status is 1. The commands hang below `kbroker config` (see `config.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.output import output_option, print_table, say, write_json
from kbroker.cli.topic import report_topics, split_config
from kbroker.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.peer.client import Client
    from kbroker.peer.config_messages import ConfigValue, Resource

Command = TypeVar("Command", bound=Callable[..., Any])

ALL_BROKERS: Final = "all"


class Kind(NamedTuple):
    """What has settings: Kafka's number, how it is named, and which sources are its own."""

    number: int
    option: str
    own: frozenset[int]


KINDS: Final = {
    "topic": Kind(2, "-t", frozenset({1})),
    "broker": Kind(4, "--broker", frozenset({2, 3, 4})),
    "logger": Kind(8, "--logger", frozenset({6})),
    "group": Kind(32, "-g", frozenset({8})),
}

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Let the broker check it, change nothing."
)


def resource_options(function: Command) -> Command:
    """Adds the options that name resources, which arrive as `topics`, `brokers` and so on."""
    for option in (
        click.option("-g", "--group", "groups", metavar="GROUP", multiple=True),
        click.option(
            "--logger", "loggers", metavar="ID", multiple=True, help="The loggers of this broker."
        ),
        click.option(
            "--broker",
            "brokers",
            metavar="ID|all",
            multiple=True,
            help="A broker, or what holds on all of them.",
        ),
        click.option("-t", "--topic", "topics", metavar="TOPIC", multiple=True, help="Repeatable."),
    ):
        function = option(function)
    return function


def chosen(named: dict[str, tuple[str, ...]]) -> tuple[str, list[Resource]]:
    """The kind of resource that was named, and which; of one kind at a time."""
    from kbroker.peer.config_messages import Resource

    kinds = [kind for kind in KINDS if named[f"{kind}s"]]
    if len(kinds) != 1:
        options = [KINDS[kind].option for kind in kinds or KINDS]
        what = "nothing is named" if not kinds else f"{' and '.join(options)} exclude each other"
        raise UsageError(what, f"give one of {', '.join(k.option for k in KINDS.values())}")
    kind = kinds[0]
    names = dict.fromkeys(named[f"{kind}s"])
    for name in names:
        number = name.isascii() and name.isdecimal() and len(name) < 10
        if kind in ("broker", "logger") and not number and (kind, name) != ("broker", ALL_BROKERS):
            raise UsageError(f"'{name}' is no broker", f"give its number to {KINDS[kind].option}")
    return kind, [
        Resource(KINDS[kind].number, "" if (kind, name) == ("broker", ALL_BROKERS) else name)
        for name in names
    ]


def label(kind: str, name: str) -> str:
    """A resource in a line for a person."""
    if kind == "topic":
        return name
    if kind == "broker":
        return f"broker {name}" if name else "all brokers"
    return f"loggers of broker {name}" if kind == "logger" else f"group {name}"


@click.command("get")
@resource_options
@click.argument("keys", metavar="[KEY...]", nargs=-1)
@click.option("-a", "--all", "every", is_flag=True, help="Every key, not only what was set.")
@bootstrap_option
@output_option
def get(
    keys: tuple[str, ...], every: bool, bootstrap: str, output: str, **named: tuple[str, ...]
) -> None:
    """Show settings: those that were set, those named, or all."""
    kind, resources = chosen(named)
    described: list[dict[str, Any]] = []
    with connect(bootstrap) as client:
        for resource in resources:
            entries = client.configs(resource)
            unknown = set(keys).difference(entry.name for entry in entries)
            if unknown:
                raise UsageError(
                    f"there is no {kind} key {min(unknown)}", "see docs/configuration.md"
                )
            described.append(_description(kind, resource, entries, keys, every=every))
    if output == "json":
        write_json(described)
        return
    rows = [
        [each[kind] or ALL_BROKERS, entry["key"], _shown(entry), entry["source"]]
        for each in described
        for entry in each["configs"]
    ]
    print_table((kind.upper(), "KEY", "VALUE", "FROM"), rows)


@click.command("set")
@resource_options
@click.argument("settings", metavar="KEY=VALUE...", nargs=-1, required=True)
@dry_run_option
@bootstrap_option
@output_option
def set_values(
    settings: tuple[str, ...],
    dry_run: bool,
    bootstrap: str,
    output: str,
    **named: tuple[str, ...],
) -> int:
    """Give resources settings of their own; they hold at once."""
    kind, resources = chosen(named)
    values = dict(split_config(text) for text in settings)
    with connect(bootstrap) as client:
        return _alter(client, kind, resources, values, (), dry_run=dry_run, output=output)


@click.command("unset")
@resource_options
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@dry_run_option
@bootstrap_option
@output_option
def unset(
    keys: tuple[str, ...],
    dry_run: bool,
    bootstrap: str,
    output: str,
    **named: tuple[str, ...],
) -> int:
    """Take settings of their own away from resources; their defaults hold again."""
    kind, resources = chosen(named)
    with connect(bootstrap) as client:
        return _alter(client, kind, resources, {}, keys, dry_run=dry_run, output=output)


def _alter(
    client: Client,
    kind: str,
    resources: Sequence[Resource],
    values: dict[str, str],
    keys: Sequence[str],
    *,
    dry_run: bool,
    output: str,
) -> int:
    results = client.alter_configs(resources, values, keys, validate_only=dry_run)
    named = [result._replace(name=label(kind, result.name)) for result in results]
    return report_topics(named, "would be changed" if dry_run else "changed", output)


def _description(
    kind: str,
    resource: Resource,
    entries: list[ConfigValue],
    keys: tuple[str, ...],
    *,
    every: bool,
) -> dict[str, Any]:
    from kbroker.peer.config_messages import source_name

    own = KINDS[kind].own
    return {
        kind: resource.name,
        "configs": [
            {
                "key": entry.name,
                "value": entry.value,
                "source": source_name(entry.source),
                **({"sensitive": True} if entry.sensitive else {}),
            }
            for entry in sorted(entries)
            if (entry.name in keys if keys else every or entry.source in own)
        ],
    }


def _shown(entry: dict[str, Any]) -> str:
    value = entry["value"]
    if value is None:
        return "(hidden)" if "sensitive" in entry else "unset"
    return value or "empty"


_TYPES: Final = {
    1: "boolean", 2: "string", 3: "int", 4: "short", 5: "long", 6: "double", 7: "list",
    8: "class", 9: "password",
}  # fmt: skip


def explanation(entry: ConfigValue) -> dict[str, Any]:
    """A key of a running cluster in the fields of `kbroker config explain -o json`."""
    from kbroker.peer.config_messages import source_name

    return {
        "key": entry.name,
        "help": entry.documentation,
        "value": entry.value,
        "sensitive": entry.sensitive,
        "source": source_name(entry.source),
        "type": _TYPES.get(entry.kind, ""),
        "read_only": entry.read_only,
        "synonyms": [
            {
                "name": synonym.name,
                "value": synonym.value,
                "source": source_name(synonym.source),
            }
            for synonym in entry.synonyms
        ],
    }


def print_explanation(of: str, explained: dict[str, Any]) -> None:
    say(f"{explained['key']} of {of}")
    if explained["help"]:
        say(f"  {explained['help']}")
    value = "(hidden)" if explained["sensitive"] else _shown(explained)
    say(f"  {'value':<10}{value}, from: {explained['source']}")
    if explained["type"]:
        say(f"  {'type':<10}{explained['type']}")
    change = "when the broker starts" if explained["read_only"] else "at run time"
    say(f"  {'change':<10}{change}")
    for synonym in explained["synonyms"][1:]:
        value = "(hidden)" if explained["sensitive"] else _shown(synonym)
        say(f"  {'fallback':<10}{synonym['name']}={value}, from: {synonym['source']}")
