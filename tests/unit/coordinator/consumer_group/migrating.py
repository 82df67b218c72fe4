"""A coordinator with groups of both kinds and one log for both, in the hand of the test.

The log is a list of batches as `world.Log` has it, with the records of classic groups among them,
so that a failover is a load of all of it. Clients' bytes are real ones (`embedded.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.coordinator.consumer_group.beats import ShownBeat
from kbroker.coordinator.consumer_group.coordinator import ConsumerGroups
from kbroker.coordinator.consumer_group.embedded import assignment_bytes, assignment_of
from kbroker.coordinator.consumer_group.group import ConsumerGroup
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer, HeartbeatAsked
from kbroker.coordinator.consumer_group.records import change_of
from kbroker.coordinator.consumer_group.replay import ConsumerReplay
from kbroker.coordinator.consumer_group.state import GroupState
from kbroker.coordinator.consumer_group.states import ConsumerGroupState
from kbroker.coordinator.group.consumer_records import decode_key
from kbroker.coordinator.group.coordinator import GroupCoordinator
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.group_records import (
    decode_group,
    encode_group,
    group_key,
    group_of_key,
)
from kbroker.coordinator.group.images import GroupImage
from kbroker.coordinator.group.messages import (
    JoinAnswer,
    JoinAsked,
    LeaveAnswer,
    Leaver,
    Protocols,
    SyncAnswer,
    SyncAsked,
)
from kbroker.errors import ErrorCode
from kbroker.metadata.image import ClusterImage, TopicImage
from kbroker.protocol.wire import Writer
from kbroker.purgatory.timer import Timer
from tests.unit.coordinator.consumer_group.world import InC, Log, Records, topic_of
from tests.unit.coordinator.group.world import Answer, View

GROUP = "g"
SESSION_MS = 45_000
REBALANCE_MS = 60_000
NONE = ErrorCode.NONE
Names = Mapping[str, Iterable[int]]


def subscription(*topics: str, owned: Names | None = None, version: int = 3) -> bytes:
    """What a consumer of the classic protocol says in JoinGroup."""
    out = Writer(flexible=False)
    out.int16(version)
    out.array(len(topics))
    for topic in topics:
        out.string(topic)
    out.int32(-1)
    if version >= 1:
        out.array(len(owned or {}))
        for topic, some in (owned or {}).items():
            out.string(topic)
            out.array(len(list(some)))
            for index in some:
                out.int32(index)
    if version >= 2:
        out.int32(-1)
    if version >= 3:
        out.string(None)
    return out.getvalue()


def assignment(partitions: Names, version: int = 3) -> bytes:
    return assignment_bytes(version, partitions.items())


class BothLog(Log):
    """Of groups of both kinds. A group that was made later is not written over by an earlier."""

    def __init__(self) -> None:
        super().__init__()
        self.incarnations: dict[str, int] = {}

    def _is_earlier(self, group_id: str, incarnation: int) -> bool:
        return incarnation < self.incarnations.get(group_id, 0)

    def write_records(
        self,
        group_id: str,
        incarnation: int,
        records: Records,
        appended: Callable[[ErrorCode], object],
        done: Callable[[ErrorCode], object],
    ) -> None:
        if self._is_earlier(group_id, incarnation):
            appended(ErrorCode.NOT_COORDINATOR)
            done(ErrorCode.NOT_COORDINATOR)
            return
        if not self.refuses:
            self.incarnations[group_id] = incarnation
        super().write_records(group_id, incarnation, records, appended, done)

    def write_group(
        self, image: GroupImage, incarnation: int, done: Callable[[ErrorCode], object]
    ) -> None:
        record = (group_key(image.group_id), encode_group(image))
        self.write_records(image.group_id, incarnation, [record], lambda code: None, done)

    def delete_group(
        self, group_id: str, in_log: Callable[[], object], done: Callable[[ErrorCode], object]
    ) -> None:
        self.delete_records(group_id, [(group_key(group_id), None)], in_log, done)


class Loaded:
    """What a load of batches makes of the group: one kind, the other, or none."""

    def __init__(self, batches: Iterable[Records]) -> None:
        consumers = ConsumerReplay(lambda states: None)
        classic: dict[str, bytes] = {}
        for records in batches:
            for raw, value in records:
                group_id = group_of_key(raw)
                if group_id is None:
                    key = decode_key(raw)
                    assert key is not None
                    consumers.apply(key.group_id, change_of(key, value))
                elif value is None:
                    classic.pop(group_id, None)
                else:
                    classic[group_id] = value
        self.states: dict[str, GroupState] = consumers.states
        self.images = [decode_group(group_id, value) for group_id, value in classic.items()]
        both = self.states.keys() & classic.keys()
        assert not both, f"groups of two kinds: {both}"

    @property
    def state(self) -> GroupState | None:
        return self.states.get(GROUP)

    @property
    def image(self) -> GroupImage | None:
        return self.images[0] if self.images else None


class BothView(View):
    """What C would know of either kind of group."""

    def __init__(self) -> None:
        super().__init__()
        self.beats: dict[str, ShownBeat] = {}
        self.heard_ms: dict[str, int] = {}

    def remove_members(self, group_id: str) -> None:
        super().remove_members(group_id)
        self.beats.clear()
        self.heard_ms.clear()

    def generation_of(self, group_id: str) -> int:
        published = self.published(group_id)
        return 0 if published is None else published.generation


class MigratingWorld:
    """One coordinator, and all around it."""

    def __init__(self, *settings: str) -> None:
        """`settings` as on a command line."""
        self.config = BrokerConfig.load(None, {}, ["group.initial.rebalance.delay.ms=0", *settings])
        self.clock = ManualClock(start_monotonic_ms=1_000_000)
        self.timer = Timer(self.clock)
        self.log = BothLog()
        self.view = BothView()
        self.in_c = InC(self.view, self.clock)
        self.image = ClusterImage()
        self.jobs: list[Callable[[], object]] = []
        self._begin()

    def _begin(self) -> None:
        self.coordinator = GroupCoordinator(
            lambda: self.config,
            self.clock,
            self.timer.call_later,
            self.log,  # type: ignore[arg-type]
            self.view,
            checked=True,
        )
        self.consumers = ConsumerGroups(
            lambda: self.config,
            self.clock,
            self.timer.call_later,
            self.log,  # type: ignore[arg-type]
            self.view,
            self.coordinator,
            lambda: self.image,
            self.in_c,
            self._beside,
        )

    def _beside(self, job: Callable[[], object]) -> bool:
        self.jobs.append(job)
        return True

    def work_beside(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()

    def pass_ms(self, time_ms: int, step_ms: int = 100) -> None:
        end_ms = self.clock.monotonic_ms() + time_ms
        while (left_ms := end_ms - self.clock.monotonic_ms()) > 0:
            self.clock.advance(min(left_ms, step_ms))
            self.timer.advance()

    def fail_over(self, batches: int | None = None) -> None:
        """Another coordinator loads the first so many batches of the log, or all."""
        self.coordinator.close()
        self.log.incarnations.clear()
        del self.log.batches[len(self.log.batches) if batches is None else batches :]
        loaded = Loaded(self.log.batches)
        self._begin()
        self.coordinator.load(loaded.images)
        self.consumers.load(loaded.states)

    # --- what is there ---

    def create(self, *topics: TopicImage) -> None:
        self.image = self.image.with_topics(topics).at_version(self.image.version + 1)
        self.in_c.images += 1

    @property
    def group(self) -> object:
        return self.coordinator.find(GROUP)

    @property
    def classic(self) -> Group:
        group = self.group
        assert isinstance(group, Group)
        return group

    @property
    def consumer(self) -> ConsumerGroup:
        group = self.group
        assert isinstance(group, ConsumerGroup)
        return group

    def loaded(self) -> Loaded:
        return Loaded(self.log.batches)

    @property
    def is_as_logged(self) -> bool:
        """Whether a load of the log makes the consumer group that there is."""
        state = self.loaded().state
        return state is not None and state.values() == self.consumer._state.values()

    # --- members of the consumer protocol ---

    def beat(self, member_id: str, epoch: int, **how: Any) -> HeartbeatAnswer:
        found = self.ask(member_id, epoch, **how).got
        assert isinstance(found, HeartbeatAnswer)
        return found

    def ask(self, member_id: str, epoch: int, **how: Any) -> Answer[Any]:
        answer: Answer[HeartbeatAnswer] = Answer()
        asked = HeartbeatAsked(
            GROUP, member_id, epoch, client_id="client", client_host="/127.0.0.1", **how
        )
        at_once = self.in_c.answer(asked)
        batches = len(self.log.batches)
        self.consumers.heartbeat(asked, answer)
        if at_once is not None:
            assert answer.got == at_once, "C would answer something else"
            assert len(self.log.batches) == batches, "C would change nothing"
        return answer

    def enter(self, member_id: str, *topics: str, **how: Any) -> HeartbeatAnswer:
        first: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topics": tuple(sorted(topics)) if topics else ("t",),
            "owned": {},
        }
        return self.beat(member_id, 0, **{**first, **how})

    # --- members of the classic protocol ---

    def ask_to_join(
        self, member_id: str = "", protocols: Protocols | None = None, **how: Any
    ) -> Answer[Any]:
        answer: Answer[JoinAnswer] = Answer()
        fields: dict[str, Any] = {
            "instance_id": None,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "protocol_type": "consumer",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
        }
        asked = JoinAsked(
            group_id=GROUP,
            member_id=member_id,
            protocols=protocols or (("range", subscription("t")),),
            **{**fields, **how},
        )
        self.coordinator.join(asked, answer)
        return answer

    def join(
        self, member_id: str = "", protocols: Protocols | None = None, **how: Any
    ) -> JoinAnswer:
        found = self.ask_to_join(member_id, protocols, **how).got
        assert isinstance(found, JoinAnswer)
        return found

    def ask_to_sync(
        self,
        member_id: str,
        generation: int,
        given: Mapping[str, bytes] | None = None,
        **how: Any,
    ) -> Answer[Any]:
        answer: Answer[SyncAnswer] = Answer()
        asked = SyncAsked(
            GROUP,
            member_id,
            how.pop("instance_id", None),
            generation,
            assignments=tuple((given or {}).items()),
            **how,
        )
        self.coordinator.sync(asked, answer)
        return answer

    def sync(self, member_id: str, generation: int, **how: Any) -> SyncAnswer:
        found = self.ask_to_sync(member_id, generation, **how).got
        assert isinstance(found, SyncAnswer)
        return found

    def given(self, member_id: str, generation: int, **how: Any) -> dict[str, list[int]]:
        """What SyncGroup gives the member."""
        answer = self.sync(member_id, generation, **how)
        assert answer.code is NONE
        found = assignment_of(answer.assignment).partitions
        return {topic: sorted(some) for topic, some in found.items()}

    def classic_beat(
        self, member_id: str, generation: int, instance_id: str | None = None
    ) -> ErrorCode:
        return self.coordinator.heartbeat(GROUP, member_id, instance_id, generation)

    def leave(self, *leavers: Leaver | str) -> LeaveAnswer:
        found = self.leave_quietly(*leavers).got
        assert isinstance(found, LeaveAnswer)
        return found

    def leave_quietly(self, *leavers: Leaver | str) -> Answer[Any]:
        """The answer may come later, and need not be read."""
        answer: Answer[LeaveAnswer] = Answer()
        named = [Leaver(each) if isinstance(each, str) else each for each in leavers]
        self.coordinator.leave(GROUP, named, answer)
        return answer

    def stable(self, *parts: Names, protocols: Protocols | None = None, **how: Any) -> list[str]:
        """A classic group of so many members that have these partitions; the first one leads."""
        ids: list[str] = []
        generation = 0
        for _ in parts:
            new = self.join(protocols=protocols, **how)
            assert new.code is ErrorCode.MEMBER_ID_REQUIRED
            newest = self.ask_to_join(new.member_id, protocols, **how)
            for each in ids:
                self.ask_to_join(each, protocols, **how)
            ids.append(new.member_id)
            generation = newest.got.generation
        given = {each: assignment(some) for each, some in zip(ids, parts, strict=True)}
        followers = [self.ask_to_sync(each, generation) for each in ids[1:]]
        assert self.sync(ids[0], generation, given=given).code is NONE
        assert all(each.got.code is NONE for each in followers)
        return ids


def owned(state: GroupState, member_id: str) -> dict[UUID, list[int]]:
    return {topic: sorted(some) for topic, some in state.current_of(member_id).assigned.items()}


def kinds(records: Sequence[tuple[bytes, bytes | None]]) -> list[str]:
    """In words: the kind of each record, "-" before one that removes."""
    found = []
    for raw, value in records:
        key = decode_key(raw)
        name = "CLASSIC" if key is None else key.kind.name
        found.append(name if value is not None else f"-{name}")
    return found


def made(*settings: str) -> MigratingWorld:
    world = MigratingWorld(*settings)
    world.create(topic_of("t", 4))
    return world


def rejoined(world: MigratingWorld, member_id: str, **how: Any) -> tuple[int, list[int]]:
    """The member joins and syncs: its generation and partitions."""
    joined = world.join(member_id, **how)
    assert (joined.code, joined.member_id, joined.leader, joined.members) == (
        NONE, member_id, "", ())  # fmt: skip
    return joined.generation, world.given(member_id, joined.generation).get("t", [])


def mixed(world: MigratingWorld) -> tuple[str, str, int]:
    """Two classic members and "c", at rest; the epoch."""
    a, b = world.stable({"t": [0, 1]}, {"t": [2, 3]})
    epoch = world.enter("c").epoch
    for each in (a, b):
        rejoined(world, each)
    world.beat("c", epoch)
    assert world.consumer.state is ConsumerGroupState.STABLE
    return a, b, epoch
