"""Which partitions of its topic a coordinator has on this broker, and writes to them in order.

    controller's thread   -> before      partitions that are led elsewhere now are closed
                             follow      those gained are opened and loaded
    the machine           -> write, delete: one append each, in the order of the calls
    any thread            -> state_of    NONE, or 14 loading, 15 no topic, 16 another broker's

The table says whether a partition is ours; whatever is written goes through it, so that order in
memory is order in the log. This file knows which partitions this broker leads.

A partition without records is active at once; the others wait for the loader's thread, which
begins once the broker is ready. With one replica an append is all that acks=-1 asks for; with
followers `done` waits for the high watermark.

What is lost is closed before its log learns who leads now, and so also where that log, or another
of the same image, cannot follow: from then on it may lose what its leader does not have, and no
client may learn of that.

A broker may miss images. A partition has one leader in each epoch, so where this broker leads in
epochs that do not follow one another, others may have led in between. They have responded to
clients by the log, which may have a write that has failed here; and partitions have markers of
their epochs, and refuse those of an earlier one. So the partition is lost and gained then, as it is
where the image of the other leader comes.

A partition whose write hangs is not ours at once, and what is kept there goes when the write is
over; if it is gained again, it is opened then (`_look`). The controller's thread waits 20 ms for
all of them. Where the topic has another number of partitions by then, all of them wait: any may
have a key of that one.

Locks: a writer's for each partition (writer.py); below it the table's. `done` is called without it.
`before` and `follow` run on the controller's thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from kbroker.coordinator.runtime.writer import PartitionWriter
from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines
from kbroker.own_thread import nothing

if TYPE_CHECKING:
    from kbroker.coordinator.runtime.machine import Table
    from kbroker.metadata.image import ClusterImage, ImageDelta, PartitionImage, TopicImage
    from kbroker.replica._replica import Replica

Written = TypeVar("Written")  # what one call has written, in the table's own form

# For the locks of partitions that are lost, on the controller's thread, for all together.
LOCK_WAIT_MS: Final = 20


class Loader(Protocol):
    """What loads partitions and learns of deleted topics, on a thread of its own; see loader.py."""

    def load(self, partition: int, replica: Replica, leader_epoch: int) -> None: ...

    def cancel(self, partitions: Sequence[int]) -> None: ...

    def unload(self, partitions: Sequence[int], count: int) -> None: ...

    def unloads(self, partition: int, count: int) -> bool: ...

    def topic_deleted(self, topic: TopicImage) -> None: ...


class _Gain(NamedTuple):
    """A partition that this broker leads from now on; `leader_epoch`: the newest one."""

    replica: Replica
    leader_epoch: int

    def goes_on(self, partition: PartitionImage) -> bool:
        """Whether no other broker can have led since, where this one leads in that image."""
        return partition.leader_epoch <= self.leader_epoch + 1


class _Late(NamedTuple):
    """A write to one `of` so many partitions hangs; `gain`, once that is over."""

    of: int
    gain: _Gain | None


class CoordinatorStore(Generic[Written]):
    """See the head of this file. A machine's store is one of these, with its own writes."""

    def __init__(
        self,
        topic: str,
        name: str,
        table: Table[Written],
        loader: Loader,
        partition_for: Callable[[str, int], int],
        replica_of: Callable[[str, int], Replica | None],
        node_id: int,
        again: Callable[[Callable[[], None]], object] = lambda call: None,
    ) -> None:
        """`topic` and `name`: of the machine. `replica_of` gives the replica of a partition that is
        here. `again` has something done on the controller's thread, a little later."""
        self._topic = topic
        self._name = name
        self._lines = LogLines(logging.getLogger(f"kbroker.{name}"))
        self._table = table
        self._partition_for = partition_for
        self._loader = loader
        self._replica_of = replica_of
        self._node_id = node_id
        self._again = again
        self._led: dict[int, _Gain] = {}
        self._late: dict[int, _Late] = {}
        self._looks = False  # for the late ones, soon
        self._writers: list[PartitionWriter] = []

    # --- leadership: the controller's thread ------------------------------------------------------

    def before(self, delta: ImageDelta) -> None:
        """This is to be applied."""
        for topic in (*delta.created, *delta.changed):
            if topic.name == self._topic:
                lost = [
                    each.index
                    for each in topic.partitions
                    if (led := self._led.get(each.index)) is not None
                    and not (each.leader == self._node_id and led.goes_on(each))
                ]
                self._lose(lost)

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        """The logs are open and the image is about to be published; may come again."""
        for topic in delta.deleted:
            if topic.name == self._topic:
                self._lose(list(self._led))
                self._set_count(0)
            else:
                self._loader.topic_deleted(topic)
        for topic in (*delta.created, *delta.changed):
            if topic.name == self._topic:
                self._follow_topic(topic)

    def _follow_topic(self, topic: TopicImage) -> None:
        if len(topic.partitions) != len(self._writers):
            self._lose(list(self._led))  # every key may have another place now
            self._set_count(len(topic.partitions))
        lost: list[int] = []
        gained: list[tuple[int, _Gain]] = []
        for partition in topic.partitions:
            gain = None
            if partition.leader == self._node_id:
                replica = self._replica_of(topic.name, partition.index)
                gain = None if replica is None else _Gain(replica, partition.leader_epoch)
            known = self._led.get(partition.index)
            if known and gain and known.replica is gain.replica and known.goes_on(partition):
                self._led[partition.index] = gain
                continue
            if known is not None:
                lost.append(partition.index)
            if gain is not None:
                gained.append((partition.index, gain))
        self._lose(lost)
        for index, gain in gained:
            begun = index not in self._late and self._begin(index, gain)
            self._led[index] = gain  # not before: what raises is tried again
            if not begun:
                self._note_late(index, gain)

    def _begin(self, index: int, gain: _Gain) -> bool:
        replica, leader_epoch = gain
        if any(late.of != len(self._writers) for late in self._late.values()):
            return False  # what is unloaded with them may be of this one by then
        if not self._table.open(index, replica):
            return False
        is_empty = replica.log_end_offset == replica.log_start_offset
        is_led = replica.leader_epoch >= leader_epoch  # nothing is on its way into it
        # Unloading an older term would take from the machine what this one has by then.
        if is_empty and is_led and not self._loader.unloads(index, len(self._writers)):
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
            # What the one before still writes is of an older term.
            self._writers[index] = PartitionWriter()
            if not self._table.close(index, wait_ms):
                wait_ms = 0
                self._note_late(index, None)
            elif (late := self._late.pop(index, None)) is not None:
                self._loader.unload([index], late.of)
            else:
                closed.append(index)
        self._loader.unload(closed, len(self._writers))

    def _note_late(self, index: int, gain: _Gain | None) -> None:
        late = self._late.get(index)
        if late is None:
            where = f"{self._topic}-{index}"
            message = "%s: its %s go when a write is over"
            self._lines.write(logging.WARNING, where, message, where, self._name)
        self._late[index] = _Late(late.of if late else len(self._writers), gain)
        if not self._looks:
            self._looks = True
            self._again(self._look)

    def _look(self) -> None:
        """Whether what is late can be done now."""
        self._looks = False
        gained: dict[int, _Gain] = {}
        try:
            for index, late in list(self._late.items()):
                if not self._table.close(index, 0):
                    self._note_late(index, late.gain)
                    continue
                del self._late[index]
                if late.gain is not None:
                    gained[index] = late.gain
                self._loader.unload([index], late.of)
            for index in list(gained):
                if self._begin(index, gained[index]):
                    del gained[index]
        finally:  # those that could not begin, and those that were not looked at
            for index, gain in gained.items():
                self._note_late(index, gain)
            if self._late and not self._looks:
                self._looks = True
                self._again(self._look)

    def _set_count(self, count: int) -> None:
        self._table.set_partition_count(count)
        self._writers = [PartitionWriter() for _ in range(count)]

    # --- writes: any thread -----------------------------------------------------------------------

    def state_of(self, key: str) -> ErrorCode:
        """NONE when this broker has what the key names; else what its clients are answered."""
        return ErrorCode(self._table.state_of(key))

    def _write(
        self,
        key: str,
        incarnation: int,
        append: Callable[[int, Written], int],
        written: Written,
        done: Callable[[ErrorCode], object],
        in_log: Callable[[], object] = nothing,
    ) -> None:
        """`append` gets the key's partition. `in_log` is called when it has appended, then `done`
        once, without any lock held."""
        writers = self._writers
        if not writers:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        partition = self._partition_for(key, len(writers))
        code = writers[partition].write(key, incarnation, lambda: append(partition, written))
        if code is ErrorCode.NONE:
            in_log()
        self._table.when_replicated(written, code, done)

    def _delete(
        self,
        key: str,
        append: Callable[[], int],
        written: Written,
        in_log: Callable[[], object],
        done: Callable[[ErrorCode], object],
    ) -> None:
        """`append` writes the tombstones of the key. `in_log` is called when they are in the log,
        then `done` as of other writes."""
        writers = self._writers
        if not writers:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        code = writers[self._partition_for(key, len(writers))].delete(key, append)
        if code is ErrorCode.NONE:
            in_log()
        self._table.when_replicated(written, code, done)

    def _when_settled(
        self, key: str, written: Written, done: Callable[[ErrorCode], object]
    ) -> None:
        """`done` is called once, when the followers have what was written of the key by now."""
        code = self._table.written_before(key, written)
        self._table.when_replicated(written, code, done)
