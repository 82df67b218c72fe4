"""`kbroker offsets [TOPIC...]`: where the logs of partitions begin and end, or were at a moment.

Without names, of every topic that is not internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.output import output_option, write_rows
from kbroker.cli.partitions import parse_chosen
from kbroker.findings.moments import parse_moment
from kbroker.peer.partitions import by_partition, existing, log_ends, log_offsets

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.types import TopicPartition


@click.command("offsets")
@click.argument("topics", metavar="[TOPIC[:0,1]...]", nargs=-1)
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@click.option(
    "--at",
    metavar="MOMENT",
    help="Also the first record since then (2026-11-21T14:00:00, ms), or newest: the record with"
    " the greatest timestamp.",
)
@bootstrap_option
@output_option
def command(
    topics: tuple[str, ...], internal: bool, at: str | None, bootstrap: str, output: str
) -> None:
    """Show where logs begin and end."""
    from kbroker.peer.messages import EARLIEST_TIMESTAMP, MAX_TIMESTAMP

    chosen = [parse_chosen(text) for text in topics]
    moment_ms = None if at is None else MAX_TIMESTAMP if at == "newest" else parse_moment(at)
    with connect(bootstrap) as client:
        partitions = existing(client, chosen) if chosen else _every(client, internal=internal)
        starts = log_offsets(client, partitions, EARLIEST_TIMESTAMP)
        ends = log_ends(client, partitions)
        found = {} if moment_ms is None else log_offsets(client, partitions, moment_ms)
    rows: list[dict[str, Any]] = []
    for where in by_partition(ends):
        row: dict[str, Any] = {
            "topic": where.topic,
            "partition": where.partition,
            "start": starts[where],
            "end": ends[where],
            "records_max": ends[where] - starts[where],
        }
        if at is not None:
            row["at"] = found[where] if found[where] >= 0 else None
        rows.append(row)
    titles = ["TOPIC", "PARTITION", "START", "END", "RECORDS", *(["AT"] if at is not None else [])]
    write_rows(rows, titles, output)


def _every(client: Client, *, internal: bool) -> list[TopicPartition]:
    from kbroker.types import TopicPartition

    return [
        TopicPartition(topic.name, partition.index)
        for topic in client.metadata().topics.values()
        if internal or not topic.internal
        for partition in topic.partitions
        if partition.leader >= 0
    ]
