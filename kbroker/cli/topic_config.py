"""`kbroker config get|set|unset`: the settings of topics of a running cluster.

`get` shows what a topic has of its own, or every key, or some; `set` and `unset` change several
topics in one request. A topic that is refused is named on standard error, the others are changed
all the same, and the status is 1. The commands hang below `kbroker config` (see `config.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.output import output_option, print_table, write_json
from kbroker.cli.topic import report_topics, split_config
from kbroker.errors import UsageError

if TYPE_CHECKING:
    from kbroker.peer.messages import ConfigValue

_SOURCES: Final = {
    1: "topic",
    2: "broker, at run time",
    3: "all brokers, at run time",
    4: "broker",
    5: "default",
}
_OF_THE_TOPIC: Final = 1

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Let the broker check it, change nothing."
)
topics_option = click.option(
    "-t", "--topic", "topics", metavar="TOPIC", multiple=True, required=True, help="Repeatable."
)


@click.command("get")
@topics_option
@click.argument("keys", metavar="[KEY...]", nargs=-1)
@click.option("-a", "--all", "every", is_flag=True, help="Every key, not only the topic's own.")
@bootstrap_option
@output_option
def get(
    topics: tuple[str, ...], keys: tuple[str, ...], every: bool, bootstrap: str, output: str
) -> None:
    """Show settings of topics: their own, those named, or all."""
    described: list[dict[str, Any]] = []
    with connect(bootstrap) as client:
        for topic in topics:
            entries = client.topic_configs(topic)
            unknown = set(keys).difference(entry.name for entry in entries)
            if unknown:
                raise UsageError(
                    f"there is no topic key {min(unknown)}", "see docs/configuration.md"
                )
            described.append(_description(topic, entries, keys, every=every))
    if output == "json":
        write_json(described)
        return
    rows = [
        [each["topic"], entry["key"], _shown(entry["value"]), entry["source"]]
        for each in described
        for entry in each["configs"]
    ]
    print_table(("TOPIC", "KEY", "VALUE", "FROM"), rows)


@click.command("set")
@topics_option
@click.argument("settings", metavar="KEY=VALUE...", nargs=-1, required=True)
@dry_run_option
@bootstrap_option
@output_option
def set_values(
    topics: tuple[str, ...], settings: tuple[str, ...], dry_run: bool, bootstrap: str, output: str
) -> int:
    """Give topics settings of their own; they hold at once."""
    values = dict(split_config(text) for text in settings)
    with connect(bootstrap) as client:
        results = client.alter_topic_configs(topics, values, (), validate_only=dry_run)
    return report_topics(results, "would be changed" if dry_run else "changed", output)


@click.command("unset")
@topics_option
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@dry_run_option
@bootstrap_option
@output_option
def unset(
    topics: tuple[str, ...], keys: tuple[str, ...], dry_run: bool, bootstrap: str, output: str
) -> int:
    """Take settings of their own away from topics; the broker's hold again."""
    with connect(bootstrap) as client:
        results = client.alter_topic_configs(topics, {}, keys, validate_only=dry_run)
    return report_topics(results, "would be changed" if dry_run else "changed", output)


def _description(
    topic: str, entries: list[ConfigValue], keys: tuple[str, ...], *, every: bool
) -> dict[str, Any]:
    return {
        "topic": topic,
        "configs": [
            {
                "key": entry.name,
                "value": entry.value,
                "source": _SOURCES.get(entry.source, str(entry.source)),
            }
            for entry in sorted(entries)
            if (entry.name in keys if keys else every or entry.source == _OF_THE_TOPIC)
        ],
    }


def _shown(value: str | None) -> str:
    if value is None:
        return "unset"
    return value if value else "empty"
