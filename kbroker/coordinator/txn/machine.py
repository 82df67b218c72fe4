"""Transactional ids as a machine of the coordinator's runtime: records of `__transaction_state`.

Of each id the last record counts. A record of a version that this broker does not know is skipped,
one that cannot be read is left out with a line. Outcomes without a Complete record (Prepare*) are
completed when their partition is active and the image is published in which it is this broker's: in
an older one a topic that is new counts as deleted, and needs no marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.txn.records import (
    RecordError,
    UnknownVersionError,
    decode_key,
    decode_value,
)
from kbroker.coordinator.txn.states import PREPARED
from kbroker.errors import InvariantError
from kbroker.limits import LOG_GROUP_LINES_MAX
from kbroker.log_lines import LogLines
from kbroker.metadata.image import TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from kbroker.coordinator.runtime.machine import Record
    from kbroker.coordinator.txn.image import TransactionImage
    from kbroker.metadata.image import TopicImage

logger: Final = logging.getLogger("kbroker.transactions")
lines: Final = LogLines(logger, lines_max=LOG_GROUP_LINES_MAX)


# `when_published(partition, call)`: have it done when the image is published in which a partition
# of the state topic is this broker's.
WhenPublished = Callable[[int, Callable[[], object]], object]


class Table(Protocol):
    """What the machine asks of the table of partitions, a `ShardTable`."""

    @property
    def partition_count(self) -> int: ...

    def term(self, partition: int) -> int: ...


class Transactions(Protocol):
    """The coordinator: ids come and go with a partition."""

    def load(self, images: Mapping[str, TransactionImage], term: int) -> None: ...

    def complete_loaded(self, transactional_ids: Iterable[str], term: int) -> None: ...

    def unload(self, lost: Callable[[str], bool]) -> object: ...


class TransactionMachine:
    """See the head of this file. `attach` comes before the loader's start."""

    topic: Final = TRANSACTIONS_TOPIC
    name: Final = "transactions"
    log_lines_max: Final = LOG_GROUP_LINES_MAX
    waits_for_followers: Final = True  # markers are sent for outcomes that were loaded

    def __init__(self, table: Table, when_published: WhenPublished) -> None:
        self._table = table
        self._when_published = when_published
        self._transactions: Transactions | None = None
        self._loaded: dict[int, int] = {}  # ids by partition
        self._outcomes: dict[int, tuple[list[str], int]] = {}  # to be completed, and their term

    def attach(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def _attached(self) -> Transactions:
        if self._transactions is None:
            raise InvariantError("a machine without transactions")
        return self._transactions

    def replay(self, partition: int) -> TransactionReplay:
        term = self._table.term(partition)

        def loaded(images: Mapping[str, TransactionImage]) -> None:
            self._attached().load(images, term)
            self._loaded[partition] = len(images)
            outcomes = [name for name, image in images.items() if image.state in PREPARED]
            self._outcomes[partition] = outcomes, term

        return TransactionReplay(loaded)

    def active(self, partition: int) -> None:
        """May be called again where it has failed."""
        outcomes, term = self._outcomes.get(partition, ([], -1))
        if outcomes:
            complete = partial(self._attached().complete_loaded, outcomes, term)
            self._when_published(partition, complete)
        self._outcomes.pop(partition, None)

    def unloaded(self, partitions: frozenset[int], count: int) -> None:
        self._attached().unload(lambda each: partition_for(each, count) in partitions)
        for partition in partitions:
            self._loaded.pop(partition, None)
            self._outcomes.pop(partition, None)

    def topic_deleted(self, topic: TopicImage) -> None:
        """Transactions keep partitions that were deleted; these need no marker."""

    def contents(self, partition: int) -> Sequence[tuple[str, int]]:
        return [("transactional ids", self._loaded.get(partition, 0))]


class TransactionReplay:
    """One load of one partition: the last record of each id."""

    def __init__(self, loaded: Callable[[Mapping[str, TransactionImage]], None]) -> None:
        self._images: dict[str, TransactionImage] = {}
        self._loaded = loaded

    def record(self, record: Record) -> None:
        try:
            transactional_id = decode_key(record.key or b"")  # none: of a log from elsewhere
            if record.value is None:
                self._images.pop(transactional_id, None)
            else:
                self._images[transactional_id] = decode_value(record.value)
        except UnknownVersionError as error:
            logger.debug("a record at offset %d is skipped: %s", record.offset, error)
        except RecordError as error:
            message = "a record of transactions is left out at offset %d: %s"
            lines.write(logging.WARNING, "left out", message, record.offset, str(error))

    def loaded(self) -> None:
        self._loaded(self._images)
        self._images = {}
