"""The share coordinator: the states of the share-partitions whose coordinator this broker is.

    handlers, persister -> ask -> the queue of the partition of `__share_group_state`
    a worker of its log -> a round: decide (decisions.py), append, apply, answer

What waits for one partition of the topic is decided by one thread at a time, a round after the
other. The records of a round are one batch. They are applied when the log has them, and answered
when its followers do; so memory is what the log says, in its order, and a record that the log
refuses has changed nothing. A round has at most one request for each share-partition, and about
ROUND_BYTES; what is left waits for the next one, in its order. A request that writes nothing is
answered when the followers have what was written before it: what a client has learned, another
coordinator knows too.

Nothing here waits for a log but the workers (`log/log_workers.py`): handlers and the persister
return at once.

Bound: WAITING_MAX requests for a partition of the topic, half of that for summaries: one more is
answered COORDINATOR_NOT_AVAILABLE. SHARE_STATES_OF_PARTITION_MAX states of a partition, and
SHARE_STATES_MAX in all: one more is answered POLICY_VIOLATION, which is final. Until a group is
deleted there is no room, and what tries again keeps places in the queues of those that ask.

Lock: one, a leaf, around the partitions, their queues and the dictionaries of states; a state
itself is changed by its partition's round only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import UUID

from kbroker import limits
from kbroker.coordinator.share.decisions import Decision, Exists, decide
from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share.records import record_of, tombstone_of
from kbroker.coordinator.share.requests import (
    Asked,
    Done,
    Forget,
    Initialize,
    Renew,
    Write,
    failed,
    full,
    room_for,
)
from kbroker.coordinator.share.seams import Outcome
from kbroker.coordinator.share.state import ShareState
from kbroker.errors import ErrorCode
from kbroker.failures import Failures
from kbroker.log_lines import LogLines
from kbroker.once import once

if TYPE_CHECKING:
    from kbroker.clock import Clock

NONE: Final = ErrorCode.NONE
WAITING_MAX: Final = 10_000
ROUND_MAX: Final = 500
# Far below max.message.bytes; a record of more than that is a round of its own.
ROUND_BYTES: Final = 500_000
# Of the coordinator's own requests, for one partition in one step of the scheduler.
_OWN_MAX: Final = 500

UPDATES_MAX_KEY: Final = "share.coordinator.snapshot.update.records.per.snapshot"
WRITE_TIMEOUT_KEY: Final = "share.coordinator.write.timeout.ms"
COLD_KEY: Final = "share.coordinator.cold.partition.snapshot.interval.ms"

Record = tuple[bytes, bytes | None]

FULL_WORDS: Final = "There are as many states as there may be; delete share groups not used."


class ShareLog(Protocol):
    """The partitions of the state topic that this broker leads."""

    def partition_of(self, key: str) -> int:
        """-1: there is no topic."""
        ...

    def term_of(self, partition: int) -> int:
        """Grows when the partition becomes this broker's, and when it ceases to be."""
        ...

    def error_of(self, partition: int) -> ErrorCode:
        """NONE when this broker has it; else the error for its clients."""
        ...

    def offsets(self, partition: int) -> tuple[int, int]:
        """Where its log begins, and the offset that the next record gets."""
        ...

    def append(
        self,
        partition: int,
        term: int,
        records: Sequence[Record],
        in_log: Callable[[], object],
        done: Callable[[ErrorCode], object],
        timeout_ms: int,
    ) -> None:
        """One batch. `in_log` comes when it is appended, then `done` once, perhaps at once: when
        the followers have it, or with an error. Without a lock held."""
        ...

    def settled(self, key: str, done: Callable[[ErrorCode], object], timeout_ms: int) -> None:
        """`done` comes once, when the followers have what was written by now."""
        ...

    def prune(self, partition: int, offset: int, replicated_to: int) -> bool:
        """Let what is below the offset go, if the followers have all below `replicated_to`: what
        makes it superfluous is there. False: they have not."""
        ...


# `on_worker(partition, call)`: have it done by a thread that may wait for that log.
OnWorker = Callable[[int, Callable[[], object]], object]


class Settings(Protocol):
    """The broker's configuration, of which the keys share.coordinator.*."""

    def __getitem__(self, name: str, /) -> Any: ...


