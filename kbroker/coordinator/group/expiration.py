"""Removal of committed offsets unused for `offsets.retention.minutes`, and of empty groups.

When an offset's time begins (KIP-211):

| group | its time begins |
|---|---|
| without members, of a protocol | when it became empty, or with its commit if that came later |
| without members or protocol (offsets only) | with its commit |
| stable consumers | with its commit, if no member subscribes to its topic; else never |
| any other | never |

An offset with a time of its own (OffsetCommit 2 to 4) goes at that time if it could go at all. A
group that is empty and has no offset left goes as well. Tombstones are written to
`__consumer_offsets`, so what is gone stays gone; an offset that is committed again meanwhile stays,
and so does one of a partition of which a transaction has an offset that is not decided.

Runs on the scheduler every `offsets.retention.check.interval.ms`, a group a step. No lock of its
own; the decision (`expired`) is pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.coordinator.group.states import GroupState
from kbroker.errors import ErrorCode
from kbroker.limits import LOG_GROUP_LINES_MAX
from kbroker.log_lines import LogLines

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.group._groups import CommittedOffset
    from kbroker.coordinator.group.offsets_topic import Settings
    from kbroker.failures import Failures

lines: Final = LogLines(logging.getLogger("kbroker.groups"), lines_max=LOG_GROUP_LINES_MAX)

MS_PER_MINUTE: Final = 60_000


class GroupAge(NamedTuple):
    """What decides whether a group's offsets may go."""

    state: GroupState
    protocol_type: str  # "": offsets only
    since_ms: int  # wall clock, when it came into this state; -1: unknown
    topics: frozenset[str] | None  # that its members subscribe to; None: unknown


class Table(Protocol):
    """What expiry asks of the table of offsets, `_groups.GroupTable`."""

    @property
    def partition_count(self) -> int: ...

    def groups(self, partition: int) -> list[str]: ...

    def offsets(self, group_id: str) -> list[CommittedOffset]: ...

    def pending(self, group_id: str) -> frozenset[tuple[str, int]]: ...

    def expirable(
        self, partition: int, before_ms: int, now_ms: int
    ) -> list[tuple[str, list[CommittedOffset]]]: ...

    def remove_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]],
        *,
        committed_until_ms: int = ...,
    ) -> int: ...


class Groups(Protocol):
    """The coordinator, as expiry asks it."""

    def age_of(self, group_id: str) -> GroupAge | None: ...

    def empty_groups(self) -> Iterable[str]: ...

    def delete(
        self,
        group_id: str,
        done: Callable[[ErrorCode], object],
        *,
        unless: Callable[[], bool] = ...,
    ) -> None: ...


def expired(
    age: GroupAge, offsets: Iterable[CommittedOffset], now_ms: int, retention_ms: int
) -> list[CommittedOffset]:
    """Those of a group's offsets whose time is over."""
    begins = _beginning(age)
    if begins is None:
        return []
    return [
        each
        for each in offsets
        if (begin_ms := begins(each)) is not None
        and now_ms >= (each.expire_ms if each.expire_ms >= 0 else begin_ms + retention_ms)
    ]


def _beginning(age: GroupAge) -> Callable[[CommittedOffset], int | None] | None:
    """When an offset's time begins; None: it does not."""
    if age.state is GroupState.EMPTY:
        since_ms = age.since_ms if age.protocol_type else -1
        return lambda each: max(each.commit_ms, since_ms)
    if age.state is GroupState.STABLE and age.topics is not None:
        topics = age.topics
        return lambda each: None if each.topic in topics else each.commit_ms
    return None


class OffsetExpiration:
    """See the head of this file."""

    def __init__(
        self,
        table: Table,
        groups: Groups,
        clock: Clock,
        config: Callable[[], Settings],
        failures: Failures,
    ) -> None:
        self._failures = failures
        self._table = table
        self._groups = groups
        self._clock = clock
        self._config = config
        self.expired_offsets = 0
        self.deleted_groups = 0

    def run(self) -> Iterator[None]:
        """One look at every group that this broker owns, in steps."""
        retention_ms = self._config()["offsets.retention.minutes"] * MS_PER_MINUTE
        now_ms = self._clock.wall_ms()
        for partition in range(self._table.partition_count):
            old = self._table.expirable(partition, now_ms - retention_ms, now_ms)
            for group_id, offsets in old:
                self._one(partial(self._expire, group_id, offsets, now_ms, retention_ms))
                yield
        for group_id in list(self._groups.empty_groups()):
            self._one(partial(self._delete_if_bare, group_id))
            yield

    def _one(self, step: Callable[[], None]) -> None:
        """A group that raises is left as it is; those after it have their turn."""
        try:
            step()
        except Exception as error:
            self._failures.note("the expiry of a group", error)

    def _delete_if_bare(self, group_id: str) -> None:
        used = partial(self._has_offsets, group_id)
        if not used():
            self._groups.delete(group_id, self._deleted, unless=used)

    def _expire(
        self, group_id: str, offsets: Sequence[CommittedOffset], now_ms: int, retention_ms: int
    ) -> None:
        age = self._groups.age_of(group_id)
        if age is None:
            return
        gone = expired(age, offsets, now_ms, retention_ms)
        if pending := self._table.pending(group_id):
            gone = [each for each in gone if (each.topic, each.partition) not in pending]
        if not gone:
            return
        code = self._table.remove_offsets(
            group_id,
            [(each.topic, each.partition) for each in gone],
            committed_until_ms=max(each.commit_ms for each in gone),
        )
        if code == ErrorCode.NONE:
            self.expired_offsets += len(gone)
            message = "group %s: %d offsets have expired"
            lines.write(logging.INFO, "expired", message, group_id, len(gone))

    def _has_offsets(self, group_id: str) -> bool:
        return bool(self._table.offsets(group_id) or self._table.pending(group_id))

    def _deleted(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self.deleted_groups += 1
