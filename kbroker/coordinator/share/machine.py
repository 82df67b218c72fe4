"""Share state as a machine of the coordinator's runtime: records of `__share_group_state`.

A state is its last snapshot with the updates after it; a snapshot without a value ends it. A record
of a version that this broker does not know is skipped, one that cannot be read is left out with a
line: the state is then what the other records say. Updates whose snapshot is not in the log, nor a
later one, change nothing, and have a line for all of them. States of topics that were deleted while
the partition was elsewhere get tombstones when it is active and the image is published in which it
is this broker's: in an older one a topic that is new counts as deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share.records import (
    SNAPSHOT,
    RecordError,
    Snapshot,
    UnknownVersionError,
    decode_key,
    decode_value,
)
from kbroker.coordinator.share.state import ShareState
from kbroker.errors import InvariantError
from kbroker.limits import LOG_GROUP_LINES_MAX
from kbroker.log_lines import LogLines
from kbroker.metadata.image import SHARE_STATE_TOPIC

if TYPE_CHECKING:
    from kbroker.coordinator.runtime.machine import Record
    from kbroker.metadata.image import TopicImage

logger: Final = logging.getLogger("kbroker.share-state")
lines: Final = LogLines(logger, lines_max=LOG_GROUP_LINES_MAX)

# `when_published(partition, call)`: when the image that is being followed is published.
WhenPublished = Callable[[int, Callable[[], object]], object]


class Table(Protocol):
    def term(self, partition: int) -> int: ...


class States(Protocol):
    """The coordinator: states come and go with a partition."""

    def load(
        self, partition: int, term: int, states: Mapping[SharePartition, ShareState]
    ) -> None: ...

    def unload(self, partitions: Iterable[int]) -> None: ...

    def forget_topic(self, topic_id: UUID) -> None: ...

    def forget_others(self, partition: int) -> None: ...

    def state_count(self, partition: int | None = None) -> int: ...


class ShareStateMachine:
    """See the head of this file. `attach` comes before the loader's start."""

    topic: Final = SHARE_STATE_TOPIC
    name: Final = "share-state"
    log_lines_max: Final = LOG_GROUP_LINES_MAX
    waits_for_followers: Final = False

    def __init__(self, table: Table, when_published: WhenPublished) -> None:
        self._table = table
        self._when_published = when_published
        self._states: States | None = None

    def attach(self, states: States) -> None:
        self._states = states

    def _attached(self) -> States:
        if self._states is None:
            raise InvariantError("a machine without states")
        return self._states

    def replay(self, partition: int) -> ShareStateReplay:
        term = self._table.term(partition)
        return ShareStateReplay(partial(self._attached().load, partition, term))

    def active(self, partition: int) -> None:
        forget = partial(self._attached().forget_others, partition)
        self._when_published(partition, forget)

    def unloaded(self, partitions: frozenset[int], count: int) -> None:
        self._attached().unload(partitions)

    def topic_deleted(self, topic: TopicImage) -> None:
        self._attached().forget_topic(topic.topic_id)

    def contents(self, partition: int) -> Sequence[tuple[str, int]]:
        return [("share-partitions", self._attached().state_count(partition))]


class ShareStateReplay:
    """One load of one partition."""

    def __init__(self, loaded: Callable[[Mapping[SharePartition, ShareState]], object]) -> None:
        self._states: dict[SharePartition, ShareState] = {}
        self._without: dict[SharePartition, int] = {}  # the first update that has no snapshot
        self._loaded = loaded

    def record(self, record: Record) -> None:
        try:
            self._apply(record)
        except UnknownVersionError as error:
            logger.debug("a record at offset %d is skipped: %s", record.offset, error)
        except RecordError as error:
            message = "a record of share state is left out at offset %d: %s"
            lines.write(logging.WARNING, "left out", message, record.offset, str(error))

    def _apply(self, record: Record) -> None:
        kind, key = decode_key(record.key or b"")  # none: of a log from elsewhere
        if record.value is None:
            if kind == SNAPSHOT:
                self._states.pop(key, None)
                self._without.pop(key, None)
            return
        value = decode_value(kind, record.value)
        before = self._states.get(key)
        if isinstance(value, Snapshot):
            self._without.pop(key, None)
        elif before is None or before.snapshot_epoch != value.snapshot_epoch:
            self._without.setdefault(key, record.offset)
        after = ShareState.after(before, value, record.offset)
        if after is not None:
            self._states[key] = after

    def loaded(self) -> None:
        if self._without:
            key, offset = next(iter(self._without.items()))
            lines.write(
                logging.WARNING,
                "without a snapshot",
                "what was written for %d share-partitions is left out, for %s from offset %d on:"
                " the snapshot before it is not in the log; they go on as they were before that,"
                " and records that were acknowledged may be delivered again",
                len(self._without), key.coordinator_key, offset,
            )  # fmt: skip
            self._without = {}
        self._loaded(self._states)
        self._states = {}
