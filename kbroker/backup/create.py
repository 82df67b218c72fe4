"""`kbroker backup create`: a copy of the partitions that a broker leads, while it serves.

    1  the metadata tree            4  the ends of all logs, in one round
    2  committed offsets            5  the end of the log of transactional ids
    3  the files of logs, opened    6  markers after the ends, of transactions open there
    7  the copies                   8  the manifest, as the last

A directory without a manifest is no backup. While one is made it has a journal with a line for
each closed segment that was copied; a run that was broken off is begun again in the same place, and
keeps the files of which the source has not changed. `base` is an earlier backup whose files are
linked by the same rule.

UserError says what is wrong. On one thread, with another one for syncs.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from kbroker import __version__
from kbroker.backup import groups, saved_metadata
from kbroker.backup.files import (
    Copies,
    check_outside,
    make_directory,
    opened,
    replace_file,
    sync_directory,
    write_file,
)
from kbroker.backup.held_logs import HeldLog, Piece, hold
from kbroker.backup.journal import Journal
from kbroker.backup.manifest import (
    CHECKPOINTS,
    GROUPS_FILE,
    LOGS,
    MANIFEST_FILE,
    METADATA_FILE,
    OUTCOMES_MAX,
    Manifest,
    Outcome,
    SavedFile,
    SavedPartition,
    encode,
)
from kbroker.backup.questions import Asked, CommittedOffset, Ends, Led
from kbroker.clock import Clock
from kbroker.errors import DataDirectoryError, UserError
from kbroker.log.engine import file_operations
from kbroker.log.engine.checkpoints import (
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
)
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE
from kbroker.metadata import meta_properties
from kbroker.metadata.controller import records
from kbroker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kbroker.metadata.store.base import parent_of
from kbroker.metadata.transfer.file import Export
from kbroker.metadata.transfer.file import encode as encode_export
from kbroker.types import TopicPartition, uuid_text

_SCRATCH: Final = ".metadata"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is saved. `topics`: none are all; `base`: an earlier backup, with its manifest."""

    topics: Collection[str] = ()
    users: bool = False
    acls: bool = False
    base: tuple[Path, Manifest] | None = None


class Created(NamedTuple):
    manifest: Manifest
    copied_bytes: int
    linked_bytes: int  # of files that the base had, or a run that was broken off
    offsets: int
    elsewhere: int  # partitions that other brokers lead


# The metadata tree, given a directory for a copy of its files and a pause between two looks.
ReadTree = Callable[[Path, Callable[[], None]], Mapping[str, bytes]]


