"""The states of a consumer group and of its members, and what a heartbeat does in each.

A member's way to its target is one table: states x what a heartbeat means for it -> what is done.
`reconciliation.py` follows the table, the tests walk every cell of it, and docs/groups.md has it in
words. Pure data, no lock.

| a group is | where |
|---|---|
| Empty | it has no members |
| Assigning | its epoch is higher than that of its target |
| Reconciling | a member is not at the target's epoch, or is not stable |
| Stable | otherwise |
"""

from __future__ import annotations

from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class ConsumerGroupState(Enum):
    """The value is the label for clients."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"

    @property
    def label(self) -> str:
        return self.value


class MemberState(IntEnum):
    """The number is that of the record."""

    STABLE = 0
    UNREVOKED = 1  # it is to give partitions up, and has not confirmed that
    UNRELEASED = 2  # others still have partitions of its target


class Situation(Enum):
    """What a heartbeat means for its member; the value says it in words."""

    AS_BEFORE = "neither the target nor the member's topics have changed"
    NEWER_TARGET = "the target has a later epoch than the member"
    FEWER_TOPICS = "the member has changed its topics"
    NOT_REVOKED = "the member names partitions that it is to give up, or none at all"
    REVOKED = "the member names what it owns, and nothing that it is to give up"


class Do(Enum):
    """What is done with the member; the value says it in words."""

    STAY = "nothing"
    NEXT = "take what is free of the target, or give up what is not in it"
    NEXT_EPOCH = "the same, in the next epoch"
    DROP = "give up what is not subscribed any more"


_S, _H = MemberState, Situation

CELLS: Final[Mapping[tuple[MemberState, Situation], Do]] = MappingProxyType(
    {
        (_S.STABLE, _H.AS_BEFORE): Do.STAY,
        (_S.STABLE, _H.NEWER_TARGET): Do.NEXT,
        (_S.STABLE, _H.FEWER_TOPICS): Do.DROP,
        (_S.STABLE, _H.NOT_REVOKED): Do.STAY,
        (_S.STABLE, _H.REVOKED): Do.STAY,
        (_S.UNREVOKED, _H.AS_BEFORE): Do.STAY,
        (_S.UNREVOKED, _H.NEWER_TARGET): Do.STAY,
        (_S.UNREVOKED, _H.FEWER_TOPICS): Do.DROP,
        (_S.UNREVOKED, _H.NOT_REVOKED): Do.STAY,
        (_S.UNREVOKED, _H.REVOKED): Do.NEXT_EPOCH,
        (_S.UNRELEASED, _H.AS_BEFORE): Do.NEXT,
        (_S.UNRELEASED, _H.NEWER_TARGET): Do.NEXT,
        (_S.UNRELEASED, _H.FEWER_TOPICS): Do.NEXT,
        (_S.UNRELEASED, _H.NOT_REVOKED): Do.NEXT,
        (_S.UNRELEASED, _H.REVOKED): Do.NEXT,
    }
)
