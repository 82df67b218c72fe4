"""What the transaction coordinator asks of its log, of the markers, and of the producer ids.

handlers -> TransactionCoordinator -> TransactionLog (`__transaction_state`, acks=-1)
                 |
                 +-> Markers: the outcome, to every partition of a transaction

An append waits for the disk, which may hang. Handlers and the scheduler may wait for it; the timer,
a loop and the controller's thread may not, and have such work done by `OnWorker`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from kbroker.coordinator.txn.image import Partitions, TransactionImage
    from kbroker.errors import ErrorCode, KafkaError
    from kbroker.types import TopicPartition

Done = Callable[["ErrorCode"], object]
# `on_worker(place, call)`: have it done by a thread that may wait for the log of this partition.
OnWorker = Callable[["TopicPartition", Callable[[], object]], object]
# Called with whether its thread may wait for a log.
Over = Callable[[bool], object]

RETRY_MS: Final = 100
# As of Apache Kafka's clients, of which its brokers are some: retry.backoff.max.ms.
RETRY_MS_MAX: Final = 1_000


def longer(pause_ms: int) -> int:
    """The pause before the next attempt, where the one before had this pause."""
    return min(2 * pause_ms, RETRY_MS_MAX)


def at_once(place: TopicPartition, call: Callable[[], object]) -> None:
    """An `OnWorker` without threads."""
    call()


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
    # A copy of its markers may come late, and meet the producer's next transaction in the same
    # epoch: a later outcome of the same run has a higher number.
    run: int = 0  # of the coordinator, drawn at its start; 0: not known
    number: int = 0


class Markers(Protocol):
    def send(self, order: MarkerOrder, done: Over, *, may_wait: bool) -> None:
        """`done` comes once, when every partition that is there has its marker: perhaps at once,
        perhaps after days. Never after `drop`. `may_wait`: this thread, for logs."""
        ...

    def drop(self, lost: Callable[[MarkerOrder], bool]) -> None:
        """Another broker has these transactions, and sends their markers."""
        ...


# `done` gets a producer id that no client had before.
Generate = Callable[[Callable[["int | KafkaError"], None]], None]


class Settings(Protocol):
    """The broker's configuration, of which the keys transaction.* and transactional.*."""

    def __getitem__(self, name: str, /) -> Any: ...
