"""A coordinator with its world in the hand of the test: clock, timers, store, view.

Time moves only by `pass_ms`, timer by timer. The store keeps what is written, says so at once
unless it is held, and fails on demand. Answers are kept as they come; each is given once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from kbroker.clock import ManualClock
from kbroker.coordinator.group.coordinator import GroupCoordinator
from kbroker.coordinator.group.group import Group
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
from kbroker.coordinator.group.seams import HotView, PublishedGroup
from kbroker.coordinator.group.states import GroupState
from kbroker.errors import ErrorCode
from kbroker.purgatory.timer import Timer

GROUP = "g"
RANGE: Protocols = (("range", b"topics"),)
CHANGED: Protocols = (("range", b"other topics"),)
SESSION_MS = 10_000
REBALANCE_MS = 5_000

T = TypeVar("T")
Done = Callable[[ErrorCode], None]


class Answer(Generic[T]):
    """What a request that may wait was answered, if it was."""

    def __init__(self) -> None:
        self._got: T | None = None

    def __call__(self, answer: T) -> None:
        assert self._got is None, f"answered twice: {self._got} and {answer}"
        self._got = answer

    @property
    def waits(self) -> bool:
        return self._got is None

    @property
    def got(self) -> T:
        assert self._got is not None, "not answered"
        return self._got


class Store:
    def __init__(self) -> None:
        self.state = ErrorCode.NONE
        self.written: list[GroupImage] = []
        self.fails = ErrorCode.NONE
        self.holds = False
        self.held: list[Callable[[ErrorCode], object]] = []
        self.deleted = 0

    def state_of(self, group_id: str) -> ErrorCode:
        return self.state

    def write_group(self, image: GroupImage, incarnation: int, done: Done) -> None:
        if not self.fails:
            self.written.append(image)
        if self.holds:
            self.held.append(done)
        else:
            done(self.fails)

    def delete_group(self, group_id: str, in_log: Callable[[], object], done: Done) -> None:
        self.deleted += 1
        if not self.fails:
            in_log()
        self.when_settled(group_id, done)

    def when_settled(self, group_id: str, done: Callable[[ErrorCode], object]) -> None:
        if self.holds:
            self.held.append(done)
        else:
            done(self.fails)

    def release(self, code: ErrorCode = ErrorCode.NONE) -> None:
        held, self.held = self.held, []
        for done in held:
            done(code)


class View:
    """What C would know; a test lets members' requests come there, or has it fail."""

    def __init__(self) -> None:
        self.groups: dict[str, PublishedGroup] = {}
        self.last_ms: dict[str, int] = {}
        self.fails: Exception | None = None

    def publish_members(
        self,
        group_id: str,
        *,
        state: int,
        generation: int,
        members: Iterable[tuple[str, str | None]],
    ) -> None:
        if self.fails is not None:
            raise self.fails
        self.groups[group_id] = PublishedGroup(GroupState(state), generation, list(members))

    def remove_members(self, group_id: str) -> None:
        self.groups.pop(group_id, None)

    def published(self, group_id: str) -> PublishedGroup | None:
        return self.groups.get(group_id)

    def last_heard_ms(self, group_id: str, member_id: str) -> int:
        return self.last_ms.get(member_id, 0)