class Backup:
    """One run. `directories`: all of the broker's log.dirs."""

    def __init__(
        self,
        target: Path,
        directories: Sequence[Path],
        read_tree: ReadTree,
        broker: Asked,
        clock: Clock,
    ) -> None:
        self._target = target
        self._directories = directories
        self._read_tree = read_tree
        self._broker = broker
        self._clock = clock
        self._linked_bytes = self._copied_bytes = 0

    def run(self, wanted: Wanted) -> Created:
        """UserError, and nothing but a journal and files that the next run may use."""
        try:
            with ExitStack() as held:
                return self._run(wanted, held)
        except ValueError as error:
            raise UserError(
                f"no backup was made: {error}", "run it again: it goes on where it was"
            ) from error
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise UserError(
                f"no backup was made: {where}{error.strerror or error}", _way_out(error)
            ) from error

    def _run(self, wanted: Wanted, held: ExitStack) -> Created:
        began_ms = self._clock.wall_ms()
        own = self._own()
        check_outside(self._target, [*self._directories, *(wanted.base or ())[:1]])
        led = self._broker.led_by(own.node_id, wanted.topics)
        if led.cluster_id != own.cluster_id:
            raise UserError(
                f"{self._directories[0]} belongs to cluster {own.cluster_id}, and the broker that"
                f" was asked to {led.cluster_id}",
                "name its broker with -b",
            )
        journal = held.enter_context(Journal.begin(self._target))
        # A run that was killed leaves the metadata there, with secrets; not all readers use it.
        shutil.rmtree(self._target / _SCRATCH, ignore_errors=True)
        tree = self._read_tree(self._target / _SCRATCH, self._broker.pause)
        _check_topics(led, tree, is_all=not wanted.topics)
        data = [name for name in led.partitions if name.topic != TRANSACTIONS_TOPIC]
        committed = self._broker.committed_offsets(data)
        logs = self._held(led, tree, held)
        for log in logs.values():
            log.look_again()  # from here to the ends little time goes by
        ends, cut_ms = self._broker.ends_of(data), self._clock.wall_ms()
        of_ids = [name for name in led.partitions if name.topic == TRANSACTIONS_TOPIC]
        ends_of_ids = self._broker.ends_of(of_ids)
        for log in logs.values():
            log.look_again()
        outcomes = self._outcomes(logs, ends)
        all_ends = Ends(*({**a, **b} for a, b in zip(ends, ends_of_ids, strict=True)))
        partitions = self._copied(logs, all_ends, outcomes, journal, wanted.base)
        topics = {name.topic for name in led.partitions}
        export = _export(saved_metadata.saved(tree, topics, users=wanted.users, acls=wanted.acls),
                         cut_ms)  # fmt: skip
        files = self._own_files(export, committed, partitions)
        manifest = Manifest(
            own.cluster_id, own.node_id, __version__, began_ms, cut_ms, self._clock.wall_ms(),
            wanted.users, wanted.acls, led.offsets_partitions, files, partitions,
        )  # fmt: skip
        _remove_others(self._target, manifest)
        replace_file(self._target / MANIFEST_FILE, encode(manifest))
        journal.remove()
        return Created(
            manifest, self._copied_bytes, self._linked_bytes, len(committed), led.elsewhere
        )

    def _own(self) -> meta_properties.MetaProperties:
        """What the directories are of; DataDirectoryError where that is not one broker."""
        found: meta_properties.MetaProperties | None = None
        for directory in self._directories:
            each = meta_properties.load(directory)
            if each is None:
                raise DataDirectoryError(
                    f"{directory} belongs to no broker", "name an entry of log.dirs"
                )
            found = found or each
            if (found.cluster_id, found.node_id) != (each.cluster_id, each.node_id):
                raise DataDirectoryError(
                    f"{self._directories[0]} and {directory} are of different brokers",
                    "name directories of one broker",
                )
        if found is None:
            raise DataDirectoryError("no data directory is named", "name it with --data-dir")
        return found

    # --- The logs ---------------------------------------------------------------------------------

    def _held(
        self, led: Led, tree: Mapping[str, bytes], held: ExitStack
    ) -> dict[TopicPartition, HeldLog]:
        logs: dict[TopicPartition, HeldLog] = {}
        for name, topic_id in sorted(led.partitions.items()):
            log = hold(
                name, self._place(name), self._broker.pause,
                is_compacted=_is_compacted(tree, name.topic),
            )  # fmt: skip
            held.callback(log.close)
            if log.topic_id != topic_id:
                raise ValueError(f"{log.path} is of another topic of that name")
            logs[name] = log
        return logs

    def _place(self, name: TopicPartition) -> Path:
        for directory in self._directories:
            if (directory / str(name)).is_dir():
                return directory / str(name)
        raise UserError(
            f"the log of {name} is in none of {', '.join(map(str, self._directories))}",
            "name all entries of the broker's log.dirs, each with --data-dir",
        )

    def _outcomes(
        self, logs: Mapping[TopicPartition, HeldLog], ends: Ends
    ) -> dict[TopicPartition, tuple[Outcome, ...]]:
        """Of transactions that were open at the ends and have ended since."""
        is_open = [name for name, end in ends.end.items() if ends.stable[name] < end]
        now = self._broker.high_watermarks(is_open)
        found: dict[TopicPartition, tuple[Outcome, ...]] = {}
        for name in is_open:
            logs[name].look_again()
            some = tuple(logs[name].outcomes(ends.end[name], now[name]))
            if len(some) > OUTCOMES_MAX:
                raise ValueError(f"{name} has more than {OUTCOMES_MAX} transactions at its end")
            found[name] = some
        return found

    def _copied(
        self,
        logs: Mapping[TopicPartition, HeldLog],
        ends: Ends,
        outcomes: Mapping[TopicPartition, tuple[Outcome, ...]],
        journal: Journal,
        base: tuple[Path, Manifest] | None,
    ) -> dict[TopicPartition, SavedPartition]:
        make_directory(self._target / LOGS)
        known = [] if base is None else [(base[0], base[1].partitions)]
        found: dict[TopicPartition, SavedPartition] = {}
        with Copies() as copies:
            for name, log in logs.items():
                start, end = ends.start[name], ends.end[name]
                directory = self._target / LOGS / str(name)
                make_directory(directory)
                files: dict[str, SavedFile] = {}
                for piece in log.pieces(start, end):
                    places = [
                        *journal.places(directory / piece.name),
                        *_places(known, name, log.topic_id, piece.name),
                    ]
                    files[piece.name] = self._taken(piece, directory, places, copies, journal)
                files |= _small_files(directory, log, end, copies)
                copies.sync_directory(directory)
                log.close()
                found[name] = SavedPartition(
                    name, _known(log.topic_id), start, end, min(ends.stable[name], end),
                    outcomes.get(name, ()), files,
                )  # fmt: skip
        sync_directory(self._target / LOGS)
        return found

    def _taken(
        self,
        piece: Piece,
        directory: Path,
        places: Iterable[tuple[Path, SavedFile]],
        copies: Copies,
        journal: Journal,
    ) -> SavedFile:
        """By a link where the same file was saved before, else as a copy."""
        source, target = piece.source, directory / piece.name
        for place, saved in places:
            if source is not None and source == saved.source and _linked(place, target, saved):
                self._linked_bytes += saved.size_bytes
                journal.note(target, saved)
                return saved
        self._copied_bytes += piece.size_bytes

        def on_the_disk(copy: SavedFile) -> None:
            journal.note(target, copy._replace(source=source))

        copy = copies.copy(piece.descriptor, piece.size_bytes, target, on_the_disk)
        return copy._replace(source=source)

    def _own_files(
        self,
        export: Export,
        committed: Sequence[CommittedOffset],
        partitions: Mapping[TopicPartition, SavedPartition],
    ) -> dict[str, SavedFile]:
        contents = {
            METADATA_FILE: encode_export(export),
            GROUPS_FILE: groups.encode(committed),
            f"{LOGS}/{CLEAN_SHUTDOWN_FILE}": b"{}",
        }
        for file in CHECKPOINTS:
            offsets = {
                name: each.start_offset if file == LOG_START_FILE else each.end_offset
                for name, each in partitions.items()
            }
            lines = [f"{name.topic} {name.partition} {at}" for name, at in offsets.items()]
            contents[f"{LOGS}/{file}"] = _lines(lines)
        return {name: write_file(self._target / name, data) for name, data in contents.items()}


