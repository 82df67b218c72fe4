"""AddPartitionsToTxn of this broker to its own coordinator, without a socket.

As in a request, a partition that the published image does not have is not added: markers go by that
image, and one that is missing there counts as deleted. A new topic is led before it is published.

Any thread that may wait for a log; `done` is called once, when the last transaction is answered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.coordinator.txn.image import RAISES_EPOCHS, Pair
from kbroker.errors import ErrorCode
from kbroker.once import once

if TYPE_CHECKING:
    from kbroker.coordinator.txn.coordinator import TransactionCoordinator
    from kbroker.failures import Failures
    from kbroker.types import TopicPartition

Verdict = ErrorCode | Mapping["TopicPartition", ErrorCode]
Done = Callable[[Mapping[str, Verdict]], None]


class Asked(Protocol):
    """One transaction of the request."""

    @property
    def transactional_id(self) -> str: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def verify_only(self) -> bool: ...

    @property
    def partitions(self) -> Iterable[TopicPartition]: ...


class Verdicts:
    """Those of one request, until all are there. Each transaction has one, also one that raises."""

    def __init__(self, count: int, done: Done, failures: Failures) -> None:
        self._count: Final = count
        self._done: Final = done
        self._failures: Final = failures
        self._lock: Final = threading.Lock()
        self._found: dict[str, Verdict] = {}

    @contextmanager
    def of(self, transactional_id: str) -> Iterator[Callable[[Verdict], None]]:
        """For finding the verdict of one of them, now or later."""
        put = once(partial(self._put, transactional_id))
        try:
            yield put
        except Exception as error:
            self._failures.note("adding partitions to a transaction", error)
            put(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _put(self, transactional_id: str, verdict: Verdict) -> None:
        with self._lock:
            self._found[transactional_id] = verdict
            is_last = len(self._found) == self._count
        if is_last:
            self._done(self._found)


def ask(
    coordinator: TransactionCoordinator | None,
    transactions: Sequence[Asked],
    done: Done,
    failures: Failures,
    exists: Callable[[TopicPartition], bool],
) -> None:
    """No coordinator: this broker has no transactional id."""
    asked = {each.transactional_id: each for each in transactions}
    verdicts = Verdicts(len(asked), done, failures)
    for name, each in asked.items():
        with verdicts.of(name) as put:
            pair = Pair(each.producer_id, each.producer_epoch)
            if coordinator is None:
                put(ErrorCode.NOT_COORDINATOR)
            elif each.verify_only:
                put(coordinator.verify_partitions(name, pair, each.partitions))
            elif unknown := [place for place in each.partitions if not exists(place)]:
                not_attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
                errors = dict.fromkeys(each.partitions, not_attempted)
                put(errors | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                coordinator.add_partitions(
                    name, pair, frozenset(each.partitions), RAISES_EPOCHS, put
                )
