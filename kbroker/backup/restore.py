"""`kbroker backup restore`: backups become the data directory of a broker that was never started.

The target is empty. While it is made it has a format number that no broker starts on
(`directory_format.mark_unfinished`), which is removed as the last thing, so a broker never serves a
part. `restore.json` names the backups and the options, and is locked by the run that uses them. A
run that was broken off is begun again with the same words: topics that are there are left out.

    1  a metadata store with the cluster's id, settings, quotas, and users and ACLs if asked for
    2  topics, by the adoption of their logs (`metadata/transfer/adopt.py`), some at a time: every
       file by its digest, every batch by its CRC; an open transaction gets its marker
    3  transactional ids, where all topics are restored
    4  committed offsets, as a log that is adopted, too

UserError says what is wrong. One thread.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.backup import groups, saved_metadata
from kbroker.backup.files import FILE_MODE, check_outside, sync_directory
from kbroker.backup.groups import Corrected
from kbroker.backup.known_ends import KnownEnds
from kbroker.backup.manifest import SavedPartition
from kbroker.backup.opened_backup import OpenedBackup, check_log
from kbroker.backup.questions import CommittedOffset
from kbroker.errors import DataDirectoryError, UsageError
from kbroker.log.adopted_ends import Ended
from kbroker.log.engine import file_operations
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE, DataDirectory
from kbroker.metadata import directory_format, meta_properties
from kbroker.metadata.controller import records
from kbroker.metadata.controller.skeleton import ensure_skeleton
from kbroker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, new_uuid
from kbroker.metadata.store.base import StoreError
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.metadata.transfer.adopt import Adoption, Own
from kbroker.types import TopicPartition

STATE_FILE: Final = "restore.json"
_GROUPS: Final = "restored_groups"  # the log of offsets, before it is adopted
_STATE_BYTES_MAX: Final = 1 << 20
BATCH_BYTES: Final = 1 << 30  # of topics that are adopted at once
_IGNORED: Final = frozenset(
    ("lost+found", directory_format.FILE_NAME, f"{directory_format.FILE_NAME}.tmp", STATE_FILE)
)
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEEPING: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is restored, and as what. `topics`: none are all; `cluster_id`, `node_id`: None as in
    the backup."""

    topics: Collection[str] = ()
    users: bool = False
    acls: bool = False
    cluster_id: str | None = None
    node_id: int | None = None
    keep_records: bool = False  # no retention removes them before an operator sets it


class Restored(NamedTuple):
    """`ended`: transactions that were open, by partition; of this run alone."""

    cluster_id: str
    node_id: int
    partitions: Mapping[TopicPartition, SavedPartition]
    ended: Mapping[TopicPartition, Sequence[Ended]]
    offsets: int
    corrected: Sequence[Corrected]
    transactional_ids: bool


class _Saved(NamedTuple):
    backup: OpenedBackup
    partition: SavedPartition


