"""The data directories of this broker: whose they are, and which of them are not here.

Place in the flow: three steps of the start. `identify` reads what each directory says of itself,
before anything is touched. `look`, with the metadata store open and the logs not yet: which
directories has this broker used that are not there now? A disk that is not mounted leaves an empty
directory; a broker that filled it would begin its partitions again at 0 and hide what it wrote
when the disk comes back. `claim`, with the controller up: new directories get an id, and the store
learns which there are.

A directory is known by the id in its `meta.properties`; the store has the ids that this broker has
used (`/brokers/directories/N`). While one of them is missing, entries of log.dirs that say nothing
of themselves are left alone, and a partition whose log is in none of the others stays offline. When
every partition has its log, the missing directory held nothing that is needed, and is forgotten.

A directory with an id that the store does not know is `foreign`: a copy, or another broker's past.
Where other brokers have replicas of ours, it makes a start lossy, and so does a log that is not
here.

On the main thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kbroker.errors import DataDirectoryError
from kbroker.log.opening.placement import Absence, topic_id_of
from kbroker.metadata import directory_format
from kbroker.metadata.controller.directory_nodes import (
    load_replicas,
    load_used_directories,
    save_used_directories,
)
from kbroker.metadata.controller.records import used_directories_path
from kbroker.metadata.meta_properties import MetaProperties, ensure, load
from kbroker.metadata.store.embedded import DATABASE_FILE
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.metadata.store.base import MetadataStore

logger: Final = logging.getLogger("kbroker.server")

LOGGED_NAMES_MAX: Final = 5


class Directories:
    """See the head of this file."""

    def __init__(self, paths: Sequence[Path], store_path: Path, node_id: int) -> None:
        """`store_path` is where the metadata store is, or will be."""
        self._paths: Final = tuple(paths)
        self._store_path: Final = store_path
        self._node_id: Final = node_id
        self._found: dict[Path, MetaProperties | None] = {}
        self._missing: dict[str, str] = {}  # where each was, by its id
        self._used: dict[str, str] = {}  # as the store has them, by their ids
        self.absence = Absence()
        self.foreign: frozenset[Path] = frozenset()
        self.lack_logs = False  # of partitions that other brokers have as well

    def identify(self) -> str | None:
        """The cluster that they all belong to, None if they are new; DataDirectoryError if not."""
        for path in self._paths:
            directory_format.load(path)  # refuses one that this kbroker cannot read
        self._found = {path: load(path) for path in self._paths}
        known = [(path, found) for path, found in self._found.items() if found is not None]
        if not known:
            return None
        first, meta = known[0]
        for path, _ in known:
            ensure(path, meta.cluster_id, self._node_id)
        if self._store_path in self._found and self._found[self._store_path] is None:
            raise DataDirectoryError(
                f"{self._store_path}, where the metadata store should be, is new, and {first} "
                f"belongs to cluster {meta.cluster_id}",
                "mount it, or name the directory that has metadata.db first in log.dirs",
            )
        self._refuse_another_order()
        return meta.cluster_id

    def _refuse_another_order(self) -> None:
        """A new store beside the one that is there would know none of its topics."""
        if (self._store_path / DATABASE_FILE).exists():
            return
        for path in self._paths:
            if (path / DATABASE_FILE).exists():
                raise DataDirectoryError(
                    f"the metadata store is in {path}, and should be in {self._store_path}, the"
                    " first entry of log.dirs",
                    f"name {path} first in log.dirs",
                )

    def look(self, store: MetadataStore, *, shared: bool = False) -> Absence:
        """What this broker has used and is not here. Says so in the log.

        `shared`: other brokers may have replicas of the partitions here.
        """
        here = {
            found.directory_id: path for path, found in self._found.items() if found is not None
        }
        known = load_used_directories(store, self._node_id)
        if known:
            self.foreign = frozenset(here[ident] for ident in here.keys() - known.keys() if ident)
        self._missing = {ident: path for ident, path in known.items() if ident not in here}
        if not (self._missing or shared):
            return self.absence
        lost = [str(name) for name in self._without_a_log(store)]
        self.lack_logs = bool(lost)
        if not self._missing:
            return self.absence
        were = ", ".join(self._missing.values())
        if not lost:
            logger.warning("%s is not here any more; every partition has its log elsewhere", were)
            self._missing = {}
            return self.absence
        logger.error(
            "%s is not here, and %d partitions have no log anywhere else here: %s%s. They stay "
            "offline -> mount it and start again; if it is lost, %s",
            were, len(lost), ", ".join(lost[:LOGGED_NAMES_MAX]),
            ", ..." if len(lost) > LOGGED_NAMES_MAX else "",
            self._if_lost(shared),
        )  # fmt: skip
        unused = frozenset(path for path, found in self._found.items() if found is None)
        self.absence = Absence(tuple(self._missing.values()), unused)
        return self.absence

    def _if_lost(self, shared: bool) -> str:
        if not shared:
            return "delete their topics"
        node = used_directories_path(self._node_id)
        return f"delete {node} in ZooKeeper and start again: other brokers' replicas are fetched"

    def claim(self, store: MetadataStore, cluster_id: str) -> None:
        """Every directory that is used is this cluster's and this broker's from now on."""
        used = dict(self._missing)
        for path in self._paths:
            if path not in self.absence.unused:
                meta = self._found[path] = ensure(path, cluster_id, self._node_id)
                if meta.directory_id:  # those of early versions of Kafka have none
                    used[meta.directory_id] = os.path.abspath(path)
        self._used = used
        save_used_directories(store, self._node_id, used)

    def in_use(self) -> Iterator[Path]:
        """Those that this broker has claimed, or claims."""
        return (path for path in self._paths if path not in self.absence.unused)

    def say_again(self, store: MetadataStore) -> None:
        """To a store that an operator may have made forget it while this broker runs (`claim` has
        been here or will be); from the controller's thread."""
        if self._used:
            save_used_directories(store, self._node_id, self._used)

    def _without_a_log(self, store: MetadataStore) -> Iterator[TopicPartition]:
        """Partitions that should have a log here and have none in the directories that are."""
        there = [path for path, found in self._found.items() if found is not None]
        for topic, topic_id, replicas in load_replicas(store):
            for index, nodes in enumerate(replicas):
                name = TopicPartition(topic, index)
                if self._node_id in nodes and not any(
                    _has_log(path / str(name), topic_id) for path in there
                ):
                    yield name


def _has_log(path: Path, topic_id: UUID) -> bool:
    """Whether the topic's log is there, and not that of a deleted topic of the same name. Where
    that cannot be read, it is."""
    try:
        return path.is_dir() and topic_id_of(path) in (topic_id, None)
    except OSError:
        return True
