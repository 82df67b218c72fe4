"""Classic groups as a machine of the coordinator's runtime: records of `__consumer_offsets`.

The table applies committed offsets in C. The records of groups, of which the last one counts, are
collected here, and go to the coordinator before the partition turns active, so that no client meets
a group without its members. A record that is no group is left out with one line.

Deleted topics' offsets get tombstones, those of open transactions, too; those of a topic that was
created again under the same name differ by the topic's id. The loader's queue does not outlive a
stop, so what a load finds of topics that are gone is removed after it. A commit that has met its
topic still, and whose topic was deleted before its marker came, is removed with the marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.coordinator.group.group_records import (
    RecordError,
    decode_group,
    group_key,
    group_of_key,
    is_of_a_consumer_group,
    is_of_a_share_group,
    is_of_a_streams_group,
)
from kbroker.coordinator.group.kinds import LoadOfKind, settle
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.errors import ErrorCode, InvariantError
from kbroker.limits import LOG_GROUP_LINES_MAX
from kbroker.log_lines import LogLines
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.outside_text import printable

if TYPE_CHECKING:
    from kbroker.coordinator.group._groups import CommittedOffset, ShardStatistics
    from kbroker.coordinator.group.images import GroupImage
    from kbroker.coordinator.runtime.machine import Record
    from kbroker.metadata.image import TopicImage

logger: Final = logging.getLogger("kbroker.groups")
# The bound on log lines of each group.
lines: Final = LogLines(logger, lines_max=LOG_GROUP_LINES_MAX)

NO_TOPIC_ID: Final = bytes(16)  # no topic has it
# In one batch, when records of a group are removed whose id another one has.
TOMBSTONES_MAX: Final = 500
# A group id, the group that has it, and tombstones of the other one.
Superseded = tuple[str, object | None, list[tuple[bytes, bytes | None]]]
# Group, topic, partition and topic id of an offset that a transaction has committed.
Pending = tuple[str, str, int, bytes | None]


class Table(Protocol):
    """What the machine asks of the table of offsets, `_groups.GroupTable`."""

    def groups(self, partition: int) -> list[str]: ...

    def statistics(self, partition: int) -> ShardStatistics: ...

    @property
    def partition_count(self) -> int: ...

    def of_topic(self, topic: str) -> list[tuple[str, list[CommittedOffset]]]: ...

    def pending_offsets(self, partition: int, producer_id: int | None = ...) -> list[Pending]: ...

    def pending_groups(self, partition: int) -> set[str]: ...

    def append(self, partition: int, records: Sequence[tuple[bytes, bytes | None]]) -> int: ...

    def offsets_of_others(
        self, partition: int, topic_id_of: Callable[[str], bytes | None]
    ) -> list[tuple[str, list[CommittedOffset]]]: ...

    def remove_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]],
        *,
        topic_id: bytes | None = ...,
    ) -> int: ...


class OtherReplay(LoadOfKind, Protocol):
    """One load of groups of another kind."""

    def record(self, record: Record) -> bool:
        """False: the record is of no kind that is known. RecordError: it cannot be read."""
        ...

    def loaded(self) -> None: ...


MakeReplay = Callable[[], OtherReplay]
# Whether a key is of a kind of groups, and the load of those.
Others = tuple[Callable[[bytes], bool], MakeReplay]


class Groups(Protocol):
    """The coordinator: groups come and go with a partition."""

    def load(self, images: Sequence[GroupImage]) -> None: ...

    def ensure_group(self, group_id: str) -> None: ...

    def find(self, group_id: str) -> object | None: ...

    def unload(self, lost: Callable[[str], bool]) -> object: ...


class GroupMachine:
    """See the head of this file. `attach` comes before the loader's start."""

    topic: Final = OFFSETS_TOPIC
    name: Final = "groups"
    log_lines_max: Final = LOG_GROUP_LINES_MAX
    waits_for_followers: Final = False

    def __init__(
        self, table: Table, topic_id_of: Callable[[str], bytes | None] | None = None
    ) -> None:
        """`topic_id_of`: the id that a topic has now; None if there is none of that name."""
        self._table = table
        self._topic_id_of = topic_id_of
        self._groups: Groups | None = None
        self._others: Sequence[Others] = ()
        # By partition, from its load on: what is to be removed of groups whose ids others have.
        self._superseded: dict[int, list[Superseded]] = {}

    def attach(
        self,
        groups: Groups,
        consumer: MakeReplay | None = None,
        share: MakeReplay | None = None,
        streams: MakeReplay | None = None,
    ) -> None:
        """The others begin a load of groups of these kinds; None: there are none."""
        self._groups = groups
        pairs = (
            (is_of_a_consumer_group, consumer),
            (is_of_a_share_group, share),
            (is_of_a_streams_group, streams),
        )
        self._others = [(is_theirs, make) for is_theirs, make in pairs if make is not None]

    def _attached(self) -> Groups:
        if self._groups is None:
            raise InvariantError("a machine without groups")
        return self._groups

    def replay(self, partition: int) -> GroupReplay:
        self._superseded.pop(partition, None)
        superseded = partial(self._superseded.__setitem__, partition)
        return GroupReplay(self._table, self._attached(), partition, self._others, superseded)

    def active(self, partition: int) -> None:
        """May be called again where it has failed."""
        for each in self._superseded.get(partition, ()):
            self._remove_superseded(partition, each)
        self._superseded.pop(partition, None)
        self._forget_others(partition)

    def _remove_superseded(self, partition: int, superseded: Superseded) -> None:
        group_id, stays, tombstones = superseded
        for first in range(0, len(tombstones), TOMBSTONES_MAX):
            if self._attached().find(group_id) is not stays:
                return  # the id is that of a later group, perhaps of this kind
            code = self._table.append(partition, tombstones[first : first + TOMBSTONES_MAX])
            if code:
                message = "records of another group with the id %s stay: %s"
                name = ErrorCode(code).name
                lines.write(logging.WARNING, "not removed", message, printable(group_id), name)
                return

    def unloaded(self, partitions: frozenset[int], count: int) -> None:
        self._attached().unload(lambda group_id: partition_for(group_id, count) in partitions)

    def topic_deleted(self, topic: TopicImage) -> None:
        self._forget(topic.name, topic.topic_id.bytes)

    def contents(self, partition: int) -> Sequence[tuple[str, int]]:
        statistics = self._table.statistics(partition)
        return ("groups", statistics.groups), ("offsets", statistics.offsets)

    def marker_comes(self, partition: int, producer_id: int) -> None:
        """A producer's transaction is committed: what it has pending of topics that are gone goes
        before it holds. Any thread."""
        self._remove(self._of_others(self._table.pending_offsets(partition, producer_id)))

    def _forget_others(self, partition: int) -> None:
        """Offsets of topics that were deleted while this broker did not lead the partition."""
        topic_id_of = self._topic_id_of
        if topic_id_of is None:
            return
        gone = self._of_others(self._table.pending_offsets(partition))
        for group_id, offsets in self._table.offsets_of_others(partition, topic_id_of):
            gone += [(group_id, each.topic, each.partition, each.topic_id) for each in offsets]
        count = self._remove(gone)
        if count:
            logger.info("removed %d offsets of topics that are no more", count)

    def _of_others(self, pending: Sequence[Pending]) -> list[Pending]:
        """Those of topics that are gone, or of another of that name now."""
        topic_id_of = self._topic_id_of
        if topic_id_of is None or not pending:
            return []
        now = {topic: topic_id_of(topic) for topic in {topic for _, topic, _, _ in pending}}
        return [
            each
            for each in pending
            if (known := now[each[1]]) is None or each[3] not in (None, known)
        ]

    def _remove(self, gone: Sequence[Pending]) -> int:
        """How many; commits for the topics that have the names now stay."""
        count = 0
        by_topic: dict[tuple[str, bytes], set[tuple[str, int]]] = {}
        for group_id, topic, index, topic_id in gone:
            by_topic.setdefault((group_id, topic_id or NO_TOPIC_ID), set()).add((topic, index))
        for (group_id, topic_id), names in by_topic.items():
            if not self._table.remove_offsets(group_id, sorted(names), topic_id=topic_id):
                count += len(names)
        return count

    def _forget(self, name: str, topic_id: bytes) -> None:
        count = 0
        for group_id, gone in self._of_topic(name, topic_id).items():
            code = self._table.remove_offsets(group_id, sorted(gone), topic_id=topic_id)
            if code == ErrorCode.NONE:
                count += len(gone)
            else:
                lines.write(
                    logging.WARNING,
                    "not forgotten",
                    "offsets of the deleted topic %s stay in group %s: %s",
                    name,
                    group_id,
                    ErrorCode(code).name,
                )
        if count:
            logger.info("removed %d offsets of the deleted topic %s", count, name)

    def _of_topic(self, name: str, topic_id: bytes) -> dict[str, set[tuple[str, int]]]:
        """By group, committed or pending."""
        found: dict[str, set[tuple[str, int]]] = {}
        for group_id, offsets in self._table.of_topic(name):
            its = [each for each in offsets if each.topic_id in (None, topic_id)]
            found.setdefault(group_id, set()).update((name, each.partition) for each in its)
        for partition in range(self._table.partition_count):
            for group_id, topic, index, its_id in self._table.pending_offsets(partition):
                if topic == name and its_id in (None, topic_id):
                    found.setdefault(group_id, set()).add((name, index))
        return found


