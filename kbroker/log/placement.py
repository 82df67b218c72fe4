"""Where the log of a partition is among the data directories.

A log is known by its directory's name and by the topic id in it: a name may have belonged to a
deleted topic, and an id that a power cut or a bad sector took is known to the metadata store. The
same log twice is nobody's to choose from: the newer end may be in either, and both have been
written to when a disk was away for a while. Such a start is refused, as in Apache Kafka.

An id of which one character has changed is that topic's still: ids are random, and none comes so
near another by chance.

Pure looking, on the thread that starts the broker or the controller's. OSError where a directory
cannot be read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.errors import DataDirectoryError
from kbroker.log.checkpoints import (
    PARTITION_METADATA_FILE,
    CheckpointError,
    read_partition_metadata,
)
from kbroker.log.data_directory import DataDirectory
from kbroker.log.held_log import HeldLog
from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")


_BITS_OF_A_CHARACTER: Final = 6  # as the file has it


class Place(NamedTuple):
    """A directory of that name; `topic_id` None: it has none that can be read."""

    directory: DataDirectory
    path: Path
    topic_id: UUID | None


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
    paths = [(directory, directory.path / str(name)) for directory in directories]
    return [Place(each, path, topic_id_of(path)) for each, path in paths if path.exists()]


def topic_id_of(path: Path) -> UUID | None:
    """The topic whose log is in the directory; None if that cannot be read from it."""
    try:
        return read_partition_metadata(path / PARTITION_METADATA_FILE)
    except CheckpointError as error:
        logger.warning("%s", error)
        return None


def may_be(topic_id: UUID | None, wanted: UUID) -> bool:
    """Whether an id that was read, or could not be, may be the wanted one behind damage."""
    return topic_id is None or (topic_id.int ^ wanted.int).bit_count() <= _BITS_OF_A_CHARACTER


def emptiest(
    directories: Sequence[DataDirectory],
    held: Iterable[HeldLog],
    unclaimed: Mapping[DataDirectory, int] = MappingProxyType({}),
) -> DataDirectory:
    """Where there are fewest logs, as in Apache Kafka; of those that have as few, where the fewest
    bytes are. `unclaimed` are as many behind a crash that nobody has open yet."""
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
