"""`kbroker logdir adopt|move`: topics of another broker, taken over; where a broker has its logs.

    kbroker logdir move orders:0,1 --to /disks/b --broker 1

moves replicas to another data directory of a broker that serves, and ends at once unless it is to
`--wait`; `kbroker logdirs TOPIC` shows what is on its way.

    kbroker start --data-dir DIRECTORY             once, and stop it: it has its metadata then
    kbroker logdir adopt /var/kafka-logs --data-dir DIRECTORY --groups
    kbroker start --data-dir DIRECTORY

takes over: no broker is asked, and none may run. The source, a directory of log.dirs of Apache
Kafka or of another kbroker, is only read: its logs are copied and every batch of them is checked. A
topic keeps its id, offsets, timestamps and leader epochs. Its settings are not in the files, and
those of `--config` take their place: a topic that was compacted must be given cleanup.policy again.
Without them it keeps what it has for good. Transactions that are open end with the copy, each with
a line.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.metadata import data_dir_option, directory_of
from kbroker.cli.output import output_option, say, write_json
from kbroker.cli.partitions import parse_chosen, report
from kbroker.cli.topic import split_config
from kbroker.errors import KafkaError, UsageError
from kbroker.peer.partitions import existing

if TYPE_CHECKING:
    from kbroker.log.adopted import Copied
    from kbroker.peer.client import Client
    from kbroker.types import TopicPartition

LOOK_MS: Final = 500


@click.group("logdir")
def command() -> None:
    """Take over logs of another broker, and move them between data directories."""


@command.command("adopt")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@data_dir_option
@click.option("-t", "--topic", "topics", metavar="TOPIC", multiple=True, help="Else all new ones.")
@click.option("--groups", is_flag=True, help="And what groups have committed.")
@click.option("--transactions", is_flag=True, help="And transactional ids.")
@click.option("-c", "--config", "configs", metavar="KEY=VALUE", multiple=True, help="Topic key.")
@output_option
def adopt(
    sources: tuple[str, ...],
    data_dir: str,
    topics: tuple[str, ...],
    groups: bool,
    transactions: bool,
    configs: tuple[str, ...],
    output: str,
) -> None:
    """Copy the topics in SOURCE, a directory of a stopped broker's log.dirs, into --data-dir.

    Topics keep their ids, offsets and epochs. Their settings are not in the files: name them with
    --config, above all cleanup.policy. Nothing is deleted until retention.ms or retention.bytes
    says so. Transactions that are open end with the copy: by the outcome that was decided, else
    aborted.
    """
    from kbroker.clock import SystemClock
    from kbroker.config.topic import validate_topic_overrides
    from kbroker.coordinator.txn.adopted_ids import AdoptedIds
    from kbroker.metadata.transfer.adopt import Adoption, Own
    from kbroker.server.boot import boot_id

    overrides = dict(split_config(text) for text in configs)
    try:
        validate_topic_overrides(overrides)
    except KafkaError as error:
        raise UsageError(error.message) from None
    logging.getLogger("kbroker").addHandler(logging.NullHandler())  # what is cut is said below
    now_ms = SystemClock().wall_ms()
    ids = AdoptedIds(now_ms)
    adoption = Adoption(directory_of(data_dir), boot_id(), ids, now_ms, overrides)
    own = Own(groups=groups, transactions=transactions)
    copies = adoption.run([directory_of(each) for each in sources], topics, own)
    if output == "json":
        write_json([_fields(each) for each in copies])
        return
    for topic, count in Counter(each.name.topic for each in copies).items():
        say(f"{topic}: {count} partition{'s' if count > 1 else ''}")
        for each in copies:
            if each.name.topic == topic:
                _show(each)


@command.command("move")
@click.argument("partitions", metavar="TOPIC[:0,1]...", nargs=-1, required=True)
@click.option("--to", "path", metavar="DIRECTORY", required=True, help="As log.dirs has it.")
@click.option("--broker", "node_id", metavar="ID", type=int, help="Whose; else the one there is.")
@click.option("--wait", is_flag=True, help="Return when they are there.")
@bootstrap_option
@output_option
def move(
    partitions: tuple[str, ...],
    path: str,
    node_id: int | None,
    wait: bool,
    bootstrap: str,
    output: str,
) -> int:
    """Move a broker's replicas to another of its data directories, while it serves."""
    from kbroker.peer.placement_messages import PartitionResult

    with connect(bootstrap) as client:
        wanted = existing(client, [parse_chosen(text) for text in partitions])
        if node_id is None:
            brokers = sorted(client.metadata([]).brokers)
            if len(brokers) != 1:
                raise UsageError(
                    f"there are brokers {', '.join(map(str, brokers))}", "name one with --broker"
                )
            (node_id,) = brokers
        errors = client.move_logs(node_id, wanted, path)
        results = [PartitionResult(name, errors[name], None) for name in wanted]
        status = report(results, f"on its way to {path}", output)
        while wait and _on_their_way(client, node_id, {*wanted}):
            client.cluster.sleep_ms(LOOK_MS)
    return status


def _on_their_way(client: Client, node_id: int, wanted: set[TopicPartition]) -> bool:
    return any(
        log.future and log.partition in wanted
        for directory in client.log_directories(of_all=False).get(node_id, [])
        for log in directory.logs
    )


def _show(copy: Copied) -> None:
    say(
        f"  {copy.name}: offsets {copy.start_offset:,} to {copy.end_offset:,},"
        f" {copy.size_bytes:,} bytes"
    )
    for path in copy.cut:
        say(f"  {copy.name}: a crash has torn its end, which is kept as {path}")
    for each in copy.ended:
        of_id = "" if each.transactional_id is None else f" of '{each.transactional_id}'"
        outcome = "committed" if each.committed else "aborted"
        say(
            f"  {copy.name}: the transaction{of_id} (producer id {each.producer_id}) that is open"
            f" from offset {each.first_offset:,} on is {outcome} at offset {each.marker_offset:,}"
        )


def _fields(copy: Copied) -> dict[str, Any]:
    return {
        "topic": copy.name.topic,
        "partition": copy.name.partition,
        "start_offset": copy.start_offset,
        "end_offset": copy.end_offset,
        "leader_epoch": copy.leader_epoch,
        "size_bytes": copy.size_bytes,
        "cut": [str(path) for path in copy.cut],
        "transactions_ended": [each._asdict() for each in copy.ended],
    }
