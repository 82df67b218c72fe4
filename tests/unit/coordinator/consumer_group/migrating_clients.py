"""Consumers of both protocols that follow them, for schedules of `migrating_played.py`.

A consumer of the classic protocol is eager, and gives all up before it joins, or cooperative, and
says what it owns. The leader assigns, as long as there is one: a partition that another member owns
is given to none until that one has joined without it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from kbroker.coordinator.consumer_group.embedded import (
    assignment_bytes,
    assignment_of,
    subscription_of,
)
from kbroker.coordinator.group.messages import JoinAnswer, JoinedMember, SyncAnswer
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.migrating import MigratingWorld, subscription
from tests.unit.coordinator.group.world import Answer

NONE = ErrorCode.NONE
SESSION_MS = 45_000
# Longer than two steps of time after the last answer, so that a careful client is never too late.
REBALANCE_MS = 200_000
# A client that has had no good answer for so long has given its partitions up. Time passes in steps
# of 20 s at most, so that is before its session is over.
CAREFUL_MS = SESSION_MS - 21_000
_LOST = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
_FENCED = (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)

Key = tuple[UUID, int]


@dataclass
class Consumer:
    """What both kinds have in common."""

    name: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    is_gone: bool = False
    sent_ms: int = 0  # when it sent the request that was answered last
    is_sure: bool = False  # it is in the group, and has done all in time since

    @property
    def brief(self) -> str:
        """For the history."""
        raise NotImplementedError

    def owns(self, world: MigratingWorld) -> set[Key]:
        raise NotImplementedError

    def give_up(self) -> None:
        raise NotImplementedError

    def is_late(self, now_ms: int) -> bool:
        return now_ms - self.sent_ms > CAREFUL_MS

    def be_careful(self, now_ms: int, world: MigratingWorld) -> None:
        if self.is_late(now_ms):
            self.is_sure = False
            if self.owns(world):
                self.give_up()

    def act(self, world: MigratingWorld, dice: random.Random, *, loses: float) -> None:
        """Take an answer, or send a request. `loses`: how likely an answer does not arrive."""
        raise NotImplementedError

    def leave(self, world: MigratingWorld, *, for_now: bool) -> None:
        raise NotImplementedError

    def rests(self, world: MigratingWorld) -> bool:
        """Whether it wants nothing."""
        raise NotImplementedError


@dataclass
class NewConsumer(Consumer):
    """Of the consumer protocol; its name is its member's id."""

    epoch: int = 0
    owned: dict[UUID, frozenset[int]] = field(default_factory=dict)
    is_full: bool = True
    asking: tuple[Answer[object], int] | None = None

    @property
    def brief(self) -> str:
        owned = {str(topic)[-4:]: sorted(some) for topic, some in self.owned.items()}
        return f"{self.name} ({self.instance_id}) at {self.epoch}, owns {owned}"

    def owns(self, world: MigratingWorld) -> set[Key]:
        return {(topic, index) for topic, some in self.owned.items() for index in some}

    def give_up(self) -> None:
        self.epoch, self.owned, self.is_full, self.asking = 0, {}, True, None

    def act(self, world: MigratingWorld, dice: random.Random, *, loses: float) -> None:
        if self.asking is None:
            self._send(world, dice)
        if self.asking is None or self.asking[0].waits:
            return
        (answer, sent_ms), self.asking = self.asking, None
        if world.clock.monotonic_ms() - sent_ms > CAREFUL_MS:
            self.give_up()
        elif dice.random() < loses:
            self.is_full = True
        else:
            self._take(answer.got, sent_ms)

    def _send(self, world: MigratingWorld, dice: random.Random) -> None:
        how: dict[str, object] = {"instance_id": self.instance_id}
        if self.is_full or self.epoch == 0:
            how |= {"topics": self.topics, "pattern": "", "rebalance_timeout_ms": REBALANCE_MS}
        how["owned"] = dict(self.owned) if len(how) > 1 or dice.random() < 0.8 else None
        now_ms = world.clock.monotonic_ms()
        self.asking = (world.ask(self.name, self.epoch, **how), now_ms)
        if dice.random() < 0.03:
            world.ask(self.name, self.epoch, **how)

    def _take(self, answer: object, sent_ms: int) -> None:
        code = answer.code  # type: ignore[attr-defined]
        if code in _LOST:
            assert code is not ErrorCode.UNKNOWN_MEMBER_ID or not self.is_sure, "J9"
            # A classic group that may not change refuses it for good.
            self.is_gone = code is ErrorCode.GROUP_ID_NOT_FOUND and self.epoch == 0
            self.is_sure = False
            self.give_up()
        elif code in _FENCED:
            self.give_up()
            self.is_gone = True
        elif code:
            self.is_full = True
        else:
            self.epoch = answer.epoch  # type: ignore[attr-defined]
            self.is_full, self.sent_ms, self.is_sure = False, sent_ms, True
            assignment = answer.assignment  # type: ignore[attr-defined]
            if assignment is not None:
                self.owned = {topic: some for topic, some in assignment.items() if some}

    def leave(self, world: MigratingWorld, *, for_now: bool) -> None:
        if self.epoch > 0:
            epoch = -2 if for_now and self.instance_id is not None else -1
            world.ask(self.name, epoch, instance_id=self.instance_id)
        self.give_up()
        self.is_gone = True

    def rests(self, world: MigratingWorld) -> bool:
        return self.epoch > 0


