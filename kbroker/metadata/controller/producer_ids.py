"""Producer ids for InitProducerId: never the same one twice, and a store write per thousand only.

Place in the flow: a handler calls `generate` on its own thread and is called back with an id, at
once while the block lasts, later on the controller thread otherwise. Blocks come from the
controller, which writes down that a block is taken before it hands it out; so a kill -9 loses the
rest of a block and never leads to an id being given again.

Locks: `_lock` only, a leaf; no callback is made and nothing is asked of the controller under it.
Bound: `WAITERS_MAX` callers wait for a block; the next ones are answered to come again
(COORDINATOR_LOAD_IN_PROGRESS, which every client retries), as are all when the block cannot be had.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import PRODUCER_ID_BLOCK_SIZE

log = logging.getLogger("kbroker.controller")

WAITERS_MAX: Final = 10_000
# Ask for the next block when this much of the current one is left, so that no producer waits.
_PREFETCH_AT_IDS_LEFT: Final = PRODUCER_ID_BLOCK_SIZE // 10


class ProducerIdBlock(NamedTuple):
    """The ids from `first` on, `size` of them."""

    first: int
    size: int


BlockCallback = Callable[[ProducerIdBlock | KafkaError], None]
AllocateBlock = Callable[[int, BlockCallback], None]
ProducerIdCallback = Callable[[int | KafkaError], None]


class ProducerIdManager:
    """See the head of this file; `allocate` is `Controller.allocate_producer_ids`."""

    def __init__(self, allocate: AllocateBlock, block_size: int = PRODUCER_ID_BLOCK_SIZE) -> None:
        self._allocate = allocate
        self._block_size = block_size
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0
        self._following: ProducerIdBlock | None = None
        self._waiters: deque[ProducerIdCallback] = deque()
        self._asking = False

    def generate(self, done: ProducerIdCallback) -> None:
        """Call back once, on this or the controller's thread, with an id or a KafkaError."""
        with self._lock:
            answer: int | KafkaError | None = self._take_locked()
            if answer is None:
                if len(self._waiters) < WAITERS_MAX:
                    self._waiters.append(done)
                else:
                    answer = _try_again("too many callers wait for a producer id")
            ask = self._must_ask_locked()
        if answer is not None:
            done(answer)
        if ask:
            self._allocate(self._block_size, self._on_block)

    def _take_locked(self) -> int | None:
        if self._next == self._end and self._following is not None:
            block, self._following = self._following, None
            self._next, self._end = block.first, block.first + block.size
        if self._next == self._end:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    def _must_ask_locked(self) -> bool:
        if self._asking or self._following is not None:
            return False
        left = self._end - self._next
        self._asking = left == 0 or left <= min(_PREFETCH_AT_IDS_LEFT, self._block_size // 10)
        return self._asking

    def _on_block(self, block: ProducerIdBlock | KafkaError) -> None:
        answers: list[tuple[ProducerIdCallback, int | KafkaError]] = []
        with self._lock:
            self._asking = False
            if isinstance(block, KafkaError):
                error = _try_again(block.message)
                answers = [(waiter, error) for waiter in self._waiters]
                self._waiters.clear()
            else:
                self._following = block
                while self._waiters:
                    producer_id = self._take_locked()
                    if producer_id is None:
                        break
                    answers.append((self._waiters.popleft(), producer_id))
            ask = bool(self._waiters) and self._must_ask_locked()
        for waiter, answer in answers:
            try:
                waiter(answer)
            except Exception:
                log.exception("a caller failed on its producer id")  # the others still wait
        if ask:
            self._allocate(self._block_size, self._on_block)


def _try_again(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
