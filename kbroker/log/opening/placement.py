"""Where the log of a partition is among the data directories.

A log is known by its directory's name and by the topic id in it: a name may have belonged to a
deleted topic, and an id that a power cut or a bad sector took is known to the metadata store. A
broker cannot choose between two copies of a log: the newer end may be in either, and both have been
written to when a disk was away for a while. Such a start is refused, as in Apache Kafka.

An id of which one character has changed is that topic's still: ids are random, and none comes so
near another by chance.

Pure looking, on the thread that starts the broker or the controller's. OSError where a directory
cannot be read.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.log.engine import file_operations
from kbroker.log.engine._results import LogFiles
from kbroker.log.engine.checkpoints import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    CheckpointError,
    read_partition_metadata,
    topic_id_in,
)
from kbroker.log.opening.data_directory import DataDirectory
from kbroker.log.opening.held_log import HeldLog
from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")


_BITS_OF_A_CHARACTER: Final = 6  # as the file has it


class Place(NamedTuple):
    """A directory of that name; `topic_id` None: it has none that can be read. `files`: its
    content, if that was listed, for an opening that follows at once."""

    directory: DataDirectory
    path: Path
    topic_id: UUID | None
    files: LogFiles | None = None


@dataclass(frozen=True)
class Absence:
    """Data directories that this broker has used and that are not here now.

    `were` is where they were last, for a person to read; `unused` are entries of log.dirs that may
    be the places where they are to be mounted, so nothing is written there.
    """

    were: tuple[str, ...] = ()
    unused: frozenset[Path] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.were)


def places_of(directories: Sequence[DataDirectory], name: TopicPartition) -> list[Place]:
    """Every directory that has this partition's name; OSError if it is no directory."""
    found: list[Place] = []
    for directory in directories:
        path = directory.path / str(name)
        files = file_operations.look_at_log(path, PARTITION_METADATA_FILE, LEADER_EPOCH_FILE)
        if files is not None:
            found.append(Place(directory, path, topic_id_of(path, files.metadata), files))
    return found


def topic_id_of(path: Path, metadata: bytes | None = None) -> UUID | None:
    """The topic whose log is in the directory; None if that cannot be read from it. `metadata`: the
    content of its file, if it was read already."""
    try:
        if metadata is not None:
            return topic_id_in(metadata, path)
        return read_partition_metadata(path / PARTITION_METADATA_FILE)
    except CheckpointError as error:
        logger.warning("%s", error)
        return None


def is_of_topics(topics: Mapping[UUID, str], name: TopicPartition, path: Path) -> bool:
    """Whether the log in the directory is of one of these topics, by id and name."""
    topic_id = topic_id_of(path)
    return topic_id is not None and topics.get(topic_id) == name.topic


def may_be(topic_id: UUID | None, wanted: UUID) -> bool:
    """Whether an id that was read, or could not be, may be the wanted one, damaged."""
    return topic_id is None or (topic_id.int ^ wanted.int).bit_count() <= _BITS_OF_A_CHARACTER


def emptiest(
    directories: Sequence[DataDirectory],
    held: Iterable[HeldLog],
    unclaimed: Mapping[DataDirectory, int] = MappingProxyType({}),
) -> DataDirectory:
    """The one with the fewest logs, as in Apache Kafka; of equals, the one with the fewest bytes.
    `unclaimed` are as many logs after a crash that are not open yet."""
    if len(directories) == 1:
        return directories[0]
    held = list(held)
    counts = Counter(it.directory for it in held)
    counts.update(unclaimed)
    fewest = min(counts[each] for each in directories)
    sizes = dict.fromkeys((each for each in directories if counts[each] == fewest), 0)
    if len(sizes) > 1 and fewest:
        for it in held:
            if it.directory in sizes:
                sizes[it.directory] += it.log.size_bytes
    return min(sizes, key=sizes.__getitem__)


def directory_at(path: str, paths: Set[str], usable: Iterable[DataDirectory]) -> DataDirectory:
    """The one of that absolute path, as DescribeLogDirs names it; KafkaError: there is none among
    `paths`, which are absolute, or it is offline."""
    if path not in paths:
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")
    for directory in usable:
        if os.path.abspath(directory.path) == path:
            return directory
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")


def refuse_copies(directories: Sequence[DataDirectory]) -> None:
    """DataDirectoryError if a log is in two directories."""
    if len(directories) < 2:
        return
    seen: dict[TopicPartition, list[Path]] = {}
    for directory in directories:
        for name, path in directory.logs().items():
            others = seen.setdefault(name, [])
            for other in others:
                ids = {topic_id_of(path), topic_id_of(other)}
                if None in ids or len(ids) == 1:
                    raise DataDirectoryError(
                        f"the log of {name} is in two data directories, {other} and {path}",
                        "move one of the two away: the one on the disk that failed, or was away,"
                        " last",
                    )
            others.append(path)
