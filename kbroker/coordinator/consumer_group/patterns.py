"""When the topics of a group's patterns are looked for, and how.

    a member has a new pattern                      at once, for this one
    the topics have changed since the last look     when that is LOOK_AGAIN_MS ago
    else                                            every group.consumer.regex.refresh.interval.ms

A look matches all names of topics that the client of the heartbeat may describe, internal ones too,
beside (`beside.py`). A pattern matches a whole name, with the syntax of RE2/J. Its automaton is
made at the look: it is kept nowhere, since a look comes once in ten seconds. Between two patterns
other groups have their turn.

A `Looks` belongs to its group and is used under the group's lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.coordinator.consumer_group.beats import NEVER_MS
from kbroker.coordinator.group.expressions import ExpressionError, NameExpression

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.consumer_group.messages import Hidden
    from kbroker.coordinator.consumer_group.state import GroupState
    from kbroker.coordinator.consumer_group.topics import TopicsSeen

Found = Mapping[str, tuple[str, ...]]

LOOK_AGAIN_MS: Final = 10_000
AFTER_FAILURE_MS: Final = 1_000


class Wanted(NamedTuple):
    """`is_all`: all patterns of the group, not only those that have no topics yet."""

    patterns: frozenset[str]
    topics: TopicsSeen
    hidden: Hidden
    is_all: bool = True


class Look:
    """One look, a pattern at a time: what a pattern costs is bounded, and a group may have many.

    Used by the thread beside alone. A pattern that is none matches nothing: the log may have it of
    a coordinator with another syntax, and the group's other patterns are to have their topics.
    """

    __slots__ = ("_hidden", "_known", "_left", "_names", "found", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted: Final = wanted
        self.found: Final[dict[str, tuple[str, ...]]] = {}
        self._left = sorted(wanted.patterns, reverse=True)
        self._names: list[str] | None = None
        self._hidden: set[str] = set()
        self._known: set[str] = set()

    def match_one(self) -> bool:
        """Match the next pattern; whether some are left."""
        if self._names is None:
            self._names = sorted(self.wanted.topics.names())
        if self._left:
            pattern = self._left.pop()
            self.found[pattern] = tuple(self._may_know(self._matching(pattern, self._names)))
        return bool(self._left)

    @staticmethod
    def _matching(pattern: str, names: list[str]) -> list[str]:
        try:
            return NameExpression(pattern).matching(names)
        except ExpressionError:
            return []

    def _may_know(self, names: list[str]) -> list[str]:
        """Those that the client may describe. It is asked once about each."""
        new = [name for name in names if name not in self._hidden and name not in self._known]
        if new:
            self._hidden |= self.wanted.hidden(new)
            self._known.update(name for name in new if name not in self._hidden)
        return [name for name in names if name in self._known]


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
        now_ms = self._clock.monotonic_ms()
        if not state.has_patterns or self._looking or now_ms < self._not_before_ms:
            return None
        if self._seen is None:
            wanted = Wanted(state.patterns_in_use(), topics, hidden)
        elif state.unresolved:
            wanted = Wanted(frozenset(state.unresolved), topics, hidden, is_all=False)
        else:
            age_ms = now_ms - self._when_ms
            changed = not topics.is_same(self._seen)
            if not (age_ms >= refresh_ms or (changed and age_ms >= LOOK_AGAIN_MS)):
                return None
            wanted = Wanted(state.patterns_in_use(), topics, hidden)
        self._looking = True
        return wanted

    def due_ms(self, state: GroupState, topics: TopicsSeen, refresh_ms: int) -> int | None:
        """When something is to be looked for, if nothing changes; None: now, or soon."""
        if not state.has_patterns:
            return NEVER_MS
        if self._looking or self._seen is None or state.unresolved:
            return None
        again_ms = refresh_ms if topics.is_same(self._seen) else min(refresh_ms, LOOK_AGAIN_MS)
        return max(self._when_ms + again_ms, self._not_before_ms)

    def is_looking(self, state: GroupState) -> bool:
        """Whether a pattern has no topics yet because they are being looked for."""
        return self._looking and bool(state.unresolved)

    def ended(self, seen: Wanted | None) -> None:
        """`seen`: what was looked for; None: the look has failed."""
        self._looking = False
        now_ms = self._clock.monotonic_ms()
        if seen is None:
            self._not_before_ms = now_ms + AFTER_FAILURE_MS
        elif seen.is_all:
            self._seen, self._when_ms = seen.topics, now_ms

    def unwritten(self) -> None:
        """What was found may not have been written: all is looked for again, a little later."""
        self._seen = None
        self._not_before_ms = self._clock.monotonic_ms() + AFTER_FAILURE_MS
