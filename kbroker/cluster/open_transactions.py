"""The transactions that are open in the partitions that this broker leads: since when, and the end
of those that hang.

    scheduler -> look    every LOOK_PERIOD_MS: what is open now; lines about what is open for long;
                         coordinators are asked about what is open for too long
    the next look        what no coordinator has is aborted

A transaction is old from the look that has found it first, on this broker's clock: batches have the
time of their producers' clocks. A new leader counts from its own first look.

A transaction that is open for longer than any timeout allows, and that no coordinator has, hangs:
its marker will never come, and consumers of committed records stand at it. Its producer may have
another transaction, in other partitions. It was looked at before the coordinators were asked, and
its abort is written only if no batch of its producer has come since
(`replica/_open_transactions.pyx`). So the answer stays true however late it comes: what lay in this
partition when no coordinator had the producer id in it is of a transaction that is over.

Owner: the scheduler's thread; the answer comes on any, and figures are read by any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.clock import NS_PER_MS
from kbroker.cluster.transaction_inquiry import OpenIn
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log_lines import LogLines
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.cluster.transaction_inquiry import Asked, Known
    from kbroker.coordinator.txn.seams import Settings
    from kbroker.log.engine._results import MarkerAppended
    from kbroker.replica._open_transactions import OpenTransaction
    from kbroker.replica._replica import Replica

logger: Final = logging.getLogger("kbroker.transactions")

ENABLED: Final = "kbroker.transaction.hanging.abort.enable"
MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
LOOK_PERIOD_MS: Final = 10_000
# More than any clock differs, and any marker takes.
MARGIN_MS: Final = 5 * 60_000
# A transaction that holds the last stable offset for so long is named, and again at twice the time.
LONG_MS: Final = 60_000
# Partitions that are looked at in one step of the scheduler.
STEP: Final = 128
# Producers that one question names.
ASKED_MAX: Final = 1_000

Led = Callable[[], Iterable[tuple[TopicPartition, "Replica"]]]
Read = Callable[["Replica"], "list[OpenTransaction]"]
End = Callable[[TopicPartition, "OpenTransaction"], "MarkerAppended"]
# In steps; the callback comes on any thread.
Ask = Callable[["Asked", "Callable[[Known], None]"], Iterator[None]]


class Name(NamedTuple):
    """A transaction, in one partition."""

    partition: TopicPartition
    producer_id: int
    first_offset: int

    @property
    def place(self) -> OpenIn:
        return OpenIn(self.producer_id, self.partition)


@dataclass(eq=False, slots=True)
class _Question:
    """About transactions that are open for too long, as they were seen."""

    late: Mapping[Name, OpenTransaction]
    answer: tuple[Known] | None = None


@dataclass(slots=True)
class Seen:
    transaction: OpenTransaction
    since_ns: int
    holds: bool  # the partition's last stable offset
    named_after_ms: int = LONG_MS


class Holder(NamedTuple):
    """A transaction that holds the last stable offset of its partition."""

    partition: TopicPartition
    transaction: OpenTransaction
    open_s: float


class Figures(NamedTuple):
    """Ages in seconds, of the transaction that holds each partition's last stable offset."""

    ages: Mapping[TopicPartition, float]
    late: int  # partitions with one that is older than any timeout, and five minutes
    aborted: int  # hanging transactions, since the start


