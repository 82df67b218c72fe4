"""`kbroker topic create|list|describe|add-partitions|trim-prefix|delete`: a cluster's topics.

Works against any broker that speaks the protocol. Several names are handled in one request; one
that fails is named on standard error, the others are done all the same, and the status is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kbroker.cli.connect import bootstrap_option, connect, refuse
from kbroker.cli.numbers import LONG_MAX, unsigned_of
from kbroker.cli.output import output_option, print_table, say, write_json, write_rows
from kbroker.errors import ErrorCode, UsageError
from kbroker.types import TopicPartition, uuid_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kbroker.peer.admin_messages import DeleteRecordsResult
    from kbroker.peer.client import Client
    from kbroker.peer.config_messages import ConfigValue
    from kbroker.peer.messages import TopicMetadata, TopicResult

# Kafka's ConfigSource for a value that was set on the topic itself.
_TOPIC_CONFIG: Final = 1


@click.group("topic")
def command() -> None:
    """Create, list, describe, grow, trim and delete topics."""


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
    overrides = dict(split_config(text) for text in configs)
    from kbroker.peer.messages import NewTopic

    topics = [
        NewTopic(name, partitions or -1, replication_factor or -1, overrides) for name in names
    ]
    with connect(bootstrap) as client:
        results = client.create_topics(topics, validate_only=dry_run)
    return report_topics(results, "would be created" if dry_run else "created", output)


@command.command("delete")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@bootstrap_option
@output_option
def delete(names: tuple[str, ...], bootstrap: str, output: str) -> int:
    """Delete topics with everything in them."""
    with connect(bootstrap) as client:
        results = client.delete_topics(names)
    return report_topics(results, "deleted", output)


@command.command("add-partitions")
@click.argument("name", metavar="TOPIC")
@click.argument("count", metavar="COUNT", type=click.IntRange(1))
@click.option("--dry-run", is_flag=True, help="Let the broker check it, add nothing.")
@bootstrap_option
@output_option
def add_partitions(name: str, count: int, dry_run: bool, bootstrap: str, output: str) -> int:
    """Add COUNT partitions to a topic. Keys may move: they are spread over all partitions."""
    with connect(bootstrap) as client:
        total = len(_existing(client, name).partitions) + count
        results = client.create_partitions({name: total}, validate_only=dry_run)
    return report_topics(
        results, f"{'would have' if dry_run else 'has'} {total} partitions", output
    )


@command.command("trim-prefix")
@click.argument("name", metavar="TOPIC")
@click.option("-p", "--partition", "chosen", type=click.IntRange(0), multiple=True,
              help="Default: all.")  # fmt: skip
@click.option("--before", metavar="OFFSET|end", required=True, help="The first offset to be left.")
@bootstrap_option
@output_option
def trim_prefix(
    name: str, chosen: tuple[int, ...], before: str, bootstrap: str, output: str
) -> int:
    """Delete the records before an offset, for good."""
    from kbroker.peer.admin_messages import TO_HIGH_WATERMARK
    from kbroker.types import TopicPartition

    offset = TO_HIGH_WATERMARK if before == "end" else unsigned_of(before, LONG_MAX)
    if offset is None:
        raise UsageError(f"'{before}' is no offset", "give a number, or end for all records")
    with connect(bootstrap) as client:
        existing = [partition.index for partition in _existing(client, name).partitions]
        unknown = sorted(set(chosen) - set(existing))
        if unknown:
            raise refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{unknown[0]}", None)
        wanted = sorted(set(chosen) or existing)
        results = client.delete_records({TopicPartition(name, index): offset for index in wanted})
    return _report_trimmed(dict(sorted(results.items())), output)


@command.command("list")
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@bootstrap_option
@output_option
def list_topics(internal: bool, bootstrap: str, output: str) -> None:
    """List topics."""
    with connect(bootstrap) as client:
        topics = client.metadata().topics.values()
    listed = sorted(
        (topic for topic in topics if internal or not topic.internal), key=lambda topic: topic.name
    )
    rows = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": _replication_factor(topic),
        }
        for topic in listed
    ]
    write_rows(rows, ("NAME", "PARTITIONS", "REPLICAS"), output)


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
            topic = _there(found, name)
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


def _existing(client: Client, name: str) -> TopicMetadata:
    return _there(client.metadata([name]).topics, name)


def _there(found: Mapping[str, TopicMetadata], name: str) -> TopicMetadata:
    topic = found.get(name)
    if topic is None or topic.error is not ErrorCode.NONE:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        raise refuse(error, f"topic '{name}'", None)
    return topic


def _report_trimmed(results: Mapping[TopicPartition, DeleteRecordsResult], output: str) -> int:
    """Says where each partition begins now; 1 if one was refused."""
    refused = [name for name, result in results.items() if result.error is not ErrorCode.NONE]
    if output == "json":
        write_json(
            [
                {
                    "partition": name.partition,
                    "error": result.error.name,
                    "log_start_offset": result.low_watermark,
                }
                for name, result in results.items()
            ]
        )
        return 1 if refused else 0
    for name, result in results.items():
        if result.error is ErrorCode.NONE:
            say(f"{name}: begins at {result.low_watermark}")
    for name in refused[:-1]:
        say(f"error: {refuse(results[name].error, str(name), None)}", err=True)
    if refused:
        raise refuse(results[refused[-1]].error, str(refused[-1]), None)
    return 0


def split_config(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"'{text}' is no KEY=VALUE", "for example -c max.message.bytes=2097152")
    return key.strip(), value.strip()


def report_topics(results: Sequence[TopicResult], done: str, output: str) -> int:
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
            say(f"{result.name}: {done}")
    for result in refused[:-1]:
        say(f"error: {refuse(result.error, result.name, result.message)}", err=True)
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
        "topic_id": None if topic.topic_id is None else uuid_text(topic.topic_id),
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


def _print_description(description: dict[str, Any]) -> None:
    say(
        f"{description['name']}  id {description['topic_id'] or 'none'}, "
        f"{len(description['partitions'])} partitions, "
        f"replication factor {description['replication_factor']}"
    )
    for name, value in sorted(description["configs"].items()):
        say(f"  {name}={value}")
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
    print_table(("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END"), rows)
