"""Logs in the data directories that are no replica's: of deleted topics, and strays.

Place in the flow: when topics are deleted, and once after the first image of a start, in the lane
of each data directory (`log_lanes.py`). A log that is open is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from kbroker.log.engine import file_operations
from kbroker.log.engine.partition_log import deleted_path
from kbroker.log.opening import placement

if TYPE_CHECKING:
    from kbroker.log.opening.data_directory import DataDirectory
    from kbroker.log.upkeep.removals import Removals
    from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")


class Logs(Protocol):
    """What this asks of the log manager."""

    @property
    def removals(self) -> Removals: ...

    def is_free(self, directory: DataDirectory, name: TopicPartition) -> bool: ...

    def set_aside(self, directory: DataDirectory, name: TopicPartition, path: Path) -> None: ...

    def names_changed(self, directory: DataDirectory, name: TopicPartition) -> None: ...


def delete_of_topics(
    logs: Logs, directories: Iterable[DataDirectory], deleted: Mapping[UUID, str]
) -> None:
    """Removes what a crash between the metadata and the files left of deleted topics, by id and
    name, or a removal that failed; OSError if that fails again. Each data directory is listed once,
    for all the topics: it may hold tens of thousands of logs."""
    names = frozenset(deleted.values())
    failure: OSError | None = None
    for directory in directories:
        for name, path in directory.logs(names).items():
            try:
                if placement.is_of_topics(deleted, name, path):
                    _delete(logs, directory, name, path)
            except OSError as error:
                logger.error("%s cannot be deleted: %s", path, error)
                failure = failure or error
    if failure is not None:
        raise failure


def _delete(logs: Logs, directory: DataDirectory, name: TopicPartition, path: Path) -> None:
    if logs.is_free(directory, name):
        target = deleted_path(path)
        file_operations.rename(path, target)
        logs.names_changed(directory, name)
        directory.names.discard(name)
        logs.removals.schedule(target)


def set_aside_strays(
    logs: Logs,
    directories: Iterable[DataDirectory],
    is_here: Callable[[TopicPartition, UUID], bool],
) -> None:
    """Logs of no replica that is here: deleted or reassigned while this broker was away."""
    for directory in directories:
        for name, path in directory.logs().items():
            try:
                topic_id = placement.topic_id_of(path)
                stray = topic_id is not None and not is_here(name, topic_id)
                if stray and logs.is_free(directory, name):
                    logs.set_aside(directory, name, path)
            except OSError as error:
                logger.error("%s cannot be set aside: %s", path, error)
