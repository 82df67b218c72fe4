"""`kbroker partition move|cancel|list|elect`: on which brokers partitions are, and who leads.

`move` says where replicas are to be, the preferred leader first; the brokers copy what they lack,
and the command ends at once unless it is to `--wait`. `list` shows what is under way. Several
partitions are one request; one that is refused is named on standard error, the others are done all
the same, and the status is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.output import output_option, print_table, say, write_json
from kbroker.cli.partitions import parse_chosen, report
from kbroker.errors import ErrorCode, UsageError
from kbroker.peer.partitions import existing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kbroker.peer.client import Client
    from kbroker.peer.placement_messages import ReassignedPartition
    from kbroker.types import TopicPartition

LOOK_MS: Final = 500


@click.group("partition")
def command() -> None:
    """Move partitions to other brokers, and have other replicas lead."""


@command.command("move")
@click.argument("partitions", metavar="TOPIC[:0,1]...", nargs=-1, required=True)
@click.option("--to", metavar="ID,...", required=True, help="Brokers, the preferred leader first.")
@click.option("--wait", is_flag=True, help="Return when all replicas are there and in sync.")
@bootstrap_option
@output_option
def move(partitions: tuple[str, ...], to: str, wait: bool, bootstrap: str, output: str) -> int:
    """Have partitions on these brokers and on no others."""
    target = _node_ids(to)
    with connect(bootstrap) as client:
        wanted = existing(client, [parse_chosen(text) for text in partitions])
        results = client.reassign(dict.fromkeys(wanted, target))
        status = report(results, f"on its way to {to}", output)
        if wait:
            _wait(client, [each.partition for each in results if each.error is ErrorCode.NONE])
    return status


@command.command("cancel")
@click.argument("partitions", metavar="TOPIC[:0,1]...", nargs=-1, required=True)
@bootstrap_option
@output_option
def cancel(partitions: tuple[str, ...], bootstrap: str, output: str) -> int:
    """Leave partitions where they were before they were to move."""
    with connect(bootstrap) as client:
        wanted = existing(client, [parse_chosen(text) for text in partitions])
        results = client.reassign(dict.fromkeys(wanted))
    return report(results, "stays where it was", output)


@command.command("list")
@click.option("--watch", is_flag=True, help="Again and again, until nothing moves.")
@bootstrap_option
@output_option
def list_moves(watch: bool, bootstrap: str, output: str) -> None:
    """Show the partitions that are on their way to other brokers."""
    with connect(bootstrap) as client:
        moving = client.reassignments()
        _print_moves(moving, output)
        while watch and moving:
            client.cluster.sleep_ms(LOOK_MS)
            before, moving = moving, client.reassignments()
            if moving != before:
                _print_moves(moving, output)
    if watch and output == "text":
        say("nothing moves")


@command.command("elect")
@click.argument("partitions", metavar="[TOPIC[:0,1]...]", nargs=-1)
@click.option(
    "--unclean", is_flag=True, help="Any live replica, where there is no leader: records are lost."
)
@bootstrap_option
@output_option
def elect(partitions: tuple[str, ...], unclean: bool, bootstrap: str, output: str) -> int:
    """Have preferred replicas lead, of the partitions named or of all."""
    from kbroker.peer.placement_messages import PREFERRED_ELECTION, UNCLEAN_ELECTION

    kind = UNCLEAN_ELECTION if unclean else PREFERRED_ELECTION
    chosen = [parse_chosen(text) for text in partitions]
    with connect(bootstrap) as client:
        results = client.elect_leaders(kind, existing(client, chosen) if chosen else None)
    needed = [each for each in results if each.error is not ErrorCode.ELECTION_NOT_NEEDED]
    return report(needed, "has another leader", output)


def _node_ids(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise UsageError(f"'{text}' names no brokers", "give their ids, as in 1,2,3")
    return [int(part) for part in parts]


def _wait(client: Client, partitions: Sequence[TopicPartition]) -> None:
    wanted = {*partitions}
    while wanted & client.reassignments().keys():
        client.cluster.sleep_ms(LOOK_MS)


def _print_moves(moving: Mapping[TopicPartition, ReassignedPartition], output: str) -> None:
    if output == "json":
        write_json(
            [
                {"topic": where.topic, "partition": where.partition, **each._asdict()}
                for where, each in sorted(moving.items())
            ]
        )
        return
    print_table(
        ["PARTITION", "REPLICAS", "ADDING", "REMOVING"],
        [
            [str(where), _shown(each.replicas), _shown(each.adding), _shown(each.removing)]
            for where, each in sorted(moving.items())
        ],
    )


def _shown(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "-"
