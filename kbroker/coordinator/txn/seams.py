"""What the transaction coordinator asks of its log, of the markers, and of the producer ids.

handlers -> TransactionCoordinator -> TransactionLog (`__transaction_state`, acks=-1)
                 |
                 +-> Markers: the outcome, to every partition of a transaction
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from kbroker.coordinator.txn.image import Partitions, TransactionImage
    from kbroker.errors import ErrorCode, KafkaError

Done = Callable[["ErrorCode"], object]


class TransactionLog(Protocol):
    """The partitions of the state topic that this broker leads. `done` is called once, without any
    lock held, perhaps at once."""

    def state_of(self, transactional_id: str) -> ErrorCode:
        """NONE when this broker has the id; else the error for its clients."""
        ...

    @property
    def is_loading(self) -> bool:
        """Whether some of them are not loaded yet."""
        ...

    def partition_of(self, transactional_id: str) -> int:
        """Of the state topic; -1: there is no topic."""
        ...

    def term_of(self, transactional_id: str) -> int:
        """Of the id's partition: nothing is written in another term than it was decided in."""
        ...

    def coordinator_epoch(self, transactional_id: str, term: int) -> int:
        """The leader epoch of the id's partition, which its markers have; -1 in another term."""
        ...

    def write(self, transactional_id: str, term: int, image: TransactionImage, done: Done) -> None:
        """`done` comes when the followers have it, or with an error; the wait is the timeout of the
        transaction."""
        ...

    def forget(self, transactional_ids: Sequence[str], term: int, done: Done) -> None:
        """Tombstones for ids of one partition, in one batch."""
        ...


class MarkerOrder(NamedTuple):
    """An outcome that is in the log, to be written to the partitions of its transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    coordinator_epoch: int
    committed: bool
    version: int  # of transactions: 2 where the epoch of the marker is a raised one
    partitions: Partitions


class Markers(Protocol):
    def send(self, order: MarkerOrder, done: Callable[[], object]) -> None:
        """`done` comes once, when every partition that is there has its marker: perhaps at once,
        perhaps after days. Never after `drop`."""
        ...

    def drop(self, lost: Callable[[MarkerOrder], bool]) -> None:
        """Another broker has these transactions, and sends their markers."""
        ...


# `done` gets a producer id that no client had before.
Generate = Callable[[Callable[["int | KafkaError"], None]], None]


class Settings(Protocol):
    """The broker's configuration, of which the keys transaction.* and transactional.*."""

    def __getitem__(self, name: str, /) -> Any: ...