class World:
    def __init__(self, view: HotView | None = None, **overrides: int) -> None:
        """`view`: the real one, for comparisons."""
        self.config = {
            "group.initial.rebalance.delay.ms": 0,
            "group.max.size": 1_000_000,
            "group.min.session.timeout.ms": 6_000,
            "group.max.session.timeout.ms": 1_800_000,
        } | {name.replace("_", "."): value for name, value in overrides.items()}
        self.clock = ManualClock(start_monotonic_ms=1_000_000)
        self.timer = Timer(self.clock)
        self.store = Store()
        self.view = View()
        self.call_later = self.timer.call_later
        self.coordinator = GroupCoordinator(
            lambda: self.config,
            self.clock,
            lambda delay_ms, action: self.call_later(delay_ms, action),
            self.store,
            self.view if view is None else view,
            checked=True,
        )

    def pass_ms(self, ms: int, step_ms: int = 100) -> None:
        """Let time pass; what is due runs on the way, a tenth of a second late at most."""
        while ms > 0:
            self.clock.advance(min(ms, step_ms))
            self.timer.advance()
            ms -= step_ms

    @property
    def group(self) -> Group:
        group = self.coordinator.find(GROUP)
        assert isinstance(group, Group)
        return group

    @property
    def state(self) -> GroupState:
        return self.group.state

    # --- requests ---

    def join(self, member_id: str = "", protocols: Protocols = RANGE, **more: Any) -> Answer[Any]:
        answer: Answer[JoinAnswer] = Answer()
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "instance_id": None,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "protocol_type": "consumer",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
        }
        asked = JoinAsked(member_id=member_id, protocols=protocols, **(fields | more))
        self.coordinator.join(asked, answer)
        return answer

    def new(self, name: str = "client", **more: Any) -> tuple[str, Answer[Any]]:
        """A dynamic member joins, after it was given its id."""
        given = self.join(client_id=name, **more).got
        assert given.code is ErrorCode.MEMBER_ID_REQUIRED
        return given.member_id, self.join(given.member_id, client_id=name, **more)

    def sync(self, member_id: str, generation: int = -9, **more: Any) -> Answer[Any]:
        answer: Answer[SyncAnswer] = Answer()
        if generation == -9:
            generation = self.group.generation
        given = tuple(more.pop("given", {}).items())
        fields: dict[str, Any] = {"group_id": GROUP, "instance_id": None, "assignments": given}
        asked = SyncAsked(member_id=member_id, generation=generation, **(fields | more))
        self.coordinator.sync(asked, answer)
        return answer

    def heartbeat(
        self, member_id: str, generation: int = -9, instance_id: str | None = None
    ) -> ErrorCode:
        if generation == -9:
            generation = self.group.generation
        return self.coordinator.heartbeat(GROUP, member_id, instance_id, generation)

    def commit(
        self, member_id: str, generation: int = -9, instance_id: str | None = None
    ) -> ErrorCode:
        if generation == -9:
            generation = self.group.generation
        return self.coordinator.check_commit(GROUP, member_id, instance_id, generation, 9)

    def leave(self, *leavers: Leaver | str) -> list[ErrorCode]:
        named = [Leaver(each) if isinstance(each, str) else each for each in leavers]
        code, codes = self.asks_to_leave(*named).got
        assert not code
        return list(codes)

    def asks_to_leave(self, *leavers: Leaver) -> Answer[LeaveAnswer]:
        answer: Answer[LeaveAnswer] = Answer()
        self.coordinator.leave(GROUP, leavers, answer)
        return answer

    def delete(self, **more: Any) -> Answer[ErrorCode]:
        answer: Answer[ErrorCode] = Answer()
        self.coordinator.delete(GROUP, answer, **more)
        return answer

    # --- states ---

    def stable(self, size: int = 1, **more: Any) -> list[str]:
        """A group of so many members, each with its number as assignment; the first leads."""
        ids: list[str] = []
        for number in range(size):
            member_id, newest = self.new(f"m{number}", **more)
            joins = [self.join(each, **more) for each in ids]
            ids.append(member_id)
            assert not newest.waits or not joins
            self.settle(ids)
        return ids

    def settle(self, ids: list[str]) -> None:
        syncs = [self.sync(each) for each in ids[1:]]
        given = {each: str(number).encode() for number, each in enumerate(ids)}
        assert self.sync(ids[0], given=given).got.code is ErrorCode.NONE
        assert all(not sync.waits for sync in syncs)

    def settle_pair(self, leader: str, follower: str) -> None:
        """The follower is static, as `ib`."""
        waiting = self.sync(follower, instance_id="ib")
        assert self.sync(leader, given={leader: b"0", follower: b"1"}).got.code is ErrorCode.NONE
        assert waiting.got.assignment == b"1"
