"""`kbroker topic create|list|describe|delete`: topics of a running cluster.

Works against any broker that speaks the protocol. Several names are handled in one request; one
that fails is named on standard error, the others are done all the same, and the status is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kbroker.cli.connect import bootstrap_option, connect, refuse
from kbroker.cli.output import output_option, write_json
from kbroker.errors import ErrorCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kbroker.peer.messages import ConfigValue, TopicMetadata, TopicResult

# Kafka's ConfigSource for a value that was set on the topic itself.
_TOPIC_CONFIG: Final = 1


@click.group("topic")
def command() -> None:
    """Create, list, describe and delete topics."""


@command.command("create")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("-p", "--partitions", type=click.IntRange(1), help="Default: the broker's.")
@click.option("-r", "--replication-factor", type=click.IntRange(1), help="Default: the broker's.")
@click.option("-c", "--config", "configs", metavar="KEY=VALUE", multiple=True, help="Topic key.")
@click.option("--dry-run", is_flag=True, help="Let the broker check it, create nothing.")
@bootstrap_option
@output_option
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    dry_run: bool,
    bootstrap: str,
    output: str,
) -> int:
    """Create one topic or several."""
    overrides = dict(_split_config(text) for text in configs)
    from kbroker.peer.messages import NewTopic

    topics = [
        NewTopic(name, partitions or -1, replication_factor or -1, overrides) for name in names
    ]
    with connect(bootstrap) as client:
        results = client.create_topics(topics, validate_only=dry_run)
    return _report(results, "would be created" if dry_run else "created", output)


@command.command("delete")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@bootstrap_option
@output_option
def delete(names: tuple[str, ...], bootstrap: str, output: str) -> int:
    """Delete topics with everything in them."""
    with connect(bootstrap) as client:
        results = client.delete_topics(names)
    return _report(results, "deleted", output)


@command.command("list")
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@bootstrap_option
@output_option
def list_topics(internal: bool, bootstrap: str, output: str) -> None:
    """List topics."""
    with connect(bootstrap) as client:
        topics = client.metadata().topics.values()
    shown = sorted(
        (topic for topic in topics if internal or not topic.internal), key=lambda topic: topic.name
    )
    rows = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": _replication_factor(topic),
        }
        for topic in shown
    ]
    if output == "json":
        write_json(rows)
        return
    _print_table(("NAME", "PARTITIONS", "REPLICAS"), [list(row.values()) for row in rows])


@command.command("describe")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@bootstrap_option
@output_option
def describe(names: tuple[str, ...], bootstrap: str, output: str) -> None:
    """Show partitions, leaders, replicas, offsets and configuration."""
    from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
    from kbroker.types import TopicPartition

    described: list[dict[str, Any]] = []
    with connect(bootstrap) as client:
        found = client.metadata(names).topics
        for name in names:
            topic = found.get(name)
            if topic is None or topic.error is not ErrorCode.NONE:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
                raise refuse(error, f"topic '{name}'", None)
            led = [
                TopicPartition(name, partition.index)
                for partition in topic.partitions
                if partition.leader >= 0
            ]
            starts = client.list_offsets({where: EARLIEST_TIMESTAMP for where in led})
            ends = client.list_offsets({where: LATEST_TIMESTAMP for where in led})
            offsets = {where.partition: (starts[where].offset, ends[where].offset) for where in led}
            described.append(_description(topic, offsets, client.topic_configs(name)))
    if output == "json":
        write_json(described)
        return
    for number, description in enumerate(described):
        if number:
            click.echo()
        _print_description(description)


def _split_config(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"'{text}' is no KEY=VALUE", "for example -c retention.ms=3600000")
    return key.strip(), value.strip()


def _report(results: Sequence[TopicResult], done: str, output: str) -> int:
    """Says what became of each topic; 1 if one was refused."""
    refused = [result for result in results if result.error is not ErrorCode.NONE]
    if output == "json":
        write_json(
            [
                {"name": result.name, "error": result.error.name, "message": result.message}
                for result in results
            ]
        )
        return 1 if refused else 0
    for result in results:
        if result.error is ErrorCode.NONE:
            click.echo(f"{result.name}: {done}")
    for result in refused[:-1]:
        click.echo(f"error: {refuse(result.error, result.name, result.message)}", err=True)
    if refused:
        raise refuse(refused[-1].error, refused[-1].name, refused[-1].message)
    return 0


def _replication_factor(topic: TopicMetadata) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def _description(
    topic: TopicMetadata, offsets: dict[int, tuple[int, int]], configs: list[ConfigValue]
) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": None if topic.topic_id is None else _topic_id_text(topic.topic_id.bytes),
        "internal": topic.internal,
        "replication_factor": _replication_factor(topic),
        "configs": {
            entry.name: entry.value
            for entry in configs
            if entry.source == _TOPIC_CONFIG and not entry.sensitive
        },
        "partitions": [
            {
                "partition": partition.index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "log_start_offset": offsets.get(partition.index, (None, None))[0],
                "log_end_offset": offsets.get(partition.index, (None, None))[1],
            }
            for partition in sorted(topic.partitions, key=lambda partition: partition.index)
        ],
    }


def _topic_id_text(raw: bytes) -> str:
    """As Kafka prints it: URL-safe base64 without padding."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(raw).decode().rstrip("=")


def _print_description(description: dict[str, Any]) -> None:
    click.echo(
        f"{description['name']}  id {description['topic_id'] or 'none'}, "
        f"{len(description['partitions'])} partitions, "
        f"replication factor {description['replication_factor']}"
    )
    for name, value in sorted(description["configs"].items()):
        click.echo(f"  {name}={value}")
    rows = [
        [
            partition["partition"],
            "none" if partition["leader"] < 0 else partition["leader"],
            partition["leader_epoch"],
            ",".join(map(str, partition["replicas"])),
            ",".join(map(str, partition["isr"])),
            "?" if partition["log_start_offset"] is None else partition["log_start_offset"],
            "?" if partition["log_end_offset"] is None else partition["log_end_offset"],
        ]
        for partition in description["partitions"]
    ]
    _print_table(("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END"), rows)


def _print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as they must be; nothing at all, not even titles, without rows."""
    lines = [[str(cell) for cell in row] for row in rows]
    if not lines:
        return
    widths = [max(map(len, column)) for column in zip(titles, *lines, strict=True)]
    for line in [list(titles), *lines]:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
