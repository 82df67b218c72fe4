"""A backup that is read: its manifest, its metadata, its committed offsets; and `verify`.

A backup may come from anywhere, see `files` and `manifest`. `open_backup` checks the manifest, the
names and sizes of all files, and the small files by their digests. Segments are checked where they
are used: `check_log` before one is restored, `verify` for all with every batch in them.

UserError says what is wrong with which file. Any thread, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kbroker.backup import groups
from kbroker.backup.files import check_file, check_names, read_bounded
from kbroker.backup.manifest import (
    GROUPS_FILE,
    LOGS,
    MANIFEST_BYTES_MAX,
    MANIFEST_FILE,
    METADATA_FILE,
    Manifest,
    SavedPartition,
    decode,
)
from kbroker.backup.questions import CommittedOffset
from kbroker.errors import UserError
from kbroker.log.looking import verify as log_verify
from kbroker.metadata.controller import own_nodes, records
from kbroker.metadata.formats import check
from kbroker.metadata.transfer.file import load
from kbroker.types import TopicPartition

_ANOTHER: Final = "use another backup"


@dataclass(frozen=True, slots=True)
class OpenedBackup:
    path: Path
    manifest: Manifest
    tree: Mapping[str, bytes]
    offsets: list[CommittedOffset]

    @property
    def logs(self) -> Path:
        return self.path / LOGS

    def configs(self, topic: str) -> dict[str, str]:
        """What the topic sets for itself."""
        path = records.topic_config_path(topic)
        return records.decode_configs(path, self.tree[path]) if path in self.tree else {}

    def partitions(self, topic: str) -> int:
        """How many the topic has, on all brokers."""
        path = records.topic_path(topic)
        return len(records.decode_topic(path, self.tree[path]).replicas)


def read_manifest(path: Path) -> Manifest:
    """UserError; DataDirectoryError where a later kbroker wrote it."""
    file = path / MANIFEST_FILE
    try:
        return decode(read_bounded(file, MANIFEST_BYTES_MAX), str(file))
    except ValueError as error:
        if not file.exists():
            raise UserError(
                f"{path} is no backup, or one that is not finished: it has no {MANIFEST_FILE}",
                "name the directory of a backup",
            ) from error
        raise UserError(f"{file} cannot be used: {error}", _ANOTHER) from error


def open_backup(path: Path) -> OpenedBackup:
    manifest = read_manifest(path)
    try:
        check_names(path, manifest)
        for name, saved in manifest.files.items():
            check_file(path / name, saved)
        offsets = groups.decode(read_bounded(path / GROUPS_FILE, groups.GROUPS_BYTES_MAX))
    except ValueError as error:
        raise UserError(f"{path} cannot be used: {error}", _ANOTHER) from error
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}", _ANOTHER) from error
    tree = load(path / METADATA_FILE).tree
    _check_tree(path, manifest, tree)
    return OpenedBackup(path, manifest, tree, offsets)


def _check_tree(path: Path, manifest: Manifest, tree: Mapping[str, bytes]) -> None:
    if own_nodes.FORMATS in tree:
        numbers, written_by = own_nodes.decode_formats(own_nodes.FORMATS, tree[own_nodes.FORMATS])
        for format_, number in numbers.items():
            check(format_, number, str(path), written_by)
    for topic, partitions in manifest.topics().items():
        node = records.topic_path(topic)
        if node not in tree:
            raise UserError(f"{path} cannot be used: {node} is not in its metadata", _ANOTHER)
        known = records.decode_topic(node, tree[node])
        for each in partitions:
            is_one = each.name.partition < len(known.replicas)
            if not is_one or each.topic_id != known.topic_id:
                raise UserError(
                    f"{path} cannot be used: {each.name} is not in its metadata", _ANOTHER
                )


def check_log(backup: Path, partition: SavedPartition) -> None:
    """ValueError names the first file that is not as the manifest has it."""
    directory = backup / LOGS / str(partition.name)
    for name, saved in partition.files.items():
        check_file(directory / name, saved)


@dataclass
class Verified:
    """What was read of one partition; `damage`: a line for each thing that is wrong."""

    name: TopicPartition
    batches: int
    records: int
    damage: list[str]


def verify(backup: OpenedBackup) -> Iterator[Verified]:
    """Every file by its digest, and every batch by its CRC with all of its records."""
    for name, partition in sorted(backup.manifest.partitions.items()):
        damage: list[str] = []
        try:
            check_log(backup.path, partition)
        except (ValueError, OSError) as error:
            damage.append(str(error))
        found = log_verify.verify(backup.logs / str(name))
        damage += [str(each) for each in found.damage]
        if not damage and found.next_offset != partition.end_offset:
            damage.append(
                f"{backup.logs / str(name)} ends at offset {found.next_offset}, and the manifest"
                f" says {partition.end_offset}"
            )
        yield Verified(name, found.batches, found.records, damage)
