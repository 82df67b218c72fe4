"""The groups as C sees them, and the committed offsets; see _groups.pyx."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self

from typing_extensions import disjoint_base

from kbroker.coordinator.group.seams import Committer, PublishedGroup
from kbroker.coordinator.runtime._shard_table import ShardTable, Written
from kbroker.coordinator.runtime.machine import LogListener

class CommittedOffset(NamedTuple):
    """An offset that a group has committed."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int  # -1: not given
    metadata: str
    commit_ms: int  # wall clock
    expire_ms: int  # -1: by the broker's retention; else by itself (OffsetCommit 2-4)
    topic_id: bytes | None  # 16 bytes; None: not known

class ShardStatistics(NamedTuple):
    groups: int  # that C knows: published, or with offsets, even if these are about to go
    offsets: int
    bytes: int  # of memory, about

def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset's record."""

def offset_value(offset: CommittedOffset) -> bytes:
    """The value of a committed offset's record, in Apache Kafka 4.3's version of it."""

@disjoint_base
class GroupTable(ShardTable):
    """One per broker: the partitions of __consumer_offsets.

    `metadata_bytes_max`: a longer text of a commit is refused (12).
    """

    def __new__(
        cls,
        listener: LogListener | None = None,
        *,
        write_timeout_ms: int = 5000,
        metadata_bytes_max: int = 4096,
    ) -> Self: ...
    def statistics(self, partition: int) -> ShardStatistics: ...
    # --- HotView -------------------------------------------------------------------------------
    def publish_members(
        self,
        group_id: str,
        *,
        state: int,
        generation: int,
        members: Iterable[tuple[str, str | None]],
    ) -> None: ...
    def remove_members(self, group_id: str) -> None: ...
    def published(self, group_id: str) -> PublishedGroup | None: ...
    def last_heard_ms(self, group_id: str, member_id: str) -> int: ...
    # --- The log -------------------------------------------------------------------------------
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

    # --- Transactions --------------------------------------------------------------------------
    # An offset that a transaction has committed is pending until its marker is written. A load
    # finds what is pending in the log.
    def commit_in_transaction(
        self,
        group_id: str,
        offsets: Sequence[CommittedOffset],
        producer_id: int,
        producer_epoch: int,
        written: Written | None = None,
        committer: Committer | None = None,
        guard: int = -1,
    ) -> int:
        """As `commit`, as a batch of this producer's transaction; the offsets are pending. `guard`:
        of the verification of the transaction, for the log; -1: none is needed."""

    def marker_written(
        self, partition: int, producer_id: int, committed: bool, offset: int
    ) -> set[str]:
        """The end of a producer's transaction is at this offset of the partition's log: what it has
        committed before holds, or is dropped. The groups of which offsets hold now. Where a later
        commit has been written of a partition, that stays."""

    def pending(self, group_id: str) -> frozenset[tuple[str, int]]:
        """The partitions of which a transaction has an offset that is not decided. A tombstone of a
        partition ends what is pending of it."""

    def pending_groups(self, partition: int) -> set[str]: ...
    def pending_offsets(
        self, partition: int, producer_id: int | None = None
    ) -> list[tuple[str, str, int, bytes | None]]:
        """Group, topic, partition and topic id of each pending offset, of one producer or of all;
        one for each transaction. No id: the record has none."""

    # --- Tombstones ----------------------------------------------------------------------------
    def remove_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]],
        *,
        committed_until_ms: int = -1,
        topic_id: bytes | None = None,
        written: Written | None = None,
    ) -> int:
        """Tombstones for those that are there, also if they are only pending; with a time >= 0 only
        for those committed by then, and for none of which a transaction has an offset that is not
        decided; with an id only for those that were not committed for a topic with another one,
        and for none that are pending for such a topic.

        Decided under the lock of the append. An error code. If none is there `written` is all that
        was written before: another caller's tombstone may be among it.
        """

    def delete_group(
        self,
        group_id: str,
        records: Sequence[tuple[bytes, bytes | None]] = (),
        written: Written | None = None,
    ) -> int:
        """Tombstones for all offsets of the group, followed by these records (the tombstone of its
        metadata). An error code; after 0 C has forgotten the group."""
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
        `topic_id_of`: the id that a topic has now, None if it is not known. A commit for another
        topic of the same name is not there. A topic comes with its array of partitions as the
        answer carries it, count included. `texts_again_max`: so many bytes of metadata are answered
        beyond those that the group holds, or at all if it was `named_before` in the same request;
        the partitions after these have INVALID_REQUEST. `texts`: how many of these were used.
        Commits are answered up to the high watermark. With `stable` all that was written is
        answered, and noted in `stable` for the caller that waits until the followers have it; a
        partition with a pending offset has UNSTABLE_OFFSET_COMMIT.
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
        of the same name. For an offset without a topic id only the first is known."""

    def of_topic(self, topic: str) -> list[tuple[str, list[CommittedOffset]]]:
        """By group: every committed offset of a topic in the shards that are ours."""