class _Waiting(NamedTuple):
    asked: Asked
    done: Done


class _Partition:
    """One partition of the state topic in one term."""

    __slots__ = (
        "index", "is_working", "newest", "states", "term", "to_prune", "unapplied_from", "waiting",
    )  # fmt: skip

    def __init__(self, index: int, term: int) -> None:
        self.index: Final = index
        self.term: Final = term
        self.states: dict[SharePartition, ShareState] = {}
        self.newest: dict[SharePartition, tuple[int, int]] = {}  # write: run and number
        self.waiting: deque[_Waiting] = deque()
        self.is_working = False
        self.unapplied_from = -1  # offset of a round that may be in the log and not in `states`
        # An offset below which nothing is needed, once the followers have what is below the other.
        self.to_prune: tuple[int, int] | None = None


class Counts(NamedTuple):
    """Since the start."""

    writes: int = 0  # records
    refused: int = 0  # requests that were answered with an error of the state
    unwritten: int = 0  # requests whose record the log, or its followers, did not take


class ShareCoordinator:
    """See the module. `config` returns what it is now, `exists` asks the newest image."""

    def __init__(
        self,
        config: Callable[[], Settings],
        clock: Clock,
        log: ShareLog,
        exists: Exists,
        on_worker: OnWorker,
        failures: Failures | None = None,
    ) -> None:
        self._config: Final = config
        self._clock: Final = clock
        self._log: Final = log
        self._exists: Final = exists
        self._on_worker: Final = on_worker
        self.failures: Final = failures or Failures("share state")
        self._lines: Final = LogLines(logging.getLogger("kbroker.share"))
        self._lock: Final = threading.Lock()
        self._partitions: dict[int, _Partition] = {}
        self._counts = Counts()

    # --- requests ---------------------------------------------------------------------------------

    def ask(self, asked: Asked, done: Done) -> None:
        """`done` is called once, on any thread, perhaps before this returns."""
        partition = self._log.partition_of(asked.key.coordinator_key)
        if partition < 0:
            done(failed(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        # The term comes first: in the one that is active below, nothing else may have been loaded.
        term = self._log.term_of(partition)
        code = self._log.error_of(partition)
        if code:
            done(failed(asked, code))
            return
        with self._lock:
            found = self._partitions.get(partition)
            if found is None or found.term < term:  # an empty one is not loaded
                found = self._partitions[partition] = _Partition(partition, term)
            is_full = len(found.waiting) >= room_for(asked, WAITING_MAX)
            begins = not is_full and not found.is_working
            if not is_full:
                found.waiting.append(_Waiting(asked, done))
                found.is_working = True
        if is_full:
            done(full(asked))
        elif begins:
            self._begin(found)

    def _begin(self, at: _Partition) -> None:
        try:
            self._on_worker(at.index, partial(self._work, at))
        except Exception as error:
            self.failures.note("beginning a round of share state", error)
            with self._lock:
                left = list(at.waiting)
                at.waiting.clear()
                at.is_working = False
            self._fail(left, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # --- a round: a worker ------------------------------------------------------------------------

    def _work(self, at: _Partition) -> None:
        """One round; then others have their turn on this thread."""
        taken: list[_Waiting] = []
        left: Sequence[_Waiting] = ()
        try:
            with self._lock:
                _take(at.waiting, taken)
            left = self._round(at, taken)
        except Exception as error:
            self.failures.note("a round of share state", error)
            self._fail(taken, ErrorCode.UNKNOWN_SERVER_ERROR)
        finally:  # else the partition would be at work for ever
            with self._lock:
                at.unapplied_from = -1
                at.is_working = False
                at.waiting.extendleft(reversed(left))
                goes_on = at.is_working = bool(at.waiting)
        if goes_on:
            self._begin(at)

    def _round(self, at: _Partition, taken: Sequence[_Waiting]) -> Sequence[_Waiting]:
        """What is left for the next one."""
        if self._log.term_of(at.index) != at.term:
            self._fail(taken, ErrorCode.NOT_COORDINATOR)
            return []
        _, offset = self._log.offsets(at.index)
        with self._lock:
            at.unapplied_from = offset
        decided: list[tuple[_Waiting, Decision]] = []
        records: list[Record] = []
        size = 0
        for each in taken:
            decision, record = self._decide(at, each.asked)
            if record is not None:
                size += len(record[0]) + len(record[1] or b"")
                if records and size > ROUND_BYTES:
                    break
                records.append(record)
            decided.append((each, decision))
        answered = once(partial(self._answer, decided))
        timeout_ms = self._config()[WRITE_TIMEOUT_KEY]
        try:
            if records:
                in_log = partial(self._apply, at, decided, offset)
                self._log.append(at.index, at.term, records, in_log, answered, timeout_ms)
            else:
                self._log.settled(taken[0].asked.key.coordinator_key, answered, timeout_ms)
        except Exception as error:
            self.failures.note("a write of share state", error)
            answered(ErrorCode.UNKNOWN_SERVER_ERROR)
        return taken[len(decided) :]

    def _decide(self, at: _Partition, asked: Asked) -> tuple[Decision, Record | None]:
        """And what it writes, if it does. A write that comes late, when its writer has made it
        again and then a later one, is nothing: it would take back what that has said."""
        if isinstance(asked, Write) and _is_late(asked, at.newest.get(asked.key)):
            return Decision(Outcome()), None
        if isinstance(asked, Initialize) and asked.key not in at.states and self._is_full(at):
            return Decision(failed(asked, ErrorCode.POLICY_VIOLATION, FULL_WORDS)), None
        try:
            decision = decide(
                asked,
                at.states.get(asked.key),
                self._exists,
                now_ms=self._clock.wall_ms(),
                updates_max=self._config()[UPDATES_MAX_KEY],
            )
            return decision, _record(asked.key, decision) if decision.writes else None
        except Exception as error:
            self.failures.note("a decision about share state", error)
            return Decision(failed(asked, ErrorCode.UNKNOWN_SERVER_ERROR)), None

    def _is_full(self, at: _Partition) -> bool:
        """Whether there is no room for another state, with a line that says so."""
        if len(at.states) >= limits.SHARE_STATES_OF_PARTITION_MAX:
            self._lines.write(
                logging.WARNING, "too many states",
                "partition %d of the share state topic has %d states, as many as it may have: a new"
                " one is refused; delete share groups that are not used",
                at.index, len(at.states),
            )  # fmt: skip
            return True
        count = self.state_count()
        if count >= limits.SHARE_STATES_MAX:
            self._lines.write(
                logging.WARNING, "too many states in all",
                "this broker coordinates %d states of share-partitions, as many as it may: a new"
                " one is refused; delete share groups that are not used, or have other brokers lead"
                " some partitions of the share state topic",
                count,
            )  # fmt: skip
            return True
        return False

    def _apply(
        self, at: _Partition, decided: Sequence[tuple[_Waiting, Decision]], offset: int
    ) -> None:
        """The log has the records, at this offset or later."""
        written = 0
        with self._lock:
            for (asked, _), decision in decided:
                if decision.writes:
                    written += 1
                    _apply(at.states, asked.key, decision, offset)
                    if decision.deletes:
                        at.newest.pop(asked.key, None)
                    elif isinstance(asked, Write) and asked.run:
                        at.newest[asked.key] = asked.run, asked.number
            self._counts = self._counts._replace(writes=self._counts.writes + written)

    def _answer(self, decided: Sequence[tuple[_Waiting, Decision]], code: ErrorCode) -> None:
        refused = unwritten = 0
        for (asked, done), decision in decided:
            answer = decision.answer
            if answer.code:
                refused += 1
            elif code:
                unwritten += decision.writes
                answer = failed(asked, code)
            self._tell(done, answer)
        with self._lock:
            before = self._counts
            self._counts = before._replace(
                refused=before.refused + refused, unwritten=before.unwritten + unwritten
            )

    def _fail(self, waiting: Iterable[_Waiting], code: ErrorCode) -> None:
        for asked, done in waiting:
            self._tell(done, failed(asked, code))

    def _tell(self, done: Done, answer: Any) -> None:
        try:
            done(answer)
        except Exception as error:  # others wait for theirs
            self.failures.note("an answer of share state", error)

    # --- the log and leadership: the loader's thread ----------------------------------------------

    def load(self, partition: int, term: int, states: Mapping[SharePartition, ShareState]) -> None:
        """States as the log has them, before their partition is active."""
        loaded = _Partition(partition, term)
        loaded.states.update(states)
        with self._lock:
            self._partitions[partition] = loaded

    def unload(self, partitions: Iterable[int]) -> None:
        """Forget them; what waits there is answered by its round."""
        with self._lock:
            for partition in partitions:
                self._partitions.pop(partition, None)

    def forget_topic(self, topic_id: UUID) -> None:
        """The topic was deleted: tombstones for its states."""
        self._forget(lambda key: key.topic_id == topic_id)

    def forget_others(self, partition: int) -> None:
        """Tombstones for states of topics that were deleted before the partition was loaded."""
        self._forget(lambda key: not self._exists(key.topic_id, key.partition), partition)

    def _forget(self, gone: Callable[[SharePartition], bool], partition: int | None = None) -> None:
        for _, states in self._known(partition):
            for key in filter(gone, states):
                self.ask(Forget(key), _no_client)

    # --- the scheduler ----------------------------------------------------------------------------

    def renew_cold(self) -> Iterator[None]:
        """Snapshots of states that nothing was written to for long, and that keep a log from being
        pruned: without them a state that no group uses would keep all that came after it."""
        before_ms = self._clock.wall_ms() - self._config()[COLD_KEY]
        for at, states in self._known():
            begin, end = self._log.offsets(at.index)
            has_more = end - begin > len(states)  # else each record is a snapshot, and needed
            cold = [
                key
                for key, state in states.items()
                if state.written_ms <= before_ms
                and (has_more or not self._exists(key.topic_id, key.partition))
            ]
            for first in range(0, len(cold), _OWN_MAX):
                for key in cold[first : first + _OWN_MAX]:
                    self.ask(Renew(key, before_ms), _no_client)
                yield
            yield

    def prune(self) -> Iterator[None]:
        """Let go of the logs what no state needs.

        A snapshot makes what was before it superfluous only when the followers have it, too. Where
        they have not now, the next time is soon enough."""
        for at, _ in self._known():
            self._prune(at)
            begin, _ = self._log.offsets(at.index)
            with self._lock:
                needed = [state.log_offset for state in at.states.values()]
                if at.is_working:
                    needed.append(at.unapplied_from if at.unapplied_from >= 0 else begin)
                _, end = self._log.offsets(at.index)
                lowest = min(needed, default=end)
                if lowest > begin and at.to_prune is None:
                    at.to_prune = lowest, end
            self._prune(at)
            yield

    def _prune(self, at: _Partition) -> None:
        is_ours = self._log.term_of(at.index) == at.term
        if is_ours and at.to_prune is not None and self._log.prune(at.index, *at.to_prune):
            at.to_prune = None

    def _known(
        self, partition: int | None = None
    ) -> list[tuple[_Partition, dict[SharePartition, ShareState]]]:
        with self._lock:
            return [
                (at, dict(at.states))
                for at in self._partitions.values()
                if partition in (None, at.index)
            ]

    # --- figures: any thread ----------------------------------------------------------------------

    @property
    def counts(self) -> Counts:
        return self._counts

    def state_count(self, partition: int | None = None) -> int:
        with self._lock:
            return sum(
                len(at.states) for at in self._partitions.values() if partition in (None, at.index)
            )


def _take(waiting: deque[_Waiting], taken: list[_Waiting]) -> None:
    """Those at the head that may be in one round."""
    keys: set[SharePartition] = set()
    while waiting and len(taken) < ROUND_MAX and waiting[0].asked.key not in keys:
        keys.add(waiting[0].asked.key)
        taken.append(waiting.popleft())


def _is_late(asked: Write, newest: tuple[int, int] | None) -> bool:
    return newest is not None and newest[0] == asked.run and asked.number < newest[1]


def _record(key: SharePartition, decision: Decision) -> Record:
    return tombstone_of(key) if decision.value is None else record_of(key, decision.value)


def _apply(
    states: dict[SharePartition, ShareState],
    key: SharePartition,
    decision: Decision,
    offset: int,
) -> None:
    if decision.value is None:
        states.pop(key, None)
        return
    after = ShareState.after(states.get(key), decision.value, offset)
    if after is not None:
        states[key] = after


def _no_client(answer: object) -> None:
    """The coordinator's own."""
