"""A share coordinator over a log in memory, whose writes a test may hold up, refuse or lose."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final

from kbroker.clock import ManualClock
from kbroker.coordinator.share.coordinator import Record, ShareCoordinator
from kbroker.coordinator.share.images import SharePartition, StateBatch
from kbroker.coordinator.share.machine import ShareStateReplay
from kbroker.coordinator.share.requests import Asked, Read
from kbroker.coordinator.share.seams import Outcome, ReadState
from kbroker.errors import ErrorCode
from kbroker.failures import Failures

TOPIC: Final = uuid.UUID(int=0x51)
OTHER_TOPIC: Final = uuid.UUID(int=0x52)
KEY: Final = SharePartition("work", TOPIC, 0)
NONE: Final = ErrorCode.NONE
SETTINGS: Final = {
    "share.coordinator.snapshot.update.records.per.snapshot": 500,
    "share.coordinator.write.timeout.ms": 5_000,
    "share.coordinator.cold.partition.snapshot.interval.ms": 300_000,
}


def key_of(number: int) -> SharePartition:
    return KEY._replace(partition=number)


def batch(first: int, last: int, state: int = 2, count: int = 1) -> StateBatch:
    return StateBatch(first, last, state, count)


class MemoryLog:
    """One partition of the state topic; the `ShareLog` of a coordinator."""

    def __init__(self) -> None:
        self.begin = 0
        self.batches: list[list[Record]] = []  # as they were appended
        self.term = 1
        self.error = NONE
        self.refuses = NONE  # the appends that follow
        self.holds = False  # the answers of appends
        self.held: list[Callable[[ErrorCode], object]] = []
        self.has_topic = True
        self.high_watermark: int | None = None  # None: all is replicated at once

    @property
    def records(self) -> list[Record]:
        return [record for each in self.batches for record in each]

    def partition_of(self, key: str) -> int:
        return 0 if self.has_topic else -1

    def term_of(self, partition: int) -> int:
        return self.term

    def error_of(self, partition: int) -> ErrorCode:
        return self.error

    def offsets(self, partition: int) -> tuple[int, int]:
        return self.begin, len(self.records)

    def append(
        self,
        partition: int,
        term: int,
        records: Sequence[Record],
        in_log: Callable[[], object],
        done: Callable[[ErrorCode], object],
        timeout_ms: int,
    ) -> None:
        code = self.refuses if term == self.term else ErrorCode.NOT_COORDINATOR
        if code:
            done(code)
            return
        self.batches.append(list(records))
        in_log()
        self._answer(done)

    def settled(self, key: str, done: Callable[[ErrorCode], object], timeout_ms: int) -> None:
        self._answer(done)

    def _answer(self, done: Callable[[ErrorCode], object]) -> None:
        if self.holds:
            self.held.append(done)
        else:
            done(NONE)

    def release(self, code: ErrorCode = NONE) -> None:
        held, self.held = self.held, []
        for done in held:
            done(code)

    def prune(self, partition: int, offset: int, replicated_to: int) -> bool:
        assert offset <= replicated_to <= len(self.records)
        if self.high_watermark is not None and self.high_watermark < replicated_to:
            return False
        self.begin = max(self.begin, offset)
        return True


class World:
    """`at_once`: rounds are done where they are begun; else `work` does them."""

    def __init__(self, log: MemoryLog | None = None, *, at_once: bool = True) -> None:
        self.log = MemoryLog() if log is None else log
        self.clock = ManualClock()
        self.settings: dict[str, Any] = dict(SETTINGS)
        self.topics = {TOPIC, OTHER_TOPIC}
        self.at_once = at_once
        self.jobs: deque[Callable[[], object]] = deque()
        self.failures = Failures("share state")
        self.coordinator = ShareCoordinator(
            lambda: self.settings, self.clock, self.log,
            lambda topic_id, partition: topic_id in self.topics, self._on_worker, self.failures,
        )  # fmt: skip

    def _on_worker(self, partition: int, call: Callable[[], object]) -> None:
        self.jobs.append(call)
        if self.at_once and len(self.jobs) == 1:
            self.work()

    def work(self) -> None:
        while self.jobs:
            self.jobs[0]()
            self.jobs.popleft()

    def load(self) -> None:
        """As the loader does, from where the log begins."""

        def loaded(states: Any) -> None:
            self.coordinator.load(0, self.log.term, states)

        replay = ShareStateReplay(loaded)
        for offset, (key, value) in enumerate(self.log.records):
            if offset >= self.log.begin:
                replay.record(SimpleNamespace(offset=offset, timestamp_ms=0, key=key, value=value))
        replay.loaded()

    def begin(self, asked: Asked) -> list[Any]:
        """Its answer, once it is there."""
        answers: list[Any] = []
        self.coordinator.ask(asked, answers.append)
        return answers

    def ask(self, asked: Asked) -> Any:
        (answer,) = self.begin(asked)
        return answer

    def read(self, key: SharePartition = KEY, leader_epoch: int = 0) -> ReadState:
        answer = self.ask(Read(key, leader_epoch))
        assert isinstance(answer, ReadState)
        return answer

    def done(self, asked: Asked) -> None:
        assert self.ask(asked) == Outcome(), asked