class OpenTransactions:
    """See the head of this file."""

    def __init__(
        self, config: Callable[[], Settings], clock: Clock, led: Led, read: Read, ask: Ask, end: End
    ) -> None:
        self._config = config
        self._clock = clock
        self._led = led
        self._read = read
        self._ask = ask
        self._end = end
        self._lines: Final = LogLines(logger, clock.monotonic_ns, lines_max=20)
        self._seen: dict[Name, Seen] = {}
        self._question: _Question | None = None  # that is under way
        self._aborted = 0

    def figures(self) -> Figures:
        ages = {each.partition: each.open_s for each in self.holders()}
        late_s = self._limit_ms() / 1000
        return Figures(ages, sum(age_s > late_s for age_s in ages.values()), self._aborted)

    def holders(self) -> list[Holder]:
        now_ns = self._clock.monotonic_ns()
        return [
            Holder(name.partition, each.transaction, (now_ns - each.since_ns) / 1e9)
            for name, each in self._seen.items()
            if each.holds
        ]

    def look(self) -> Iterator[None]:
        """One look, in steps."""
        yield from self._end_hanging()
        seen: dict[Name, Seen] = {}
        for number, (partition, replica) in enumerate(self._led(), start=1):
            for place, transaction in enumerate(self._read(replica)):
                name = Name(partition, transaction.producer_id, transaction.first_offset)
                since = self._seen.get(name)
                if since is None:
                    since = Seen(transaction, self._clock.monotonic_ns(), place == 0)
                since.transaction, since.holds = transaction, place == 0
                seen[name] = since
            if number % STEP == 0:
                yield
        self._seen = seen
        self._name_long_ones()
        yield from self._ask_about_late_ones()

    def _age_ms(self, seen: Seen) -> int:
        return (self._clock.monotonic_ns() - seen.since_ns) // NS_PER_MS

    def _limit_ms(self) -> int:
        return int(self._config()[MAX_TIMEOUT]) + MARGIN_MS

    def _name_long_ones(self) -> None:
        for name, seen in self._seen.items():
            age_ms = self._age_ms(seen)
            if not seen.holds or age_ms < seen.named_after_ms:
                continue
            seen.named_after_ms = 2 * age_ms
            self._lines.write(
                logging.WARNING,
                "long",
                "consumers of committed records stand at offset %d of %s: a transaction of producer"
                " id %d, epoch %d, has been open for %d s; kbroker explain %s/%d --isolation"
                " read_committed says whose it is",
                name.first_offset,
                name.partition,
                name.producer_id,
                seen.transaction.producer_epoch,
                age_ms // 1000,
                name.partition.topic,
                name.partition.partition,
            )

    # --- those that hang --------------------------------------------------------------------------

    def _ask_about_late_ones(self) -> Iterator[None]:
        if self._question is not None or not self._config()[ENABLED]:
            return
        limit_ms = self._limit_ms()
        late = {
            name: seen.transaction
            for name, seen in self._seen.items()
            if self._age_ms(seen) > limit_ms
        }
        producer_ids = frozenset(sorted({name.producer_id for name in late})[:ASKED_MAX])
        late = {name: each for name, each in late.items() if name.producer_id in producer_ids}
        if not late:
            return
        question = self._question = _Question(late)

        def answered(known: Known) -> None:
            question.answer = (known,)

        try:
            yield from self._ask(frozenset(name.place for name in late), answered)
        except BaseException:  # its answer may not come, and the next look asks again
            self._question = None
            raise

    def _end_hanging(self) -> Iterator[None]:
        question = self._question
        if question is None or question.answer is None:
            return
        self._question = None
        (known,) = question.answer
        if known is None or not self._config()[ENABLED]:
            return
        for name, transaction in question.late.items():
            if name.place not in known:
                self._abort(name, transaction)
                yield

    def _abort(self, name: Name, transaction: OpenTransaction) -> None:
        code, offset = self._write_abort(name, transaction)
        if code is not ErrorCode.NONE:
            self._lines.write(
                logging.WARNING,
                "not ended",
                "a hanging transaction of producer id %d in %s was not aborted: %s",
                name.producer_id,
                name.partition,
                code.name,
            )
            return
        self._aborted += 1
        seen = self._seen.get(name)
        logger.warning(
            "a hanging transaction of producer id %d, epoch %d, was aborted in %s: it was open from"
            " offset %d on for %d s, and no coordinator has it there; the marker is at offset %d",
            name.producer_id,
            transaction.producer_epoch,
            name.partition,
            name.first_offset,
            0 if seen is None else self._age_ms(seen) // 1000,
            offset,
        )

    def _write_abort(self, name: Name, transaction: OpenTransaction) -> tuple[ErrorCode, int]:
        try:
            appended = self._end(name.partition, transaction)
        except KafkaError as error:
            return error.code, -1
        return appended.error, appended.offset