class Restore:
    """One run into one directory."""

    def __init__(self, target: Path, boot_id: str, now_ms: int) -> None:
        self._target = target
        self._boot_id = boot_id
        self._now_ms = now_ms
        self._ended: dict[TopicPartition, Sequence[Ended]] = {}

    def run(self, backups: Sequence[OpenedBackup], wanted: Wanted) -> Restored:
        """UserError: nothing is in its place yet, and the next run goes on."""
        check_outside(self._target, [each.path for each in backups])
        found = _together(backups)
        chosen = _chosen(found, wanted.topics)
        _check_flags(backups, wanted)
        first = backups[0].manifest
        cluster_id = wanted.cluster_id or first.cluster_id
        node_id = first.node_id if wanted.node_id is None else wanted.node_id
        if not _CLUSTER_ID.fullmatch(cluster_id):
            raise UsageError(
                f"{cluster_id!r} is no cluster id", "it has up to 64 letters, digits, - and _"
            )
        state = {
            "backups": [[each.manifest.cluster_id, each.manifest.node_id, each.manifest.cut_ms]
                        for each in backups],
            "topics": sorted(wanted.topics), "users": wanted.users, "acls": wanted.acls,
            "cluster_id": cluster_id, "node_id": node_id, "keep_records": wanted.keep_records,
        }  # fmt: skip
        try:
            self._target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataDirectoryError(
                f"not restored: {self._target} cannot be a directory: {error.strerror}",
                "name an empty directory, or a new one",
            ) from error
        try:
            with self._begun(state):
                return self._run(backups, wanted, chosen, cluster_id, node_id)
        except (OSError, StoreError) as error:
            raise DataDirectoryError(
                f"not restored: {error}", "see that there is room, and run it again: it goes on"
            ) from error
        except ValueError as error:
            raise DataDirectoryError(f"not restored: {error}", "use another backup") from error

    def _run(
        self,
        backups: Sequence[OpenedBackup],
        wanted: Wanted,
        chosen: Mapping[TopicPartition, _Saved],
        cluster_id: str,
        node_id: int,
    ) -> Restored:
        offsets, corrected = self._offsets(backups, chosen)
        ids = not wanted.topics and any(name.topic == TRANSACTIONS_TOPIC for name in chosen)
        if directory_format.is_unfinished(self._target):
            self._make_store(backups, wanted, cluster_id, node_id)
            self._remove_unknown_logs()
            self._adopt_topics(backups, chosen, keep_records=wanted.keep_records, ids=ids)
            if offsets:
                count = max(each.manifest.offsets_partitions for each in backups)
                self._adopt_groups(offsets, count)
            directory_format.remove_mark(self._target)
        file_operations.unlink(self._target / STATE_FILE)
        data = {name: each.partition for name, each in chosen.items()
                if name.topic != TRANSACTIONS_TOPIC}  # fmt: skip
        return Restored(cluster_id, node_id, data, self._ended, len(offsets), corrected, ids)

    @contextmanager
    def _begun(self, state: Mapping[str, object]) -> Iterator[None]:
        """The target is empty, or has what an earlier run of the same words has made."""
        others = set(os.listdir(self._target)) - _IGNORED
        path = self._target / STATE_FILE
        if not path.exists():
            if others:
                raise DataDirectoryError(
                    f"{self._target} is not empty: it has {min(others)}",
                    "name an empty directory, or a new one",
                )
            directory_format.mark_unfinished(self._target)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            text = json.dumps(state, sort_keys=True).encode()
            there = os.pread(handle, _STATE_BYTES_MAX, 0)
            if there != text and (there or others):
                raise DataDirectoryError(
                    f"{self._target} has a part of another restore",
                    "run that one again, or remove what is there",
                )
            os.pwrite(handle, text, 0)
            os.fsync(handle)
            sync_directory(self._target)
            yield
        except BlockingIOError as error:
            raise DataDirectoryError(
                f"another process restores into {self._target}", "wait for it"
            ) from error
        finally:
            os.close(handle)

    # --- What is made -----------------------------------------------------------------------------

    def _make_store(
        self, backups: Sequence[OpenedBackup], wanted: Wanted, cluster_id: str, node_id: int
    ) -> None:
        with closing(EmbeddedStore.open(self._target)) as store:
            found = ensure_skeleton(store, cluster_id)
            if found != cluster_id:
                raise ValueError(f"{self._target} is of cluster {found}")
            for backup in backups:
                nodes = saved_metadata.settings(backup.tree, users=wanted.users, acls=wanted.acls)
                saved_metadata.put(store, nodes)
        meta_properties.ensure(self._target, cluster_id, node_id)
        # Its logs are on the disk, so the first start need not read them.
        file_operations.replace_file(self._target / CLEAN_SHUTDOWN_FILE, b"{}")

    def _adopt_topics(
        self,
        backups: Sequence[OpenedBackup],
        chosen: Mapping[TopicPartition, _Saved],
        *,
        keep_records: bool,
        ids: bool,
    ) -> None:
        here = self._topics_here()
        sources = [backup.logs for backup in backups]
        _check_logs(chosen, {TRANSACTIONS_TOPIC})  # it is read for each adoption
        for some in _batches(chosen, here):
            _check_logs(chosen, some)
            configs = {topic: _configs(backups, topic) for topic in some}
            if keep_records:
                configs = {topic: {**each, **_KEEPING} for topic, each in configs.items()}
            for copy in self._adoption(chosen, configs).run(sources, some):
                self._ended[copy.name] = copy.ended
        if ids and TRANSACTIONS_TOPIC not in here:
            configs = {TRANSACTIONS_TOPIC: _configs(backups, TRANSACTIONS_TOPIC)}
            self._adoption(chosen, configs).run(sources, (), Own(transactions=True))

    def _adoption(
        self, chosen: Mapping[TopicPartition, _Saved], configs: Mapping[str, Mapping[str, str]]
    ) -> Adoption:
        outcomes = {name: each.partition.outcomes for name, each in chosen.items()}
        ends = KnownEnds(self._now_ms, outcomes)
        return Adoption(self._target, self._boot_id, ends, self._now_ms, of_topics=configs)

    def _remove_unknown_logs(self) -> None:
        """A run that was killed may have named the logs of a topic before it made the topic. The
        directory has the mark of a restore, so no other log is in it."""
        here = self._topics_here()
        for name, path in DataDirectory(self._target).logs().items():
            if name.topic not in here:
                shutil.rmtree(path)

    def _adopt_groups(self, offsets: Sequence[CommittedOffset], count: int) -> None:
        staging = self._target / _GROUPS
        shutil.rmtree(staging, ignore_errors=True)
        if OFFSETS_TOPIC not in self._topics_here():
            groups.write_log(staging, offsets, max(count, 1), new_uuid(), self._now_ms)
            ends = KnownEnds(self._now_ms, {})
            adoption = Adoption(self._target, self._boot_id, ends, self._now_ms)
            adoption.run([staging], (), Own(groups=True))
            shutil.rmtree(staging)

    def _offsets(
        self, backups: Sequence[OpenedBackup], chosen: Mapping[TopicPartition, _Saved]
    ) -> tuple[list[CommittedOffset], list[Corrected]]:
        logs = {
            name: (each.partition.start_offset, each.partition.end_offset)
            for name, each in chosen.items()
        }
        return groups.corrected((one for each in backups for one in each.offsets), logs)

    def _topics_here(self) -> frozenset[str]:
        with closing(EmbeddedStore.open(self._target)) as store:
            return frozenset(store.children(records.TOPICS))


