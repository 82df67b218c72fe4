"""What the runtime of a coordinator asks of a state machine, and what it gives to it.

    metadata images -> CoordinatorStore   which partitions of the machine's topic this broker leads
                            |
                            +-> Loader    reads them on a thread of its own:
                            |             replay -> record, record, ... -> loaded; then active
                            +-> PartitionWriter, for each partition: appends in order, incarnations

A machine is what one kind of coordinator keeps in an internal topic: classic groups are one,
transactions, the new groups and share groups are to be others. The runtime decides when a partition
is loaded, served and given up. The machine decides what its records mean.

The parts of the runtime and the machine know each other by these protocols only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from kbroker.errors import ErrorCode
    from kbroker.metadata.image import TopicImage
    from kbroker.replica._replica import Replica

Records = Sequence[tuple[bytes, bytes | None]]
# The records that one call has written, in the table's own form.
Written = TypeVar("Written", contravariant=True)


class Record(Protocol):
    """A record of a load."""

    @property
    def offset(self) -> int: ...

    @property
    def timestamp_ms(self) -> int: ...

    @property
    def key(self) -> bytes: ...

    @property
    def value(self) -> bytes | None: ...


class Replay(Protocol):
    """One load of one partition. It is dropped, without a call, if the load ends early."""

    def record(self, record: Record) -> None:
        """The next one of the log that the table did not apply itself. It raises for nothing that
        a record says: what cannot be read is left out, with a line."""
        ...

    def loaded(self) -> None:
        """That was the last. The partition turns active when this has returned."""
        ...


class Machine(Protocol):
    """What the loader's thread calls; one call at a time."""

    @property
    def topic(self) -> str:
        """The internal topic."""
        ...

    @property
    def name(self) -> str:
        """What it keeps, in the plural: the name of the thread and of the logger ends in it."""
        ...

    @property
    def log_lines_max(self) -> int:
        """How many log lines a second may report records of its topic that cannot be read."""
        ...

    @property
    def waits_for_followers(self) -> bool:
        """Whether a partition is served only when its followers have all that was loaded. The log
        of a new leader may end in records that only some have, and that another leader would not
        have: what follows from them and is done elsewhere could not be undone."""
        ...

    def replay(self, partition: int) -> Replay:
        """A partition that this broker leads is read from its beginning."""
        ...

    def active(self, partition: int) -> None:
        """A partition has been loaded and serves its clients: what a load leaves to be done.
        Called again where it raises."""
        ...

    def unloaded(self, partitions: frozenset[int], count: int) -> None:
        """These of `count` partitions are not this broker's any more."""
        ...

    def topic_deleted(self, topic: TopicImage) -> None:
        """A topic, not the machine's own, was deleted."""
        ...

    def contents(self, partition: int) -> Sequence[tuple[str, int]]:
        """The counts of a partition's contents, for the log line after a load."""
        ...


class Loaded(Protocol):
    """What was done with a piece of a log."""

    @property
    def used_bytes(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def records(self) -> Sequence[Record]: ...

    @property
    def left_out(self) -> Sequence[tuple[int, str]]: ...


class LoadedTable(Protocol):
    """What the loader asks of the machine's table, whose shards are the partitions."""

    @property
    def partition_count(self) -> int: ...

    def open(self, partition: int, replica: Replica) -> bool: ...

    def load_batches(self, partition: int, data: bytes) -> Loaded: ...

    def activate(self, partition: int) -> None: ...

    def close(self, partition: int) -> bool: ...


class Table(Protocol[Written]):
    """What the store asks of it."""

    def set_partition_count(self, count: int) -> None: ...

    def open(self, partition: int, replica: Replica, wait_ms: int = ...) -> bool: ...

    def activate(self, partition: int) -> None: ...

    def close(self, partition: int, wait_ms: int = ...) -> bool: ...

    def state_of(self, key: str, /) -> int: ...

    def append(self, partition: int, records: Records, written: Written) -> int: ...

    def written_before(self, key: str, written: Written, /) -> int: ...

    def when_replicated(
        self, written: Written, code: int, done: Callable[[ErrorCode], object]
    ) -> None: ...


class LogListener(Protocol):
    """Of Python's appends to the machine's topic: the hot path, which has the requests that wait
    there. Called while nothing is locked."""

    def wake(self, replica: Replica) -> None:
        """There is more in the log of this replica."""
        ...

    def await_followers(
        self,
        replica: Replica,
        last_offset: int,
        led_since: int,
        timeout_ms: int,
        done: Callable[[ErrorCode], object],
    ) -> None:
        """`done` is called once: when the followers have this offset, or with an error."""
        ...
