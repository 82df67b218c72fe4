"""`kbroker backup create|verify|restore`: copies of a broker that serves, and brokers made of them.

    kbroker backup create /backups/monday --data-dir DIRECTORY -b HOST:PORT
    kbroker backup create /backups/tuesday --data-dir DIRECTORY --base /backups/monday
    kbroker backup verify /backups/tuesday
    kbroker backup restore /backups/tuesday --data-dir NEW
    kbroker start --data-dir NEW

`create` runs where the broker has its files, as its user; the broker is asked for the ends of logs
and for committed offsets. `verify` and `restore` ask no broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.metadata import directory_of, zookeeper_settings
from kbroker.cli.output import output_option, say, write_json

if TYPE_CHECKING:
    from kbroker.backup.create import Created, ReadTree
    from kbroker.backup.manifest import Manifest, SavedPartition
    from kbroker.backup.restore import Restored
    from kbroker.types import TopicPartition

_DAMAGED_STATUS = 1

topics_option = click.option(
    "-t", "--topic", "topics", metavar="TOPIC", multiple=True, help="Else all."
)


@click.group("backup")
def command() -> None:
    """Save the records, settings and committed offsets of a broker that serves; restore them."""


@command.command("create")
@click.argument("target", metavar="DIRECTORY")
@click.option(
    "--data-dir", "data_dirs", metavar="DIRECTORY", multiple=True, required=True,
    help="The broker's; of several in log.dirs each, the first one first.",
)  # fmt: skip
@topics_option
@click.option("--base", metavar="BACKUP", help="An earlier backup: its files are linked.")
@click.option("--users", is_flag=True, help="And credentials of users.")
@click.option("--acls", is_flag=True, help="And ACLs.")
@click.option("--zookeeper", metavar="HOST:PORT,.../PATH", help="Of a broker of a cluster.")
@click.option("--config", metavar="CONFIG", help="A server.properties file with zookeeper.* keys.")
@bootstrap_option
@output_option
def create(
    target: str,
    data_dirs: tuple[str, ...],
    topics: tuple[str, ...],
    base: str | None,
    users: bool,
    acls: bool,
    zookeeper: str | None,
    config: str | None,
    bootstrap: str,
    output: str,
) -> None:
    """Save into DIRECTORY, a new one, all partitions that a broker leads, while it serves.

    Committed offsets are read before the ends of logs, and all ends at once, so a group that is
    restored goes on without a gap. A run that was broken off goes on when it is repeated.
    """
    from kbroker.backup.create import Backup, Wanted
    from kbroker.backup.opened_backup import read_manifest
    from kbroker.backup.questions import AskedBroker
    from kbroker.clock import SystemClock
    from kbroker.server.open_files import raise_open_file_limit

    _quiet()
    raise_open_file_limit()  # every segment is held open
    directories = [directory_of(each) for each in data_dirs]
    earlier = None if base is None else directory_of(base)
    known = None if earlier is None else (earlier, read_manifest(earlier))
    wanted = Wanted(topics=topics, users=users, acls=acls, base=known)
    read_tree = _reader(directories[0], zookeeper, config)
    with connect(bootstrap) as client:
        place = directory_of(target)
        made = Backup(place, directories, read_tree, AskedBroker(client), SystemClock()).run(wanted)
    if output == "json":
        write_json({"directory": str(place), **_created_fields(made)})
        return
    _show_topics(_by_topic(made.manifest.partitions))
    others = f", {made.elsewhere} partitions are led by other brokers" if made.elsewhere else ""
    say(
        f"{place}: {made.manifest.size_bytes:,} bytes, of which {made.linked_bytes:,} were there;"
        f" {made.offsets} committed offsets{others}"
    )


@command.command("verify")
@click.argument("backup", metavar="BACKUP")
@output_option
def verify(backup: str, output: str) -> int:
    """Check every file of a backup by its digest, and every batch by its CRC and records."""
    from kbroker.backup.opened_backup import open_backup
    from kbroker.backup.opened_backup import verify as verify_backup

    _quiet()
    opened = open_backup(directory_of(backup))
    batches = records = 0
    damage: list[str] = []
    for found in verify_backup(opened):
        batches += found.batches
        records += found.records
        damage += found.damage
    if output == "json":
        write_json({
            **_manifest_fields(opened.manifest),
            "committed_offsets": len(opened.offsets), "batches": batches, "records": records,
            "damage": damage,
        })  # fmt: skip
    else:
        _show_topics(_by_topic(opened.manifest.partitions))
        say(
            f"{opened.path}: {len(opened.offsets)} committed offsets, {batches:,} batches,"
            f" {records:,} records, {'damaged' if damage else 'sound'}"
        )
        for line in damage:
            say(f"error: {line}", err=True)
    return _DAMAGED_STATUS if damage else 0


@command.command("restore")
@click.argument("backups", metavar="BACKUP...", nargs=-1, required=True)
@click.option("--data-dir", "data_dir", metavar="DIRECTORY", required=True, help="An empty one.")
@topics_option
@click.option("--users", is_flag=True, help="And credentials of users.")
@click.option("--acls", is_flag=True, help="And ACLs.")
@click.option("--cluster-id", metavar="ID", help="Else that of the backup.")
@click.option("--node-id", metavar="N", type=click.IntRange(0, 2**31 - 1), help="The same.")
@click.option(
    "--keep-records", is_flag=True, help="Set retention.ms and retention.bytes of topics to -1."
)
@output_option
def restore(
    backups: tuple[str, ...],
    data_dir: str,
    topics: tuple[str, ...],
    users: bool,
    acls: bool,
    cluster_id: str | None,
    node_id: int | None,
    keep_records: bool,
    output: str,
) -> None:
    """Make the data directory of a single broker from backups, of all brokers of one cluster.

    Topics keep ids, offsets, timestamps and settings; records that are older than retention.ms are
    removed soon after the start, unless --keep-records is given. A run that was broken off goes on
    when it is repeated.
    """
    from kbroker.backup.opened_backup import open_backup
    from kbroker.backup.restore import Restore, Wanted
    from kbroker.clock import SystemClock
    from kbroker.server.boot import boot_id

    _quiet()
    wanted = Wanted(topics, users, acls, cluster_id, node_id, keep_records)
    opened = [open_backup(directory_of(each)) for each in backups]
    place = directory_of(data_dir)
    done = Restore(place, boot_id(), SystemClock().wall_ms()).run(opened, wanted)
    if output == "json":
        write_json({"directory": str(place), **_restored_fields(done)})
        return
    _show_topics(_by_topic(done.partitions))
    for name, ended in sorted(done.ended.items()):
        for each in ended:
            outcome = "committed" if each.committed else "aborted"
            say(f"  {name}: the transaction of producer id {each.producer_id} that is open from"
                f" offset {each.first_offset:,} on is {outcome}")  # fmt: skip
    for offset in done.corrected:
        say(f"  {offset.partition}: group '{offset.group}' goes on at {offset.restored:,}, as"
            f" {offset.committed:,} is not in the log")  # fmt: skip
    say(f"{place}: cluster {done.cluster_id}, {done.offsets} committed offsets; start it with"
        f" node.id {done.node_id}")  # fmt: skip


def _quiet() -> None:
    """The errors have what libraries log."""
    for library in ("kbroker", "kazoo"):
        logging.getLogger(library).addHandler(logging.NullHandler())


def _reader(directory: Path, zookeeper: str | None, config: str | None) -> ReadTree:
    if zookeeper is None and config is None:
        from kbroker.backup.saved_metadata import read_embedded

        return lambda scratch, pause: read_embedded(directory, scratch, pause)
    settings = zookeeper_settings(zookeeper, config)

    def read(scratch: Path, pause: Callable[[], None]) -> Mapping[str, bytes]:
        from kbroker.errors import MetadataStoreError
        from kbroker.metadata.store.base import StoreError
        from kbroker.metadata.transfer.tree import read_tree
        from kbroker.server.metadata_store import open_zookeeper

        try:
            with closing(open_zookeeper(settings)) as store:
                return read_tree(store)
        except StoreError as error:
            raise MetadataStoreError(
                f"ZooKeeper at {settings} cannot be read: {error}", "run the backup again"
            ) from error

    return read


# --- What is printed ------------------------------------------------------------------------------


def _by_topic(
    partitions: Mapping[TopicPartition, SavedPartition],
) -> dict[str, list[SavedPartition]]:
    found: dict[str, list[SavedPartition]] = {}
    for name in sorted(partitions):
        found.setdefault(name.topic, []).append(partitions[name])
    return found


def _show_topics(topics: Mapping[str, list[SavedPartition]]) -> None:
    for topic, partitions in topics.items():
        count = len(partitions)
        size_bytes = sum(each.size_bytes for each in partitions)
        say(f"{topic}: {count} partition{'s' if count > 1 else ''}, {size_bytes:,} bytes")


def _partition_fields(partition: SavedPartition) -> dict[str, Any]:
    return {
        "topic": partition.name.topic,
        "partition": partition.name.partition,
        "start_offset": partition.start_offset,
        "end_offset": partition.end_offset,
        "size_bytes": partition.size_bytes,
    }


def _manifest_fields(manifest: Manifest) -> dict[str, Any]:
    return {
        "cluster_id": manifest.cluster_id,
        "node_id": manifest.node_id,
        "cut_ms": manifest.cut_ms,
        "size_bytes": manifest.size_bytes,
        "users": manifest.users,
        "acls": manifest.acls,
        "partitions": [_partition_fields(each) for _, each in sorted(manifest.partitions.items())],
    }


def _created_fields(made: Created) -> dict[str, Any]:
    return {
        **_manifest_fields(made.manifest),
        "copied_bytes": made.copied_bytes,
        "linked_bytes": made.linked_bytes,
        "committed_offsets": made.offsets,
        "partitions_elsewhere": made.elsewhere,
    }


def _restored_fields(done: Restored) -> dict[str, Any]:
    return {
        "cluster_id": done.cluster_id,
        "node_id": done.node_id,
        "committed_offsets": done.offsets,
        "transactional_ids": done.transactional_ids,
        "partitions": [_partition_fields(each) for _, each in sorted(done.partitions.items())],
        "transactions_ended": [
            {"topic": name.topic, "partition": name.partition, **each._asdict()}
            for name, ended in sorted(done.ended.items())
            for each in ended
        ],
        "offsets_corrected": [
            {"group": each.group, "topic": each.partition.topic,
             "partition": each.partition.partition, "committed": each.committed,
             "restored": each.restored}
            for each in done.corrected
        ],
    }  # fmt: skip
