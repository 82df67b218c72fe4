"""GroupStore: what groups are, made to last in `__consumer_offsets`, by whoever leads there.

    controller's thread   -> before      partitions that are led elsewhere now are closed
                             follow      those gained are opened and loaded
    GroupCoordinator      -> write_group, delete_group: one batch each, appended with acks=-1
    anybody               -> state_of    NONE, or 14 loading, 15 no topic, 16 another's

The table (C) holds the committed offsets and whether a partition is ours; whatever is written goes
through it, so that order in memory is order in the log. This file knows which partitions this
broker leads. A group's outbox brings its states in their order; where a group was made anew under
the same id (its partition was lost and came back), what the one before still has to write is
refused: a later incarnation is not written over.

A partition without records is active at once; the others wait for the loader's thread, which
begins behind the ready line. With one replica an append is all that acks=-1 asks for; with
followers `done` waits for the high watermark.

What is lost is closed before its log is told who leads now, and so also where that log, or another
of the same image, cannot follow: from then on it may lose what its leader does not have, and nobody
is to be told of that.

A partition whose write hangs is not ours at once, and its groups go when the write is over; if it
is gained again, it is opened then (`_look`). The controller's thread waits 20 ms for all of them.

Locks: one per partition, around the look at the last incarnation and the append; below it the
table's. `done` is called without it. `before` and `follow` run on the controller's thread only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.coordinator.group._groups import Written, partition_for
from kbroker.coordinator.group.group_records import encode_group, group_key
from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines
from kbroker.metadata.image import OFFSETS_TOPIC

if TYPE_CHECKING:
    from kbroker.coordinator.group.images import GroupImage
    from kbroker.metadata.image import ClusterImage, ImageDelta, TopicImage
    from kbroker.replica._replica import Replica

logger: Final = logging.getLogger("kbroker.groups")
lines: Final = LogLines(logger)

# For who has the locks of partitions that are lost, on the controller's thread, for all together.
LOCK_WAIT_MS: Final = 20

Records = Sequence[tuple[bytes, bytes | None]]


class Table(Protocol):
    """What the store asks of the table of offsets, `_groups.GroupTable`."""

    def set_partition_count(self, count: int) -> None: ...

    def open(self, partition: int, replica: Replica, wait_ms: int = ...) -> bool: ...

    def activate(self, partition: int) -> None: ...

    def close(self, partition: int, wait_ms: int = ...) -> bool: ...

    def state_of(self, group_id: str) -> int: ...

    def append(self, partition: int, records: Records, written: Written) -> int: ...

    def delete_group(self, group_id: str, records: Records, written: Written) -> int: ...

    def written_before(self, group_id: str, written: Written) -> int: ...

    def when_replicated(
        self, written: Written, code: int, done: Callable[[ErrorCode], object]
    ) -> None: ...


class Loader(Protocol):
    """Who brings partitions up and forgets topics, on a thread of its own; see loader.py."""

    def load(self, partition: int, replica: Replica, leader_epoch: int) -> None: ...

    def cancel(self, partitions: Sequence[int]) -> None: ...

    def unload(self, partitions: Sequence[int], count: int) -> None: ...

    def forget_topic(self, topic: TopicImage) -> None: ...


class _Gain(NamedTuple):
    """A partition that this broker leads from now on."""

    replica: Replica
    leader_epoch: int


class OffsetsStore:
    """See the head of this file."""

    def __init__(
        self,
        table: Table,
        loader: Loader,
        replica_of: Callable[[str, int], Replica | None],
        node_id: int,
        again: Callable[[Callable[[], None]], object] = lambda call: None,
    ) -> None:
        """`replica_of` gives the replica of a partition that is here. `again` has something done on
        the controller's thread, a little later."""
        self._table = table
        self._loader = loader
        self._replica_of = replica_of
        self._node_id = node_id
        self._again = again
        self._led: dict[int, Replica] = {}
        # Lost, and somebody is at a write there that hangs; with the replica of those gained since.
        self._late: dict[int, _Gain | None] = {}
        self._looks = False  # for the late ones, soon
        self._writers: list[_Writer] = []

    # --- leadership: the controller's thread ------------------------------------------------------

    def before(self, delta: ImageDelta) -> None:
        """This is to be applied."""
        for topic in (*delta.created, *delta.changed):
            if topic.name == OFFSETS_TOPIC:
                elsewhere = {
                    each.index for each in topic.partitions if each.leader != self._node_id
                }
                self._lose([index for index in self._led if index in elsewhere])

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        """The logs are open and the image is about to be published; may come again."""
        for topic in delta.deleted:
            if topic.name == OFFSETS_TOPIC:
                self._lose(list(self._led))
                self._set_count(0)
            else:
                self._loader.forget_topic(topic)
        for topic in (*delta.created, *delta.changed):
            if topic.name == OFFSETS_TOPIC:
                self._follow_topic(topic)

    def _follow_topic(self, topic: TopicImage) -> None:
        if len(topic.partitions) != len(self._writers):
            self._lose(list(self._led))  # every group may have another place now
            self._set_count(len(topic.partitions))
        lost: list[int] = []
        gained: list[tuple[int, Replica, int]] = []
        for partition in topic.partitions:
            replica = None
            if partition.leader == self._node_id:
                replica = self._replica_of(topic.name, partition.index)
            known = self._led.get(partition.index)
            if known is replica:
                continue
            if known is not None:
                lost.append(partition.index)
            if replica is not None:
                gained.append((partition.index, replica, partition.leader_epoch))
        self._lose(lost)
        for index, replica, leader_epoch in gained:
            self._led[index] = replica
            gain = _Gain(replica, leader_epoch)
            if index in self._late or not self._begin(index, gain):
                self._note_late(index, gain)

    def _begin(self, index: int, gain: _Gain) -> bool:
        replica, leader_epoch = gain
        if not self._table.open(index, replica):
            return False
        is_empty = replica.log_end_offset == replica.log_start_offset
        if is_empty and replica.leader_epoch >= leader_epoch:  # nothing is on its way into it
            self._table.activate(index)
        else:
            self._loader.load(index, replica, leader_epoch)
        return True

    def _lose(self, partitions: Sequence[int]) -> None:
        if not partitions:
            return
        self._loader.cancel(partitions)
        wait_ms = LOCK_WAIT_MS
        closed: list[int] = []
        for index in partitions:
            del self._led[index]
            self._writers[index] = _Writer()  # what the one before still writes is of an older term
            if self._table.close(index, wait_ms):
                closed.append(index)
                self._late.pop(index, None)
            else:
                wait_ms = 0
                self._note_late(index, None)
        self._loader.unload(closed, len(self._writers))

    def _note_late(self, index: int, gain: _Gain | None) -> None:
        if index not in self._late:
            name = f"{OFFSETS_TOPIC}-{index}"
            lines.write(logging.WARNING, name, "%s: its groups go when a write is over", name)
        self._late[index] = gain
        if not self._looks:
            self._looks = True
            self._again(self._look)

    def _look(self) -> None:
        """Whether what is late can be done now."""
        self._looks = False
        late, self._late = self._late, {}
        for index, gain in late.items():
            if not self._table.close(index, 0):
                self._note_late(index, gain)
                continue
            self._loader.unload([index], len(self._writers))
            if gain is not None and not self._begin(index, gain):
                self._note_late(index, gain)

    def _set_count(self, count: int) -> None:
        # Those that are no more are cleared when there are as many again.
        self._late = {index: it for index, it in self._late.items() if index < count}
        self._writers = [_Writer() for _ in range(count)]
        self._table.set_partition_count(count)

    # --- groups: any thread -----------------------------------------------------------------------

    def state_of(self, group_id: str) -> ErrorCode:
        """NONE when this broker owns the group; else what its clients are told."""
        return ErrorCode(self._table.state_of(group_id))

    def write_group(
        self, image: GroupImage, incarnation: int, done: Callable[[ErrorCode], None]
    ) -> None:
        """Append the group's record; `done` is called once, without any lock held."""
        writers = self._writers
        if not writers:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        partition = partition_for(image.group_id, len(writers))
        record = (group_key(image.group_id), encode_group(image))
        written = Written()
        code = writers[partition].write(
            image.group_id,
            incarnation,
            lambda: self._table.append(partition, [record], written),
        )
        self._table.when_replicated(written, code, done)

    def delete_group(
        self, group_id: str, in_log: Callable[[], object], done: Callable[[ErrorCode], None]
    ) -> None:
        """Append tombstones for all of the group's offsets and for itself, it being the last."""
        writers = self._writers
        if not writers:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        writer = writers[partition_for(group_id, len(writers))]
        written = Written()
        tombstone = [(group_key(group_id), None)]
        code = writer.delete(
            group_id, lambda: self._table.delete_group(group_id, tombstone, written)
        )
        if code is ErrorCode.NONE:
            in_log()
        self._table.when_replicated(written, code, done)

    def when_settled(self, group_id: str, done: Callable[[ErrorCode], object]) -> None:
        """`done` is called once, when the followers have what was written of the group by now."""
        written = Written()
        code = self._table.written_before(group_id, written)
        self._table.when_replicated(written, code, done)


class _Writer:
    """The writes of groups to one partition, one after the other."""

    __slots__ = ("_incarnations", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._incarnations: dict[str, int] = {}  # as written last, while this broker leads

    def write(self, group_id: str, incarnation: int, append: Callable[[], int]) -> ErrorCode:
        with self._lock:
            if incarnation < self._incarnations.get(group_id, incarnation):
                return ErrorCode.NOT_COORDINATOR  # of this group, which is no more
            code = ErrorCode(append())
            if code is ErrorCode.NONE:
                self._incarnations[group_id] = incarnation
            return code

    def delete(self, group_id: str, append: Callable[[], int]) -> ErrorCode:
        with self._lock:
            code = ErrorCode(append())
            if code is ErrorCode.NONE:
                self._incarnations.pop(group_id, None)
            return code