def _check_logs(chosen: Mapping[TopicPartition, _Saved], topics: Collection[str]) -> None:
    for name, each in chosen.items():
        if name.topic in topics:
            check_log(each.backup.path, each.partition)


def _configs(backups: Sequence[OpenedBackup], topic: str) -> dict[str, str]:
    return next(each.configs(topic) for each in backups if records.topic_path(topic) in each.tree)


def _together(backups: Sequence[OpenedBackup]) -> dict[TopicPartition, _Saved]:
    """The partitions of backups of one cluster's brokers; UsageError where they do not fit."""
    found: dict[TopicPartition, _Saved] = {}
    for backup in backups:
        if backup.manifest.cluster_id != backups[0].manifest.cluster_id:
            raise UsageError(
                f"{backups[0].path} and {backup.path} are of different clusters",
                "name backups of the brokers of one cluster",
            )
        for name, partition in backup.manifest.partitions.items():
            if name in found:
                raise UsageError(
                    f"{name} is in {found[name].backup.path} and in {backup.path}",
                    "its leader has changed between them: make the backups again",
                )
            found[name] = _Saved(backup, partition)
    return found


def _chosen(
    found: Mapping[TopicPartition, _Saved], topics: Collection[str]
) -> dict[TopicPartition, _Saved]:
    """Of these topics, or of all, with the log of transactional ids; every topic is whole."""
    here = {name.topic for name in found}
    for topic in sorted(topics):
        if topic not in here or topic == TRANSACTIONS_TOPIC:
            raise UsageError(f"topic '{topic}' is in no backup", "kbroker backup verify has all")
    wanted = frozenset(topics) or here
    chosen = {
        name: each for name, each in sorted(found.items())
        if name.topic in wanted or name.topic == TRANSACTIONS_TOPIC
    }  # fmt: skip
    for topic in sorted({name.topic for name in chosen}):
        if topics and topic == TRANSACTIONS_TOPIC:
            continue  # read for outcomes alone
        some = [each for name, each in chosen.items() if name.topic == topic]
        count = some[0].backup.partitions(topic)
        if len(some) != count:
            raise UsageError(
                f"{len(some)} of the {count} partitions of {topic} are in these backups",
                "name the backups of all brokers, or other topics with --topic",
            )
    return chosen


def _check_flags(backups: Sequence[OpenedBackup], wanted: Wanted) -> None:
    for backup in backups:
        for flag, is_wanted, is_there in (
            ("--users", wanted.users, backup.manifest.users),
            ("--acls", wanted.acls, backup.manifest.acls),
        ):
            if is_wanted and not is_there:
                raise UsageError(f"{backup.path} was made without {flag}", f"leave {flag} out")


def _batches(chosen: Mapping[TopicPartition, _Saved], here: Collection[str]) -> Iterator[list[str]]:
    """Topics that are not there yet, in groups that one broken-off run may have to copy again."""
    sizes: dict[str, int] = {}
    for name, each in chosen.items():
        if name.topic != TRANSACTIONS_TOPIC and name.topic not in here:
            sizes[name.topic] = sizes.get(name.topic, 0) + each.partition.size_bytes
    batch: list[str] = []
    batch_bytes = 0
    for topic, size_bytes in sizes.items():
        if batch and batch_bytes + size_bytes > BATCH_BYTES:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(topic)
        batch_bytes += size_bytes
    if batch:
        yield batch
