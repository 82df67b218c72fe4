"""When the topics of a group's patterns are looked for, and how.

    a member has a new pattern                      at once
    the topics have changed since the last look     when that is LOOK_AGAIN_MS ago
    else                                            every group.consumer.regex.refresh.interval.ms

A look matches all names of topics that the client of the heartbeat may describe, internal ones too,
beside (`beside.py`). A pattern matches a whole name, with the syntax of RE2/J. Its automaton is
made at the look: it is kept nowhere, since a look comes once in ten seconds.

A `Looks` belongs to its group and is used under the group's lock; `look` is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.coordinator.group.expressions import TopicExpression

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.consumer_group.messages import Hidden
    from kbroker.coordinator.consumer_group.state import GroupState
    from kbroker.coordinator.consumer_group.topics import TopicsSeen

Found = Mapping[str, tuple[str, ...]]

LOOK_AGAIN_MS: Final = 10_000
AFTER_FAILURE_MS: Final = 1_000


class Wanted(NamedTuple):
    patterns: frozenset[str]
    topics: TopicsSeen
    hidden: Hidden


def look(wanted: Wanted) -> Found:
    """The topics that each pattern matches, sorted. ExpressionError: one is no pattern."""
    names = sorted(wanted.topics.names())
    matches = {pattern: TopicExpression(pattern).matching(names) for pattern in wanted.patterns}
    hidden = wanted.hidden(sorted({name for some in matches.values() for name in some}))
    return {
        pattern: tuple([name for name in some if name not in hidden])
        for pattern, some in matches.items()
    }


class Looks:
    """See the module."""

    __slots__ = ("_clock", "_looking", "_not_before_ms", "_seen", "_when_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looking = False
        self._seen: TopicsSeen | None = None
        self._when_ms = 0
        self._not_before_ms = 0

    def wanted(
        self, state: GroupState, topics: TopicsSeen, hidden: Hidden, refresh_ms: int
    ) -> Wanted | None:
        """What is to be looked for now. The caller begins it, or calls `ended`."""
        patterns = state.patterns_in_use()
        now_ms = self._clock.monotonic_ms()
        if not patterns or self._looking or now_ms < self._not_before_ms:
            return None
        if patterns <= state.patterns.keys() and self._seen is not None:
            age_ms = now_ms - self._when_ms
            changed = not topics.is_same(self._seen)
            if not (age_ms >= refresh_ms or (changed and age_ms >= LOOK_AGAIN_MS)):
                return None
        self._looking = True
        return Wanted(patterns, topics, hidden)

    def is_looking(self, state: GroupState) -> bool:
        """Whether a pattern has no topics yet because they are being looked for."""
        return self._looking and not state.patterns_in_use() <= state.patterns.keys()

    def ended(self, seen: TopicsSeen | None) -> None:
        """`seen`: what was looked at; None: the look has failed."""
        self._looking = False
        now_ms = self._clock.monotonic_ms()
        if seen is None:
            self._not_before_ms = now_ms + AFTER_FAILURE_MS
        else:
            self._seen, self._when_ms = seen, now_ms
