"""Share-partitions in service, with a log in memory; a coordinator and handlers by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from kbroker.clock import ManualClock
from kbroker.config.share_settings import LATEST, ShareGroupSettings
from kbroker.coordinator.share.images import NO_START, SharePartition, StateBatch
from kbroker.coordinator.share.seams import Outcome, ReadState
from kbroker.engine.share.dead_letters import Route, Topics
from kbroker.engine.share.figures import ShareFigures
from kbroker.engine.share.leaders import ShareLeaders
from kbroker.engine.share.led import Fetched, LedSharePartition
from kbroker.engine.share.parts import Parts
from kbroker.engine.share.turns import Turns
from kbroker.errors import ErrorCode, KafkaError
from kbroker.failures import Failures
from kbroker.protocol.record_batch import Record, encode_batch
from kbroker.purgatory.purgatory import Purgatory
from kbroker.purgatory.timer import Timer
from kbroker.replica.share.acknowledging import Acknowledgement
from kbroker.replica.share.acquiring import Wanted
from kbroker.types import TopicPartition

TOPIC = UUID(int=5)
KEY = SharePartition("g", TOPIC, 0)
ALL = Wanted(500, 500)
NONE, NOT_LEADER, LATER = (
    ErrorCode.NONE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
SETTINGS = ShareGroupSettings(30_000, 5, 2_000, True, False, LATEST)


class MemoryLog:
    """A replica that leads: whole batches, one after the other."""

    def __init__(self) -> None:
        self.topic_id, self.name = TOPIC, TopicPartition("orders", 0)
        self.leader_epoch = 3
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.batches: list[tuple[int, bytes]] = []  # last offset, bytes
        self.aborted: list[tuple[int, int]] = []
        self.before_read: Callable[[], object] = lambda: None
        self.reads = 0

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset

    def append(self, count: int, **how: Any) -> None:
        base = self.log_end_offset
        records = [Record(None, b"v%d" % at, timestamp_ms=1) for at in range(count)]
        if how.pop("marker", False):
            key = b"\x00\x00" + (0 if how.pop("aborts") else 1).to_bytes(2, "big")
            records = [Record(key, b"\x00\x00\x00\x00\x00\x00", timestamp_ms=1)]
            how["control"] = True
        if given := how.pop("records", None):
            records, count = given, len(given)
        self.log_end_offset += count
        data = encode_batch(records, base_offset=base, **how)
        self.batches.append((self.log_end_offset - 1, data))

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        return (1, timestamp_ms, 0) if timestamp_ms < 1_000_000 else None

    def readable_bytes(
        self, offset: int, max_bytes: int = 1 << 20, *, read_committed: bool = False
    ) -> int:
        return min(max_bytes, sum(len(data) for last, data in self.batches if last >= offset))

    def read(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        whole_first: bool = True,
        read_committed: bool = False,
    ) -> bytes:
        self.reads += 1
        self.before_read()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        data = b""
        for last, each in self.batches:
            if last >= offset and (not data or len(data) + len(each) <= max_bytes):
                data += each
        return data


class HandPersister:
    """Calls wait here until a test answers them; `run` is called after each answer."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self.reads: deque[tuple[int, Callable[[ReadState], object]]] = deque()
        self.writes: deque[tuple[int, list[StateBatch], int, Callable[[Outcome], object]]]
        self.writes = deque()

    def read(
        self, key: SharePartition, leader_epoch: int, done: Callable[[ReadState], object]
    ) -> None:
        self.reads.append((leader_epoch, done))

    def write(
        self,
        key: SharePartition,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        done: Callable[[Outcome], object],
        *,
        delivery_complete_count: int = -1,
    ) -> None:
        assert state_epoch == 9
        self.writes.append((start_offset, list(batches), delivery_complete_count, done))

    def answer_read(self, start: int = NO_START, code: ErrorCode = ErrorCode.NONE,
                    batches: tuple[StateBatch, ...] = ()) -> None:  # fmt: skip
        _, done = self.reads.popleft()
        done(ReadState(code, None, 9, start, batches))
        self._run()

    def answer_write(self, code: ErrorCode = ErrorCode.NONE) -> tuple[int, list[StateBatch], int]:
        start, batches, count, done = self.writes.popleft()
        done(Outcome(code))
        self._run()
        return start, batches, count


class Cancelled:
    def __init__(self, outcome: list[bool]) -> None:
        self._outcome = outcome

    def cancel(self) -> bool:
        self._outcome.append(True)
        return True


class World:
    """`topics`: the way to dead-letter topics, with so many turns."""

    def __init__(self, topics: Topics | None = None, turns: int = 1) -> None:
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.log = MemoryLog()
        self.persister = HandPersister(self.run)
        self.settings = SETTINGS
        self.read_settings: Callable[[], ShareGroupSettings] | None = None
        self.failures, self.figures = Failures("share"), ShareFigures()
        self.soon: deque[Callable[[], object]] = deque()
        self.call_soon: Callable[[Callable[[], object]], object] = self.soon.append
        # (offset, committed, bytes, done)
        self.watches: list[tuple[int, bool, int, Callable[[ErrorCode], object]]] = []
        self.cancelled: list[bool] = []
        self.waiting = Purgatory("ShareFetch", self.timer)
        self.woken = 0
        self.route = None
        if topics is not None:
            self.route = Route(topics, Turns(turns, lambda call: self.soon.append(call)))
        self.leaders = ShareLeaders(self._parts, self.waiting)

    def _parts(
        self,
        wake: Callable[[SharePartition], object],
        forget: Callable[[LedSharePartition], object],
    ) -> Parts:
        def woken(key: SharePartition) -> None:
            self.woken += 1
            wake(key)

        return Parts(
            self.clock, self.persister, self._settings_now,  # type: ignore[arg-type]
            self.timer.call_later, lambda call: self.call_soon(call), self._await_records,
            lambda log, offset, size: self.log.aborted, woken, forget, self.failures,
            self.figures, self.route,
        )  # fmt: skip

    def _settings_now(self, group_id: str) -> ShareGroupSettings:
        return self.settings if self.read_settings is None else self.read_settings()

    def _await_records(
        self,
        log: Any,
        offset: int,
        is_committed: bool,
        count_bytes: int,
        ms: int,
        done: Callable[[ErrorCode], object],
    ) -> Cancelled:
        self.watches.append((offset, is_committed, count_bytes, done))
        return Cancelled(self.cancelled)

    def end_watch(self) -> None:
        """There is what the log was watched for last."""
        *_, done = self.watches[-1]
        done(ErrorCode.NONE)

    def run(self) -> None:
        """Handlers do what is due."""
        while self.soon:
            self.soon.popleft()()

    def pass_ms(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timer.advance()
        self.run()

    def led(self) -> LedSharePartition:
        return self.leaders.led(KEY, self.log)

    def ready(self, start: int = 0, batches: tuple[StateBatch, ...] = ()) -> LedSharePartition:
        """A share-partition whose state was read."""
        led = self.led()
        self.persister.answer_read(start, batches=batches)
        self.run()
        return led


def spans(fetched: Fetched | None) -> list[tuple[int, int]]:
    return [] if fetched is None else [each[:2] for each in fetched.acquired]


def fetch(led: LedSharePartition, owner: int = 1) -> list[tuple[int, int]]:
    return spans(led.fetch(owner, ALL, 1 << 20))


def say(
    led: LedSharePartition, first: int, last: int, codes: list[ErrorCode], kind: int = 1
) -> None:
    code = led.acknowledge(1, [Acknowledgement(first, last, [kind])], codes.append)
    if code is not None:
        codes.append(code)