def _check_topics(led: Led, tree: Mapping[str, bytes], *, is_all: bool) -> None:
    """The metadata were read after the broker was asked; ValueError where they differ. UserError
    for a topic that is to be read and that the broker's answer leaves out, as it does where its
    client has no right to describe it."""
    for path in sorted(tree):
        topic = path.rpartition("/")[2]
        is_read = is_all or topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
        if is_read and parent_of(path) == records.TOPICS and topic not in led.counts:
            raise UserError(
                f"topic {topic} may not be described, or was created meanwhile",
                "let the client Describe all topics, and run it again",
            )
    ids = {name.topic: topic_id for name, topic_id in led.partitions.items()}
    for topic, topic_id in ids.items():
        path = records.topic_path(topic)
        known = records.decode_topic(path, tree[path]) if path in tree else None
        found = None if known is None else (known.topic_id, len(known.replicas))
        if found != (topic_id, led.counts[topic]):
            raise ValueError(f"topic {topic} was created, changed or deleted meanwhile")


def _is_compacted(tree: Mapping[str, bytes], topic: str) -> bool:
    path = records.topic_config_path(topic)
    own = records.decode_configs(path, tree[path]) if path in tree else {}
    return topic == TRANSACTIONS_TOPIC or "compact" in own.get("cleanup.policy", "")


def _way_out(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit of open files (ulimit -n), or name fewer topics with --topic"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "name a directory, in one that is there"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "run the backup as the user whose broker it is"
    if error.errno in file_operations.NO_SPACE:
        return "make room, and run it again: it goes on where it was"
    return "run it again: it goes on where it was"


def _export(tree: Mapping[str, bytes], now_ms: int) -> Export:
    moment = datetime.fromtimestamp(now_ms // 1000, UTC)
    return Export.of(tree, f"{moment:%Y-%m-%dT%H:%M:%SZ}")


def _known(topic_id: UUID | None) -> UUID:
    if topic_id is None:
        raise ValueError("a log has no topic id")
    return topic_id


def _lines(lines: Sequence[str]) -> bytes:
    """A checkpoint in Apache Kafka's form."""
    return "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]).encode()


def _small_files(directory: Path, log: HeldLog, end: int, copies: Copies) -> dict[str, SavedFile]:
    text = f"version: 0\ntopic_id: {uuid_text(_known(log.topic_id))}"
    epochs = [f"{epoch} {start}" for epoch, start in log.epochs if start <= end]
    contents = {PARTITION_METADATA_FILE: text.encode(), LEADER_EPOCH_FILE: _lines(epochs)}
    contents |= log.snapshots(end)
    return {name: copies.write(directory / name, data) for name, data in contents.items()}


def _places(
    known: Iterable[tuple[Path, Mapping[TopicPartition, SavedPartition]]],
    name: TopicPartition,
    topic_id: UUID | None,
    file: str,
) -> Iterable[tuple[Path, SavedFile]]:
    """Where earlier backups have a file of the same log."""
    for backup, partitions in known:
        saved = partitions.get(name)
        if saved is not None and saved.topic_id == topic_id and file in saved.files:
            yield backup / LOGS / str(name) / file, saved.files[file]


def _linked(place: Path, target: Path, saved: SavedFile) -> bool:
    """Whether the saved file is in its new place now, or was there. False: it must be copied."""
    try:
        with opened(place) as handle:
            if os.fstat(handle).st_size != saved.size_bytes:
                return False
        if place != target:
            target.unlink(missing_ok=True)
            os.link(place, target, follow_symlinks=False)
    except (OSError, ValueError):
        return False
    return True


def _remove_others(target: Path, manifest: Manifest) -> None:
    """Files of an earlier run that are not in this backup."""
    wanted = {str(name): each.files for name, each in manifest.partitions.items()}
    for path in (target / LOGS).iterdir():
        if not stat.S_ISDIR(path.lstat().st_mode):
            if f"{LOGS}/{path.name}" not in manifest.files:
                path.unlink()
            continue
        files = wanted.get(path.name, {})
        for file in path.iterdir():
            if file.name not in files:
                file.unlink()
        if path.name not in wanted:
            path.rmdir()
    for path in target.glob("*.tmp"):
        path.unlink()
