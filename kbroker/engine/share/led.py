"""One share-partition in service: its machine, and the reads, writes and times that it needs.

    begin        the state is read; where no start is kept, it is found by the group's reset, and
                 written before the first record leaves
    fetch        records for a member, if there are any now
    acknowledge  a member's results; the answer comes with their write
    end_session  the records of a session that has ended
    retire       its group has no session here: it ends when all that is to be kept is written
    end          this broker does not lead the partition any more, in that epoch

It is of one leader epoch, and is replaced by another one after that, which reads the state again.
Reads wait for the disk; one read at a time is under way. A fetch that meets it looks again after
it, unless the read has found nothing and nothing has changed: then it would find the same. The
share coordinator's answers and the ends of locks come on other threads, and are handed to handlers
(`Parts.call_soon`). There is one watch of the log for all fetches that wait, and one look that is
still to come.

`lock` guards the machine and all that is here. It is a leaf: neither the persister nor a token is
called under it, and nothing is read from the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.config.share_settings import EARLIEST, LATEST, reset_age_ms
from kbroker.coordinator.share.images import NO_START, StateBatch
from kbroker.coordinator.share.images import SharePartition as Key
from kbroker.engine.share.dead_letters import DeadLetters
from kbroker.engine.share.parts import GONE, client_code
from kbroker.engine.share.reading import Read, read
from kbroker.engine.share.record_times import timed_in
from kbroker.engine.share.watching import LogWatcher
from kbroker.errors import ErrorCode, KafkaError
from kbroker.replica.share.acknowledging import Acknowledgement, acknowledge, not_done
from kbroker.replica.share.acquiring import Acquired, Timed, Wanted, acquire
from kbroker.replica.share.description import Described, describe
from kbroker.replica.share.partition import (
    Counts,
    Settings,
    SharePartition,
)
from kbroker.replica.share.spared import Spared
from kbroker.replica.share.states import State
from kbroker.replica.share.writes import StoredBatch, Write

if TYPE_CHECKING:
    from kbroker.coordinator.share.seams import Outcome, ReadState
    from kbroker.engine.share.parts import LedLog, Parts

# Reads of one fetch that hand out nothing: gaps, and records of aborted transactions.
_ROUNDS_MAX: Final = 16
# A time that is later is looked at then, and again.
_LOOK_AGAIN_MS_MAX: Final = 3_600_000
# A write that no client waits for is tried again after this.
_WRITE_AGAIN_MS: Final = 1_000

Token = Callable[[ErrorCode], object]


class Phase(Enum):
    READING = "the state is being read"
    STARTING = "its start is being written"
    ACTIVE = "it serves"
    GONE = "it is over"


class Fetched(NamedTuple):
    records: bytes
    acquired: list[Acquired]


class Readable(NamedTuple):
    """What a fetch would find: so many bytes from the offset on; None: not from the log's end."""

    offset: int | None
    count_bytes: int


