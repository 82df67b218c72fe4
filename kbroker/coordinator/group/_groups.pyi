"""The groups as C sees them, and the committed offsets; see _groups.pyx.

Any thread; nothing calls back; the GIL is released before a lock is waited for. Error codes are
`ErrorCode` numbers as a coordinator answers them: 14 while the shard loads, 16 while this broker
does not own it, 15 when its log refuses for a reason that passes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Self

from typing_extensions import disjoint_base

from kbroker.coordinator.group.seams import Committer, ShownGroup
from kbroker.coordinator.runtime.machine import LogListener
from kbroker.errors import ErrorCode
from kbroker.replica._replica import Replica

# What a shard (a partition of __consumer_offsets) is.
NOT_OWNER: Final = 0
LOADING: Final = 1
ACTIVE: Final = 2

class CommittedOffset(NamedTuple):
    """An offset that a group has committed."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int  # -1: not told
    metadata: str
    commit_ms: int  # wall clock
    expire_ms: int  # -1: by the broker's retention; else by itself (OffsetCommit 2-4)
    topic_id: bytes | None  # 16 bytes; None: not known

class ShardStatistics(NamedTuple):
    groups: int  # that C knows: shown, or with offsets, if only such as are told no more soon
    offsets: int
    bytes: int  # of memory, about

class LoadedRecord(NamedTuple):
    """A record of a load that is no committed offset: a group's metadata, or of a future kind."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None

class LoadedBatches(NamedTuple):
    """What was done with a piece of a log."""

    used_bytes: int  # what follows is a batch that is cut off
    next_offset: int  # after the last batch; -1: there was none
    records: list[LoadedRecord]  # that Python must look at
    left_out: list[tuple[int, str]]  # offsets of batches that cannot be read whole, and why

def partition_for(group_id: str, count: int) -> int:
    """Which of `count` partitions of __consumer_offsets looks after a group, as Kafka counts."""

def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset's record."""

def offset_value(offset: CommittedOffset) -> bytes:
    """The value of a committed offset's record, in Apache Kafka 4.3's version of it."""

@disjoint_base
class Written:
    """What one call has written, for `GroupTable.when_replicated`; once."""

    def __new__(cls) -> Self: ...

