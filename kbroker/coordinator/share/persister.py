"""StatePersister: this broker's questions to share coordinators; `seams.py` has its promises.

    a call -> the chain of its share-partition -> this broker's coordinator, at once
                                               -> the queue of another one -> a request -> done

A share-partition has one call under way; those after it wait in its chain. For another broker,
calls of one kind and group share a request, since the protocol has one group in each: what comes
while a request is under way leaves together when that is answered. This broker's own coordinator is
asked without a socket, and gathers what comes by itself.

A call that finds no coordinator, or is answered with an error that passes, is made again after
RETRY_MS, and then after twice as long each time, up to RETRY_MS_MAX, as long as its time lasts:
TIME_MS from when it came. A write that is made twice says the same twice, and has the same number:
a coordinator that gets it once more after a later one leaves it out.

Bounds: WAITING_MAX calls, of which summaries leave half to the others; a request has REQUEST_MAX of
them, and about BATCHES_MAX batches. Any thread. Lock: one, a leaf; nothing is called with it. What
follows from an answer is done by one thread at a time, in order (`Outbox`): chains of any length
need no stack.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.coordinator.runtime.outbox import Outbox
from kbroker.coordinator.share.images import NO_COUNT, SharePartition, StateBatch
from kbroker.coordinator.share.requests import (
    Answer,
    Asked,
    Delete,
    Done,
    Initialize,
    Read,
    Summarize,
    Write,
    failed,
    full,
    room_for,
)
from kbroker.coordinator.share.seams import Outcome, ReadState, Summary
from kbroker.errors import ErrorCode
from kbroker.once import once

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.failures import Failures
    from kbroker.purgatory.timer import CallLater

WAITING_MAX: Final = 20_000
REQUEST_MAX: Final = 500
BATCHES_MAX: Final = 10_000
TIME_MS: Final = 15_000
RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 1_000

_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)

# Of one request to another broker: an answer for each that was asked, in that order, or an error.
Answers = Sequence[Answer] | ErrorCode


class Coordinators(Protocol):
    """The way to share coordinators."""

    def coordinator_of(self, key: SharePartition) -> int | None:
        """The broker; None: there is no topic, or its partition has no leader. A topic that is not
        there is created."""
        ...

    def is_local(self, node_id: int) -> bool: ...

    def ask_own(self, asked: Asked, done: Done) -> None:
        """This broker's coordinator. Returns at once."""
        ...

    def ask(self, node_id: int, asked: Sequence[Asked], done: Callable[[Answers], object]) -> None:
        """Another one, about some of a kind and a group. Returns at once; `done` comes once, on any
        thread."""
        ...


class _Call:
    __slots__ = ("asked", "done", "ends_ms", "pause_ms")

    def __init__(self, asked: Asked, done: Done, ends_ms: int) -> None:
        self.asked: Final = asked
        self.done: Final = done
        self.ends_ms: Final = ends_ms
        self.pause_ms = RETRY_MS