@dataclass
class OldConsumer(Consumer):
    """Of the classic protocol."""

    cooperative: bool = False
    member_id: str = ""
    generation: int = -1
    owned: dict[str, set[int]] = field(default_factory=dict)
    is_to_join: bool = True
    told_ms: int | None = None  # to join
    joining: tuple[Answer[object], int] | None = None
    syncing: tuple[Answer[object], int] | None = None
    leads_with: dict[str, int] | None = None  # a leader: the partitions that there were

    @property
    def _protocol(self) -> str:
        return "cooperative-sticky" if self.cooperative else "range"

    @property
    def brief(self) -> str:
        waits = "joins" if self.joining else "syncs" if self.syncing else ""
        wants = " is to join" if self.is_to_join else ""
        return (
            f"{self.name} ({self.instance_id}) in {self.generation} {waits}{wants},"
            f" owns {self.owned}, {self.member_id[-4:]}"
        )

    def owns(self, world: MigratingWorld) -> set[Key]:
        return {
            (world.image.topics[topic].topic_id, index)
            for topic, some in self.owned.items()
            for index in some
        }

    def give_up(self) -> None:
        self.owned, self.generation, self.is_to_join = {}, -1, True
        self.joining = self.syncing = self.told_ms = self.leads_with = None

    def is_late(self, now_ms: int) -> bool:
        told_ms = now_ms if self.told_ms is None else self.told_ms
        return super().is_late(now_ms) or now_ms - told_ms > CAREFUL_MS

    def act(self, world: MigratingWorld, dice: random.Random, *, loses: float) -> None:
        if self.joining is not None:
            self._take_join(world, dice, loses)
        elif self.syncing is not None:
            self._take_sync(world, dice, loses)
        elif self.is_to_join or self.generation < 0 or self._sees_more(world):
            self._send_join(world, dice)
        else:
            self._beat(world, dice, loses)

    def _sees_more(self, world: MigratingWorld) -> bool:
        return self.leads_with is not None and self.leads_with != _counts(world)

    def _send_join(self, world: MigratingWorld, dice: random.Random) -> None:
        if not self.cooperative:
            self.owned = {}
        self.is_to_join = True
        said = subscription(*self.topics, owned=self.owned if self.cooperative else None)
        how = {"instance_id": self.instance_id, "session_timeout_ms": SESSION_MS,
               "rebalance_timeout_ms": REBALANCE_MS}  # fmt: skip
        protocols = ((self._protocol, said),)
        answer = world.ask_to_join(self.member_id, protocols, **how)
        if dice.random() < 0.03 and self.member_id:
            answer = world.ask_to_join(self.member_id, protocols, **how)
        self.joining = (answer, world.clock.monotonic_ms())

    def _take_join(self, world: MigratingWorld, dice: random.Random, loses: float) -> None:
        assert self.joining is not None
        answer, sent_ms = self.joining
        if answer.waits:
            return
        self.joining = None
        if dice.random() < loses:
            return
        found = answer.got
        assert isinstance(found, JoinAnswer)
        if found.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = found.member_id
        elif found.code:
            self._refused(found.code)
        else:
            self.member_id, self.generation = found.member_id, found.generation
            self.is_to_join, self.told_ms, self.sent_ms = False, None, sent_ms
            given: dict[str, bytes] = {}
            self.leads_with = None
            if found.leader == self.member_id and not found.skip_assignment:
                self.leads_with = _counts(world)
                given = _assigned(found.members, self.leads_with, cooperative=self.cooperative)
            self.syncing = (
                world.ask_to_sync(
                    self.member_id, self.generation, given, instance_id=self.instance_id,
                    protocol_type="consumer", protocol=found.protocol,
                ),
                world.clock.monotonic_ms(),
            )  # fmt: skip

    def _take_sync(self, world: MigratingWorld, dice: random.Random, loses: float) -> None:
        assert self.syncing is not None
        answer, sent_ms = self.syncing
        if answer.waits:
            return
        self.syncing = None
        if world.clock.monotonic_ms() - sent_ms > CAREFUL_MS:
            self.give_up()  # the request was given up before
            return
        if dice.random() < loses:
            self.is_to_join = True
            return
        found = answer.got
        assert isinstance(found, SyncAnswer)
        if found.code:
            self._refused(found.code)
            return
        self.sent_ms, self.is_sure = sent_ms, True
        assigned = {
            topic: set(some) for topic, some in assignment_of(found.assignment).partitions.items()
        }
        lacks = any(some - assigned.get(topic, set()) for topic, some in self.owned.items())
        self.owned = assigned
        if self.cooperative and lacks:
            self.is_to_join = True
            self.told_ms = world.clock.monotonic_ms()

    def _beat(self, world: MigratingWorld, dice: random.Random, loses: float) -> None:
        now_ms = world.clock.monotonic_ms()
        code = world.classic_beat(self.member_id, self.generation, self.instance_id)
        if dice.random() < loses:
            return
        if code is NONE:
            self.sent_ms = now_ms
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.sent_ms = now_ms
            self._refused(code)
            self.told_ms = now_ms
        else:
            self._refused(code)

    def _refused(self, code: ErrorCode) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                assert not self.is_sure, "J9"
                self.member_id = ""
            self.is_sure = False
            self.give_up()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.give_up()
            self.is_gone = True
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.is_to_join = True

    def leave(self, world: MigratingWorld, *, for_now: bool) -> None:
        if self.member_id and not (for_now and self.instance_id is not None):
            world.leave_quietly(self.member_id)
        self.give_up()
        self.is_gone = True

    def rests(self, world: MigratingWorld) -> bool:
        waits = self.joining is not None or self.syncing is not None
        return self.generation >= 0 and not waits and not self.is_to_join


def _counts(world: MigratingWorld) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in world.image.topics.items()}


def _assigned(
    members: tuple[JoinedMember, ...], counts: Mapping[str, int], *, cooperative: bool
) -> dict[str, bytes]:
    """In turn over the members, by topic."""
    said = {each.member_id: subscription_of(each.subscription) for each in members}
    owners = {
        (topic, index): member_id
        for member_id, each in said.items()
        for topic, some in each.owned.items()
        for index in some
    }
    found: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in said}
    turn = 0
    for topic, count in sorted(counts.items()):
        readers = sorted(member_id for member_id, each in said.items() if topic in each.topics)
        for index in range(count) if readers else ():
            reader = readers[turn % len(readers)]
            turn += 1
            if not cooperative or owners.get((topic, index), reader) == reader:
                found[reader].setdefault(topic, []).append(index)
    return {each: assignment_bytes(3, parts.items()) for each, parts in found.items()}