@disjoint_base
class GroupTable:
    """One per broker. It knows no partition until `set_partition_count`."""

    # `listener`: of what Python appends; None: nothing waits for that. `write_timeout_ms`: how long a
    # write waits for its followers (15). `metadata_bytes_max`: a longer text of a commit is refused
    # (12).
    def __new__(
        cls,
        listener: LogListener | None = None,
        *,
        write_timeout_ms: int = 5000,
        metadata_bytes_max: int = 4096,
    ) -> Self: ...
    @property
    def partition_count(self) -> int: ...
    def set_partition_count(self, count: int) -> None:
        """How many partitions __consumer_offsets has; 0: it does not exist (15)."""

    def set_clock_shift_ms(self, shift_ms: int) -> None:
        """What a broker under test adds to the machine's clocks."""

    # --- Shards: by whoever follows the leadership of __consumer_offsets -----------------------
    def open(self, partition: int, replica: Replica, wait_ms: int = 20) -> bool:
        """This broker leads the partition: LOADING, empty, its log held. False: as of `close`."""

    def activate(self, partition: int) -> None:
        """The load is done: ACTIVE."""

    def close(self, partition: int, wait_ms: int = 20) -> bool:
        """Not ours any more: NOT_OWNER, everything of it forgotten, its log let go. False: it is
        not ours, but somebody has its lock, at a write that hangs; the rest is to be tried
        again."""

    def shard_state(self, partition: int) -> int: ...
    def state_of(self, group_id: str) -> int:
        """0, 14, 15 or 16."""

    def load_batches(self, partition: int, data: bytes) -> LoadedBatches:
        """Applies whole record batches, as the log holds them, in their order.

        Batches of transactions count with their markers. A batch whose CRC or codec is wrong is
        left out, and so is a record that is not well formed. KafkaError CORRUPT_MESSAGE for what
        is no batch.
        """

    def statistics(self, partition: int) -> ShardStatistics: ...
    # --- HotView -------------------------------------------------------------------------------
    def show_members(
        self,
        group_id: str,
        *,
        state: int,
        generation: int,
        members: Iterable[tuple[str, str | None]],
    ) -> None: ...
    def remove_members(self, group_id: str) -> None: ...
    def shown(self, group_id: str) -> ShownGroup | None: ...
    def last_heard_ms(self, group_id: str, member_id: str) -> int: ...
    # --- The log: the only way to write to __consumer_offsets ----------------------------------
    # What these return is the append's; where others are told, `when_replicated` comes behind it.
    def append(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        written: Written | None = None,
    ) -> int:
        """Appends records as one batch with acks=-1 and applies those of offsets: an error code.

        Order in memory is order in the log. Fetches that wait there are woken.
        """

    def when_replicated(
        self, written: Written, code: int, done: Callable[[ErrorCode], object]
    ) -> None:
        """`done` is called once, when the high watermark has passed what a call has written whose
        `code` this is: now, with no lock held, where that is an error or nobody has to be waited
        for, else on a handler's thread. NOT_COORDINATOR if the partition is led elsewhere before;
        COORDINATOR_NOT_AVAILABLE if too few are in sync, or the time is over; what the log never
        takes is UNKNOWN_SERVER_ERROR to a client."""

    def written_before(self, group_id: str, written: Written) -> int:
        """Writes nothing; `written` is all that was written for any group of its partition. For
        who tells what somebody else has written. An error code."""

    def commit(
        self,
        group_id: str,
        offsets: Sequence[CommittedOffset],
        written: Written | None = None,
        committer: Committer | None = None,
    ) -> int:
        """Appends and applies. An error code.

        The caller has checked that the committer may. ILLEGAL_GENERATION: that is no longer so, or
        nothing of the group is published here; nothing was written, and the caller checks again.
        """

    def remove_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]],
        *,
        committed_until_ms: int = -1,
        topic_id: bytes | None = None,
        written: Written | None = None,
    ) -> int:
        """Tombstones for those that are there, with a time >= 0 only for those committed by then,
        with an id only for those that were not committed for a topic with another one.

        Decided under the lock of the append. An error code. Where none is there `written` is all
        that was written before: the tombstone of somebody else may be among it.
        """

    def delete_group(
        self,
        group_id: str,
        records: Sequence[tuple[bytes, bytes | None]] = (),
        written: Written | None = None,
    ) -> int:
        """Tombstones for all offsets of the group, with these records behind them (the
        tombstone of its metadata). An error code; after 0 C has forgotten the group."""
    # --- Reading -------------------------------------------------------------------------------
    def offset(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None: ...
    def offsets(self, group_id: str) -> list[CommittedOffset]:
        """All of a group's, by topic; a topic's partitions ascending. As all that returns objects:
        what was written last, whether or not the followers have it."""

    def fetch(
        self,
        group_id: str,
        wanted: Sequence[tuple[str, bytes]] | None,
        *,
        flexible: bool,
        leader_epochs: bool,
        topic_id_of: Callable[[str], bytes | None] | None = None,
        texts_again_max: int = ...,
        named_before: bool = False,
        stable: Written | None = None,
    ) -> tuple[int, list[tuple[str, bytes]], int]:
        """(error code, topics, texts) for OffsetFetch, without an object for each partition.

        `wanted`: topics with their partitions as big-endian int32s; None: all that the group has.
        `topic_id_of`: the id that a topic has now, None if it is not known. What was committed for
        another one of the same name is not there.
        A topic comes with its array of partitions as the answer carries it, count included.
        `texts_again_max`: so many bytes of metadata are told beyond what the group holds, or at
        all where it was `named_before` in the same request; the partitions behind have
        INVALID_REQUEST. `texts`: how many of these were used.
        What the high watermark has passed is told. With `stable` it is all that was written, which
        becomes what `stable` has written: for who waits until the followers have it.
        """

    def groups(self, partition: int) -> list[str]:
        """The groups of a shard that have offsets."""

    def expirable(
        self, partition: int, before_ms: int, now_ms: int
    ) -> list[tuple[str, list[CommittedOffset]]]:
        """By group: offsets without a time of their own that were committed before `before_ms`,
        and those whose own time is over at `now_ms`. Whether they go is Python's decision."""

    def offsets_of_others(
        self, partition: int, topic_id_of: Callable[[str], bytes | None]
    ) -> list[tuple[str, list[CommittedOffset]]]:
        """By group: offsets that were committed for topics which are not there now, or for others
        of the same name. Without an id only that there is none can be told."""

    def of_topic(self, topic: str) -> list[tuple[str, list[CommittedOffset]]]:
        """By group: every committed offset of a topic in the shards that are ours."""
