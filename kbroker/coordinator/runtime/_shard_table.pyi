"""The partitions of an internal topic, for any machine; see _shard_table.pyx.

Any thread; nothing calls back; the GIL is released before a lock is waited for. Error codes are
`ErrorCode` numbers as a coordinator answers them: 14 while the shard loads, 16 while this broker
does not own it, 15 when its log refuses for a reason that passes.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self

from typing_extensions import disjoint_base

from kbroker.coordinator.runtime.machine import LogListener
from kbroker.errors import ErrorCode
from kbroker.replica._replica import Replica

# The states of a shard (a partition of an internal topic).
NOT_OWNER: Final = 0
LOADING: Final = 1
ACTIVE: Final = 2

class LoadedRecord(NamedTuple):
    """A record of a load that C has not applied."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None

class LoadedBatches(NamedTuple):
    """What was done with a piece of a log."""

    used_bytes: int  # what follows is a batch that is cut off
    next_offset: int  # after the last batch; -1: there was none
    records: list[LoadedRecord]  # that C has not applied
    left_out: list[tuple[int, str]]  # offsets of batches that cannot be read whole, and why

def partition_for(key: str, count: int) -> int:
    """Which of `count` partitions of an internal topic a key is kept in, as Kafka counts."""

@disjoint_base
class Written:
    """What one call has written, for `ShardTable.when_replicated`; once."""

    def __new__(cls) -> Self: ...

@disjoint_base
class ShardTable:
    """One per machine and broker. It knows no partition until `set_partition_count`.

    `listener`: of Python's appends; None: nothing waits for them. `write_timeout_ms`: how long a
    write waits for its followers (15). `any_size`: max.message.bytes does not bound its writes.
    `base_sequence`: of the batches that Python writes.
    """

    def __new__(
        cls,
        listener: LogListener | None = None,
        *,
        write_timeout_ms: int = 5000,
        any_size: bool = False,
        base_sequence: int = 0,
    ) -> Self: ...
    @property
    def partition_count(self) -> int: ...
    def set_partition_count(self, count: int) -> None:
        """How many partitions the topic has; 0: it does not exist (15)."""

    def set_clock_shift_ms(self, shift_ms: int) -> None:
        """What a broker under test adds to the machine's clocks."""

    # --- Shards: by the store, which follows the leadership of the topic -----------------------
    def open(self, partition: int, replica: Replica, wait_ms: int = 20) -> bool:
        """This broker leads the partition: LOADING, empty, its log held. False: as of `close`."""

    def activate(self, partition: int) -> None:
        """The load is done: ACTIVE."""

    def close(self, partition: int, wait_ms: int = 20) -> bool:
        """Not ours any more: NOT_OWNER, everything of it forgotten, its log let go. False: it is
        not ours, but its lock is held over a write that hangs; the rest is to be tried again."""

    def shard_state(self, partition: int) -> int: ...
    def term(self, partition: int) -> int:
        """Grows when the partition becomes this broker's, and when it ceases to be."""

    def state_of(self, key: str) -> int:
        """0, 14, 15 or 16."""

    def load_batches(self, partition: int, data: bytes) -> LoadedBatches:
        """Applies whole record batches, as the log holds them, in their order.

        Batches of transactions count with their markers. A batch whose CRC or codec is wrong is
        left out, and so is a record that is not well formed. KafkaError CORRUPT_MESSAGE for bytes
        that are no batch.
        """

    # --- The log: the only way to write to the topic -------------------------------------------
    # What these return is the append's; `when_replicated` comes after it.
    def append(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        written: Written | None = None,
        term: int = -1,
        patience_ms: int = -1,
    ) -> int:
        """Appends records as one batch with acks=-1 and applies those that C knows: an error code.

        Order in memory is order in the log. Fetches that wait there are woken. With a `term`
        nothing is written in another one (16). With `patience_ms` nothing is where another write
        has been under way for longer (15); else it waits for that.
        """

    def when_replicated(
        self,
        written: Written,
        code: int,
        done: Callable[[ErrorCode], object],
        timeout_ms: int | None = None,
    ) -> None:
        """`done` is called once, when the high watermark has passed what a call has written whose
        `code` this is: now, with no lock held, where that is an error or there is nothing to wait
        for, else on a handler's thread. NOT_COORDINATOR if the partition is led elsewhere before;
        COORDINATOR_NOT_AVAILABLE if too few are in sync, or the time is over; what the log never
        takes is UNKNOWN_SERVER_ERROR to a client."""

    def written_before(self, key: str, written: Written) -> int:
        """Writes nothing; `written` is all that was written for any key of its partition. For a
        response that says what another call has written. An error code."""