class GroupReplay:
    """One load of one partition: the last record of each group."""

    def __init__(
        self,
        table: Table,
        groups: Groups,
        partition: int,
        others: Sequence[Others] = (),
        superseded: Callable[[list[Superseded]], object] = lambda found: None,
    ) -> None:
        self._table = table
        self._groups = groups
        self._partition = partition
        self._superseded = superseded
        self._values: dict[str, bytes] = {}
        self._offsets: dict[str, int] = {}
        self._make_others = others
        self._others: dict[MakeReplay, OtherReplay] = {}

    def record(self, record: Record) -> None:
        try:
            if not record.key:
                raise RecordError("it has no key")  # of a log from elsewhere
            group_id = group_of_key(record.key)
            if group_id is None:
                self._record_of_another(record)
                return
        except RecordError as error:
            message = "a record of groups is left out at offset %d: %s"
            lines.write(logging.WARNING, "left out", message, record.offset, str(error))
            return
        if record.value is None:
            self._values.pop(group_id, None)
        else:
            self._values[group_id] = record.value
            self._offsets[group_id] = record.offset

    def _record_of_another(self, record: Record) -> None:
        """Of a group of another kind; one that this broker does not have is passed over."""
        for is_theirs, make in self._make_others:
            if is_theirs(record.key):
                if make not in self._others:
                    self._others[make] = make()
                self._others[make].record(record)

    def loaded(self) -> None:
        name = f"{OFFSETS_TOPIC}-{self._partition}"
        classic = _ClassicLoad(_images(self._values, name), self._offsets)
        gone = list(settle([classic, *self._others.values()]))
        self._groups.load(list(classic.images.values()))
        for others in self._others.values():
            others.loaded()
        for group_id, _ in gone:
            message = "%s has two groups with the id %s, of different kinds: the later one stays"
            lines.write(logging.WARNING, "two kinds", message, name, printable(group_id))
        self._superseded([(id_, self._groups.find(id_), records) for id_, records in gone])
        logger.debug("loaded %s: %d groups", name, len(classic.images))
        with_offsets = {*self._table.groups(self._partition)}
        for group_id in with_offsets | self._table.pending_groups(self._partition):
            self._groups.ensure_group(group_id)


class _ClassicLoad:
    """The classic groups that can be read."""

    def __init__(self, images: Sequence[GroupImage], offsets: Mapping[str, int]) -> None:
        self.images = {image.group_id: image for image in images}
        self.last_offsets = {group_id: offsets[group_id] for group_id in self.images}

    def leave_out(self, group_id: str) -> list[tuple[bytes, bytes | None]]:
        del self.images[group_id]
        return [(group_key(group_id), None)]


def _images(values: dict[str, bytes], name: str) -> list[GroupImage]:
    images: list[GroupImage] = []
    for group_id, value in values.items():
        try:
            images.append(decode_group(group_id, value))
        except RecordError as error:
            lines.write(logging.WARNING, "left out", "%s: left out: %s", name, str(error))
    return images
