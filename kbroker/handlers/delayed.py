"""Requests that an event ends: the operations, and a purgatory for each kind of them.

    topic          CreateTopics, CreatePartitions, DeleteTopics: the topics can be used, or are gone
    ElectLeader    ElectLeaders: the partitions have the leaders that were elected
    Reassignment   AlterPartitionReassignments: the reassignments are under way
    DeleteRecords  the logs of all live replicas begin at the offset (`delete_records.py`)
    ShareFetch     there are records for a member of a share group (`share_fetch.py`)

The first three wait for the controller, whose callback is the event: it comes when the decision has
been applied here. Such an operation is watched under its call, of which nothing else is the event.
A request that is still waiting when its own timeout is over is answered with REQUEST_TIMED_OUT, and
the work goes on. `delayedOperation` of the purgatory's metrics has these names.

Any thread. Holds no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kbroker.errors import ErrorCode
from kbroker.purgatory.delayed_operation import DelayedOperation
from kbroker.purgatory.purgatory import Purgatory

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.protocol.messages.table import Message
    from kbroker.purgatory.timer import Timer


class Purgatories(NamedTuple):
    """One for each kind, on one timer."""

    topic: Purgatory
    elect_leader: Purgatory
    reassignment: Purgatory
    delete_records: Purgatory
    share_fetch: Purgatory

    @classmethod
    def on(cls, timer: Timer) -> Self:
        names = ("topic", "ElectLeader", "Reassignment", "DeleteRecords", "ShareFetch")
        return cls(*(Purgatory(name, timer) for name in names))


class DelayedDecision(DelayedOperation):
    """A request that waits until the controller has decided, and has applied what it decided."""

    __slots__ = ("_call", "_finish", "results")

    def __init__(self, call: Call[Any], timeout_ms: int, finish: Callable[[Any], Message]) -> None:
        super().__init__(timeout_ms)
        self._call = call
        self._finish = finish
        self.results: Any = None  # None: the controller has not decided

    def try_complete(self) -> bool:
        return self.results is not None and self.force_complete()

    def on_complete(self) -> None:
        if self.results is None:
            self._call.fail(ErrorCode.REQUEST_TIMED_OUT)
        else:
            self._call.answer_made(partial(self._finish, self.results))


def await_decision(
    purgatory: Purgatory, call: Call[Any], timeout_ms: int, finish: Callable[[Any], Message]
) -> Callable[[Any], None]:
    """The controller's callback: the request is answered with `finish` of its results."""
    operation = DelayedDecision(call, timeout_ms, finish)
    purgatory.try_complete_else_watch(operation, (call,))

    def decided(results: Any) -> None:
        operation.results = results
        purgatory.check_and_complete(call)

    return decided