class _Queue:
    """To one coordinator, of one kind and group."""

    __slots__ = ("asks", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[_Call] = deque()
        self.asks = False


_QueueKey = tuple[int, type, str]


class StatePersister:
    """See the module; a `Persister`."""

    def __init__(
        self,
        coordinators: Coordinators,
        clock: Clock,
        call_later: CallLater,
        failures: Failures,
    ) -> None:
        self._coordinators: Final = coordinators
        self._clock: Final = clock
        self._call_later: Final = call_later
        self._failures: Final = failures
        self._lock: Final = threading.Lock()
        self._outbox: Final = Outbox(self._lock, failures)
        self._chains: dict[SharePartition, deque[_Call]] = {}
        self._queues: dict[_QueueKey, _Queue] = {}
        self._waiting = 0
        self._run: Final = 1 + secrets.randbits(62)  # no other broker's, and none of before
        self._writes = 0

    # --- a Persister ------------------------------------------------------------------------------

    def initialize(
        self,
        key: SharePartition,
        state_epoch: int,
        start_offset: int,
        done: Callable[[Outcome], object],
    ) -> None:
        self._call(Initialize(key, state_epoch, start_offset), done)

    def read(
        self, key: SharePartition, leader_epoch: int, done: Callable[[ReadState], object]
    ) -> None:
        self._call(Read(key, leader_epoch), done)

    def write(
        self,
        key: SharePartition,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        done: Callable[[Outcome], object],
        *,
        delivery_complete_count: int = NO_COUNT,
    ) -> None:
        with self._lock:
            self._writes += 1
            number = self._writes
        asked = Write(
            key, state_epoch, leader_epoch, start_offset, tuple(batches), delivery_complete_count,
            self._run, number,
        )  # fmt: skip
        self._call(asked, done)

    def delete(self, key: SharePartition, done: Callable[[Outcome], object]) -> None:
        self._call(Delete(key), done)

    def summary(
        self, key: SharePartition, leader_epoch: int, done: Callable[[Summary], object]
    ) -> None:
        self._call(Summarize(key, leader_epoch), done)

    @property
    def waiting(self) -> int:
        """Calls that are not answered."""
        return self._waiting

    # --- the chain of a share-partition -----------------------------------------------------------

    def _call(self, asked: Asked, done: Callable[[Any], object]) -> None:
        call = _Call(asked, done, self._clock.monotonic_ms() + TIME_MS)
        with self._lock:
            is_full = self._waiting >= room_for(asked, WAITING_MAX)
            if not is_full:
                self._waiting += 1
                chain = self._chains.setdefault(asked.key, deque())
                chain.append(call)
                if len(chain) == 1:
                    self._outbox.add(partial(self._send, call))
        if is_full:
            done(full(asked))
        self._outbox.run()

    def _send(self, call: _Call) -> None:
        """Ask whichever coordinator there is now."""
        answered = once(partial(self._answered, call))
        try:
            node_id = self._coordinators.coordinator_of(call.asked.key)
            if node_id is None:
                answered(failed(call.asked, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            elif self._coordinators.is_local(node_id):
                self._coordinators.ask_own(call.asked, answered)
            else:
                self._enqueue((node_id, type(call.asked), call.asked.key.group_id), call)
        except Exception as error:
            self._failures.note("asking a share coordinator", error)
            answered(failed(call.asked, ErrorCode.UNKNOWN_SERVER_ERROR))

    def _answered(self, call: _Call, answer: Answer) -> None:
        if answer.code in _PASSING and self._clock.monotonic_ms() + call.pause_ms < call.ends_ms:
            pause_ms = call.pause_ms
            call.pause_ms = min(2 * pause_ms, RETRY_MS_MAX)
            try:
                self._call_later(pause_ms, partial(self._again, call))
                return
            except Exception as error:  # a timer that is lost: there is no second attempt
                self._failures.note("asking a share coordinator again", error)
        with self._lock:
            chain = self._chains[call.asked.key]
            chain.popleft()
            self._waiting -= 1
            self._outbox.add(partial(call.done, answer))
            if chain:
                self._outbox.add(partial(self._send, chain[0]))
            else:
                del self._chains[call.asked.key]
        self._outbox.run()

    def _again(self, call: _Call) -> None:
        with self._lock:
            self._outbox.add(partial(self._send, call))
        self._outbox.run()

    # --- the queue of another broker's coordinator ------------------------------------------------

    def _enqueue(self, key: _QueueKey, call: _Call) -> None:
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = _Queue()
            queue.waiting.append(call)
        self._ask_next(key)

    def _ask_next(self, key: _QueueKey) -> None:
        with self._lock:
            queue = self._queues.get(key)
            if queue is None or queue.asks:
                return
            if not queue.waiting:
                del self._queues[key]
                return
            calls = _take(queue.waiting)
            queue.asks = True
        answered = once(partial(self._request_answered, key, calls))
        try:
            self._coordinators.ask(key[0], [call.asked for call in calls], answered)
        except Exception as error:
            self._failures.note("asking a share coordinator", error)
            answered(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _request_answered(self, key: _QueueKey, calls: Sequence[_Call], answers: Answers) -> None:
        with self._lock:
            self._queues[key].asks = False
        self._ask_next(key)  # what has waited goes first
        for at, call in enumerate(calls):
            if isinstance(answers, ErrorCode):
                self._answered(call, failed(call.asked, answers))
            else:
                self._answered(call, answers[at])


def _take(waiting: deque[_Call]) -> list[_Call]:
    """Those at the head that one request may have."""
    calls: list[_Call] = []
    batches = 0
    while waiting and len(calls) < REQUEST_MAX:
        asked = waiting[0].asked
        if isinstance(asked, Write):
            batches += len(asked.batches)
            if calls and batches > BATCHES_MAX:
                break
        calls.append(waiting.popleft())
    return calls