class LedSharePartition:
    """See the module."""

    def __init__(
        self, key: Key, log: LedLog, leader_epoch: int, parts: Parts, spared: Spared | None = None
    ) -> None:
        self.key: Final = key
        self.log: Final = log
        self.leader_epoch: Final = leader_epoch
        self.lock = threading.Lock()
        self.phase = Phase.READING
        self.code = ErrorCode.NONE  # why it is over
        self.machine = SharePartition(0)
        self.spared: Final = Spared() if spared is None else spared
        self._parts: Final = parts
        self._state_epoch = 0
        self._is_read = False  # a read of the log is under way
        self._is_missed = False  # a fetch has met it
        self._timer_ms: int | None = None  # when the time of the first lock is looked at
        self._backs_off = False
        self._has_said_too_far = False
        self._retires = False
        self._began_ms = 0
        # Another object after each change that a fetch may wait for.
        self.changed: object = object()
        route = parts.dead_letters
        self._dead_letters: Final = None if route is None else DeadLetters(self, parts, route)
        self._watcher: Final = LogWatcher(log, parts.await_records, parts.call_later, self._wake)

    @property
    def serves(self) -> bool:
        """Its state was read, and it leads."""
        return self.phase is Phase.ACTIVE

    def settings(self) -> Settings:
        own = self._parts.settings(self.key.group_id)
        # Records of the dead-letter topic itself would come back into it for ever.
        copies = self._dead_letters is not None and own.dead_letters not in ("", self.log.name[0])
        return Settings(
            own.lock_ms, own.deliveries, own.window, own.renews, own.short_ms, copies, own.delay_ms,
            own.delay_ms_max, own.heeds_times,
        )  # fmt: skip

    def given_up(self, record: Described) -> str:
        """Of a record whose copy is to be written: why, and where that goes."""
        if self._dead_letters is None or record.state != State.ARCHIVING:
            return ""
        return self._dead_letters.describe(record.cause)

    def describe(self, offset: int) -> tuple[bool, Described]:
        """Whether it serves, and one record, as it is now."""
        with self.lock:
            return self.phase is Phase.ACTIVE, describe(self.machine, offset)

    # --- The beginning ----------------------------------------------------------------------------

    def begin(self) -> None:
        self._began_ms = self._now_ms()
        try:
            self._parts.persister.read(
                self.key, self.leader_epoch, lambda kept: self.soon(lambda: self._start(kept))
            )
        except Exception as error:
            self.fail(error)

    def _start(self, kept: ReadState) -> None:
        if kept.code is not ErrorCode.NONE:
            self.end(client_code(kept.code))
            return
        try:
            writes = self._first_writes(kept)
        except KafkaError as error:
            self.end(error.code)
        else:
            self._write_first(writes)

    def _write_first(self, writes: Sequence[Write]) -> None:
        if writes:
            self._send(writes[0], lambda outcome: self._started(outcome, writes[1:]))
        else:
            self._activate()

    def _first_writes(self, kept: ReadState) -> tuple[Write, ...]:
        """The machine as it is to be; the writes without which it must not serve."""
        writes: tuple[Write, ...]
        if kept.start_offset == NO_START:
            start = self._resolved()
            machine, writes = SharePartition(start), (Write(start, (), 0),)
        else:
            batches = [StoredBatch(*batch) for batch in kept.batches]
            machine, writes = SharePartition.load(
                kept.start_offset, batches, self.log.log_start_offset, self.log.log_end_offset
            )
            machine.kept_start = kept.start_offset
            if writes:
                self._parts.figures.log_ends_before(
                    self.key.group_id, self.log.name, writes[0].start_offset,
                    self.log.log_end_offset,
                )  # fmt: skip
        with self.lock:
            if self.phase is not Phase.READING:
                return ()  # it has ended meanwhile
            machine.spared = self.spared
            self.machine = machine
            self._state_epoch = kept.state_epoch
            self.phase = Phase.STARTING
        return writes

    def _resolved(self) -> int:
        """Where a group begins that has read nothing yet (share.auto.offset.reset)."""
        reset = self._parts.settings(self.key.group_id).reset
        if reset == EARLIEST:
            return self.log.log_start_offset
        age_ms = None if reset == LATEST else reset_age_ms(reset)
        if age_ms is not None:
            found = self.log.offset_for_time(max(0, self._parts.clock.wall_ms() - age_ms))
            if found is not None:
                return found[0]
        return self.log.high_watermark

    def _started(self, outcome: Outcome, left: Sequence[Write]) -> None:
        if outcome.code is not ErrorCode.NONE:
            self.end(client_code(outcome.code))
            return
        with self.lock:
            if self.phase is not Phase.STARTING:
                return
            self.machine.kept_start = self.machine.start
        self._write_first(left)

    def _activate(self) -> None:
        with self.lock:
            if self.phase is Phase.GONE:
                return
            self.phase = Phase.ACTIVE
        self._parts.figures.loaded(self._now_ms() - self._began_ms)
        self._wake()
        self._copy_dead_letters()

    def soon(self, call: Callable[[], object]) -> None:
        """On a handler. If none can be called, or the call fails, the share-partition is over:
        nothing else would go on with it."""
        try:
            self._parts.call_soon(lambda: self.run(call))
        except Exception as error:
            self.fail(error)

    def run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        self._parts.failures.note("a share-partition", error)
        self.end(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _wake(self) -> None:
        self.changed = object()
        try:
            self._parts.wake(self.key)
        except Exception as error:  # what waits is answered when its time is over
            self._parts.failures.note("waking the fetches of a share-partition", error)

    # --- Members ----------------------------------------------------------------------------------

    def readable(self, max_bytes: int) -> Readable:
        """How much a fetch would find; `max_bytes` where records are available again. On a
        handler's thread. KafkaError."""
        with self.lock:
            if self.phase is Phase.GONE:
                raise KafkaError(self.code)
            if self.phase is not Phase.ACTIVE:
                return Readable(None, 0)
            offset = self.machine.next_offset(self.settings())
            is_new = offset is not None and offset > self.machine.end
        if offset is None:
            return Readable(None, 0)
        if not is_new:
            return Readable(None, max_bytes)
        is_committed = self._parts.settings(self.key.group_id).is_committed
        count = self.log.readable_bytes(offset, max_bytes, read_committed=is_committed)
        return Readable(offset, count)

    def is_exhausted(self) -> bool:
        """Whether a fetch would find nothing, and the log is watched for the next record."""
        with self.lock:
            if self.phase is not Phase.ACTIVE or self._is_read:
                return False
            offset = self.machine.next_offset(self.settings())
            is_new = offset is not None and offset > self.machine.end
        return offset is None or (is_new and self._watcher.watches(offset))

    def fetch(self, owner: int, wanted: Wanted, max_bytes: int) -> Fetched | None:
        """What the member has from now on; None: nothing now, and those that wait are woken when
        there is, after `changed` has become another object. On a handler's thread. KafkaError."""
        for _ in range(_ROUNDS_MAX):
            read_from = self._begin_read()
            if read_from is None:
                return None
            fetched, goes_on = self._read_from(read_from, owner, wanted, max_bytes)
            if fetched is not None or not goes_on:
                return fetched
        self._wake()  # the others that wait have their turn
        return None

    def _begin_read(self) -> int | None:
        with self.lock:
            if self.phase is Phase.GONE:
                raise KafkaError(self.code)
            if self.phase is not Phase.ACTIVE:
                return None
            if self._is_read:
                self._is_missed = True
                return None
            settings = self.settings()
            has_changed = self.machine.end_locks(self._now_ms(), settings)
            has_changed |= self.machine.log_starts_at(self.log.log_start_offset)
            read_from = self.machine.next_offset(settings)
            self._is_read = read_from is not None
        if has_changed:
            self._wake()
        if read_from is None:
            self._after()
        return read_from

    def _read_from(
        self, read_from: int, owner: int, wanted: Wanted, max_bytes: int
    ) -> tuple[Fetched | None, bool]:
        """And whether the next read may find more."""
        try:
            is_committed = self._parts.settings(self.key.group_id).is_committed
            found = read(
                self.log, read_from, max_bytes, self._parts.aborted, is_committed=is_committed
            )
        except BaseException as error:
            is_late = isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE
            goes_on = self.log.log_start_offset > read_from
            self._end_read(wakes=goes_on or not is_late)
            if is_late:
                return None, goes_on
            raise
        acquired: list[Acquired] = []
        goes_on = has_ended = False
        try:
            timed = self._timed(found)
            with self.lock:
                if self.phase is Phase.ACTIVE:
                    settings, now_ms = self.settings(), self._now_ms()
                    has_ended = self.machine.end_locks(now_ms, settings)
                    if found.batches:
                        acquired = acquire(
                            self.machine, owner, read_from, found.found, wanted, settings, now_ms,
                            found.aborted, timed,
                        )  # fmt: skip
                    goes_on = self.machine.next_offset(settings) != read_from
        finally:
            self._end_read(wakes=bool(acquired) or goes_on)
        try:
            if has_ended:
                self._wake()
            self._after()
            if acquired:
                return Fetched(found.slice(acquired), acquired), False
        except BaseException:
            self.give_back(owner, acquired)
            raise
        if not found.batches:
            self.watch(read_from, 1)
        return None, goes_on and bool(found.batches)

    def _timed(self, found: Read) -> list[Timed]:
        """Records whose headers say that no member gets them now."""
        if not self._parts.settings(self.key.group_id).heeds_times:
            return []
        clock = self._parts.clock
        wall_ms, now_ms = clock.wall_ms(), clock.monotonic_ms()
        return timed_in(found.data, found.batches, wall_ms, now_ms, self._too_far)

    def _too_far(self, offset: int) -> None:
        if not self._has_said_too_far:
            self._has_said_too_far = True
            self._parts.figures.too_far(self.key.group_id, self.log.name, offset)

    def _end_read(self, *, wakes: bool) -> None:
        with self.lock:
            self._is_read = False
            missed, self._is_missed = self._is_missed, False
        if missed and wakes:
            self._wake()

    def acknowledge(
        self, owner: int, batches: Sequence[Acknowledgement], token: Token
    ) -> ErrorCode | None:
        """None: `token` is called with the code, once, later or before this returns. `batches` have
        passed `check`."""
        batches = not_done(self.machine, batches)
        with self.lock:
            if self.phase is Phase.GONE:
                return self.code
            if self.phase is not Phase.ACTIVE:
                return ErrorCode.INVALID_RECORD_STATE
            self.machine.log_starts_at(self.log.log_start_offset)
            outcome = acknowledge(
                self.machine, owner, batches, self.settings(), self._now_ms(), token
            )
        if outcome.released:
            self._wake()
        if outcome.code is None:
            self.run(self._after)  # the token is answered, so nothing is raised
        else:
            self._after()
        return outcome.code

    def give_back(self, owner: int, acquired: Sequence[Acquired]) -> None:
        """What `fetch` returned will not leave."""
        with self.lock:
            some = acquired if self.serves else ()
            given = any([self.machine.give_back(owner, *each[:2]) for each in some])
        if given:
            self._wake()

    def end_session(self, owner: int) -> None:
        with self.lock:
            ended = self.phase is Phase.ACTIVE and self.machine.end_session(
                owner, self.settings(), self._now_ms()
            )
        if ended:
            self._wake()
            self._after()

    def retire(self, is_used: Callable[[], bool]) -> None:
        """Its group has no session here any more: what members have of an earlier one of theirs,
        in place of which they opened the last, is available as well, and counts. `is_used`: whether
        it has one by now. One that begins after that takes nothing before the lock is free."""
        self.run(lambda: self._retire(is_used))

    def _retire(self, is_used: Callable[[], bool]) -> None:
        with self.lock:
            if is_used():
                return
            self._retires = True
            is_over = self.phase is not Phase.ACTIVE
            if not is_over:
                self.machine.end_session(None, self.settings(), self._now_ms())
        if is_over:
            self.end(ErrorCode.NOT_LEADER_OR_FOLLOWER, only_retired=True)
        else:
            self._after()

    def copied(self, spans: Sequence[tuple[int, int]], over: Callable[[], object]) -> None:
        """Records that were given up: their copies are written, or will never be. `over` is called
        with the lock: those records are not to be copied once more, and the next ones are."""
        with self.lock:
            if self.phase is not Phase.ACTIVE:
                return
            settings = self.settings()
            for first, last in spans:
                self.machine.copied(first, last, settings)
            over()
        self._wake()
        self._after()

    def _copy_dead_letters(self) -> None:
        if self._dead_letters is not None:
            self._dead_letters.begin()

    def stay(self) -> bool:
        """Its group has a session here. False: it is over."""
        with self.lock:
            self._retires = False
            return self.phase is not Phase.GONE

    def end(self, code: ErrorCode, *, only_retired: bool = False) -> bool:
        """It serves no more; its clients get this code. With `only_retired` it does, and False is
        returned, if a session relies on it by now."""
        with self.lock:
            if only_retired and not self._retires:
                return False
            if self.phase is Phase.GONE:
                return True
            self.phase, self.code = Phase.GONE, code
            tokens = self.machine.forget_write()
            counts = self.machine.take_counts()
        # Clients that wait are answered whatever fails before.
        self._try(partial(self._parts.forget, self))
        self._try(partial(self._add, counts))
        self._try(self._watcher.close)
        self._answer(tokens, code)
        self._wake()
        return True

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:
            self._parts.failures.note("the end of a share-partition", error)

    # --- Times and writes -------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._parts.clock.monotonic_ms()

    def _after(self) -> None:
        """Something has changed: the next write, the figures, and the time of the first lock."""
        self._write()
        with self.lock:
            counts = self.machine.take_counts()
            due_ms = self.machine.next_deadline_ms
            is_set = self._timer_ms is not None and due_ms is not None and self._timer_ms <= due_ms
            if is_set or self.phase is not Phase.ACTIVE:
                due_ms = None
            if due_ms is not None:
                self._timer_ms = due_ms
        self._add(counts)
        self._copy_dead_letters()
        if due_ms is None:
            return
        delay_ms = min(max(1, due_ms - self._now_ms()), _LOOK_AGAIN_MS_MAX)
        try:
            self._parts.call_later(delay_ms, lambda: self.soon(self._end_locks))
        except BaseException:
            with self.lock:
                self._timer_ms = None
            raise

    def _add(self, counts: Counts | None) -> None:
        if counts is not None:
            self._parts.figures.add(self.key.group_id, self.log.name, counts)

    def _end_locks(self) -> None:
        with self.lock:
            self._timer_ms = None
            ended = self.phase is Phase.ACTIVE and self.machine.end_locks(
                self._now_ms(), self.settings()
            )
        if ended:
            self._wake()
        self._after()

    def _write(self) -> None:
        with self.lock:
            if self.phase is not Phase.ACTIVE:
                return
            if self._backs_off and not self.machine.is_awaited:
                return
            write = self.machine.take_write()
            is_over = self._retires and self.machine.writing is None
            is_over = is_over and not self.machine.archiving
        if write is not None:
            self._send(write, self._written)
        elif is_over:
            self.end(ErrorCode.NOT_LEADER_OR_FOLLOWER, only_retired=True)

    def _send(self, write: Write, done: Callable[[Outcome], object]) -> None:
        try:
            self._parts.persister.write(
                self.key,
                self._state_epoch,
                self.leader_epoch,
                write.start_offset,
                [StateBatch(*batch) for batch in write.batches],
                lambda outcome: self.soon(lambda: done(outcome)),
                delivery_complete_count=write.complete,
            )
        except Exception as error:
            self.fail(error)

    def _written(self, outcome: Outcome) -> None:
        code = outcome.code
        if code in GONE:
            self.end(client_code(code))
            return
        with self.lock:
            if self.phase is not Phase.ACTIVE:
                return
            written = self.machine.written(code, self.settings(), self._now_ms())
            fails = code is not ErrorCode.NONE
            begins_to_wait = fails and not self._backs_off
            self._backs_off = fails
        self._answer(written.tokens, client_code(code))
        if fails and self.end(client_code(code), only_retired=True):
            return
        if begins_to_wait:
            self._parts.call_later(_WRITE_AGAIN_MS, lambda: self.soon(self._write_again))
        self._wake()
        self._after()

    def _write_again(self) -> None:
        with self.lock:
            self._backs_off = False
        self._after()

    def _answer(self, tokens: Sequence[Token], code: ErrorCode) -> None:
        for token in tokens:
            try:
                token(code)
            except Exception as error:  # the others are answered all the same
                self._parts.failures.note("the answer to an acknowledgement", error)

    # --- New records ------------------------------------------------------------------------------

    def watch(self, offset: int, count_bytes: int) -> None:
        """Wake those that wait when the log has so many bytes there, or sooner."""
        is_committed = self._parts.settings(self.key.group_id).is_committed
        self._watcher.watch(offset, is_committed, count_bytes)

    def stop_watching(self) -> None:
        """No fetch waits for it any more. One that is about to has the log watched again."""
        self._watcher.stop()
        self.changed = object()
