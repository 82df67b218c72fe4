"""A transaction coordinator over a log and markers that tests hold back, lose and refuse."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from kbroker.clock import ManualClock
from kbroker.coordinator.txn._images import encode_value
from kbroker.coordinator.txn.coordinator import TransactionCoordinator
from kbroker.coordinator.txn.image import LIMITS, NO_PAIR, Limits, Pair, TransactionImage
from kbroker.coordinator.txn.records import decode_value
from kbroker.coordinator.txn.seams import Done, MarkerOrder, Over
from kbroker.coordinator.txn.states import State
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition

ID: Final = "pay"
ORDERS: Final = TopicPartition("orders", 0)
BILLS: Final = TopicPartition("bills", 1)
NONE: Final = ErrorCode.NONE


class Log:
    """The partition of the state topic. With `holds`, writes wait for `release`."""

    def __init__(self) -> None:
        self.code = NONE
        self.term = 1
        self.epoch = 7
        self.records: list[tuple[str, TransactionImage | None]] = []
        self.holds = False
        self.waiting: list[tuple[str, TransactionImage | None, Done]] = []
        self.refuses: list[ErrorCode] = []

    def state_of(self, transactional_id: str) -> ErrorCode:
        return self.code

    @property
    def is_loading(self) -> bool:
        return self.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def partition_of(self, transactional_id: str) -> int:
        return 0

    def term_of(self, transactional_id: str) -> int:
        return self.term

    def coordinator_epoch(self, transactional_id: str, term: int) -> int:
        return self.epoch if term == self.term else -1

    def write(self, transactional_id: str, term: int, image: TransactionImage, done: Done) -> None:
        self._write([(transactional_id, image)], term, done)

    def forget(self, transactional_ids: Sequence[str], term: int, done: Done) -> None:
        self._write([(each, None) for each in transactional_ids], term, done)

    def _write(
        self, records: list[tuple[str, TransactionImage | None]], term: int, done: Done
    ) -> None:
        if term != self.term:
            done(ErrorCode.NOT_COORDINATOR)
        elif self.holds:
            self.waiting += [(*record, done) for record in records]
        elif self.refuses:
            done(self.refuses.pop(0))
        else:
            self.records += records
            done(NONE)

    def release(self, code: ErrorCode = NONE) -> None:
        """Of the writes that wait."""
        waiting, self.waiting = self.waiting, []
        for transactional_id, image, done in waiting:
            if not code:
                self.records.append((transactional_id, image))
            done(code)

    def last(self, transactional_id: str = ID) -> TransactionImage | None:
        return dict(self.records).get(transactional_id)

    def states(self, transactional_id: str = ID) -> list[State | None]:
        return [image and image.state for name, image in self.records if name == transactional_id]

    def replayed(self) -> dict[str, TransactionImage]:
        """As another broker loads it: bytes have no last epoch."""
        return {
            name: decode_value(encode_value(image, 1))
            for name, image in dict(self.records).items()
            if image is not None
        }


class Markers:
    """With `holds`, orders wait for `write`."""

    def __init__(self) -> None:
        self.holds = False
        self.orders: list[MarkerOrder] = []
        self.waiting: list[tuple[MarkerOrder, Over]] = []
        self.may_wait: list[bool] = []  # of each order

    def send(self, order: MarkerOrder, done: Over, *, may_wait: bool) -> None:
        self.orders.append(order)
        self.may_wait.append(may_wait)
        if self.holds:
            self.waiting.append((order, done))
        else:
            done(may_wait)

    def drop(self, lost: Callable[[MarkerOrder], bool]) -> None:
        self.waiting = [each for each in self.waiting if not lost(each[0])]

    def write(self, *, may_wait: bool = True) -> None:
        """`may_wait`: for logs, the thread on which the last answer comes."""
        waiting, self.waiting = self.waiting, []
        for _, done in waiting:
            done(may_wait)


class World:
    """One broker's coordinator; `fail_over` loads what its log has."""

    def __init__(self, level: int = 2, epochs: Limits = LIMITS) -> None:
        self.config: dict[str, Any] = {
            "transaction.max.timeout.ms": 900_000,
            "transactional.id.expiration.ms": 604_800_000,
        }
        self.clock = ManualClock()
        self.log = Log()
        self.markers = Markers()
        self.level = level
        self.epochs = epochs
        self.later: list[Callable[[], object]] = []
        self.pauses_ms: list[int] = []  # of all that was called later
        self.holds_worker = False
        self.on_worker: list[tuple[TopicPartition, Callable[[], object]]] = []
        self.ids = itertools.count(1_000)
        self.generate: Callable[..., object] = lambda done: done(next(self.ids))
        self.answers: list[tuple[ErrorCode, Pair]] = []
        self.coordinator = self._coordinator()

    def _coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            lambda: self.config, self.clock, self._call_later, self.log, self.markers,
            lambda done: self.generate(done), lambda: self.level, self.epochs,
            on_worker=self._on_worker,
        )  # fmt: skip

    def _call_later(self, delay_ms: int, call: Callable[[], object]) -> Callable[[], object]:
        self.later.append(call)
        self.pauses_ms.append(delay_ms)
        return lambda: None

    def run_later(self) -> None:
        later, self.later = self.later, []
        for call in later:
            call()

    def _on_worker(self, place: TopicPartition, call: Callable[[], object]) -> None:
        if self.holds_worker:
            self.on_worker.append((place, call))
        else:
            call()

    def work(self) -> None:
        """What was given to workers."""
        on_worker, self.on_worker = self.on_worker, []
        for _, call in on_worker:
            call()

    def fail_over(self) -> None:
        self.coordinator.close()
        self.log.waiting.clear()
        self.log.holds = self.markers.holds = False
        self.log.term += 1
        self.log.epoch += 1
        self.coordinator = self._coordinator()
        self.coordinator.load(self.log.replayed(), self.log.term)
        self.coordinator.complete_loaded(self.log.replayed(), self.log.term)

    def _answer(self, code: ErrorCode, pair: Pair = NO_PAIR) -> None:
        self.answers.append((code, pair))

    def _answered(self) -> tuple[ErrorCode, Pair] | None:
        """None: it waits."""
        return self.answers.pop() if self.answers else None

    def init(
        self, pair: Pair = NO_PAIR, timeout_ms: int = 60_000, name: str = ID
    ) -> tuple[ErrorCode, Pair] | None:
        self.coordinator.init_producer_id(name, timeout_ms, pair, self._answer)
        return self._answered()

    def pair(self, pair: Pair = NO_PAIR) -> Pair:
        """As `init`, which has to be answered with one."""
        found = self.init(pair)
        assert found is not None and found[0] is NONE, found
        return found[1]

    def add(
        self, pair: Pair, *partitions: TopicPartition, version: int = 0, name: str = ID
    ) -> ErrorCode | None:
        places = frozenset(partitions or (ORDERS,))
        self.coordinator.add_partitions(name, pair, places, version, self._answer)
        answered = self._answered()
        return None if answered is None else answered[0]

    def end(
        self, pair: Pair, committed: bool = True, version: int = 0, name: str = ID
    ) -> tuple[ErrorCode, Pair] | None:
        self.coordinator.end(name, pair, version, self._answer, committed=committed)
        return self._answered()

    def state(self, name: str = ID) -> State | None:
        image = self.coordinator.find(name)
        return None if image is None else image.state

    def pass_ms(self, delay_ms: int) -> None:
        self.clock.advance(delay_ms)

    def look(self) -> None:
        for _ in self.coordinator.abort_timed_out():
            pass

    def expire(self) -> None:
        for _ in self.coordinator.expire():
            pass
