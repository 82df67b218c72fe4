"""A group whose members join, leave, vanish, lose answers and come back, by a clock that jumps.

Clients here behave as real ones do: they join, sync, send heartbeats, and begin again when an
answer says so. Whatever happened before, when the disturbance ends every live client must come to
share one stable generation within the timeouts it asked for: no group is ever stuck. After each
step the group's counts and timers are compared with the state that they are derived from, and
Python's view of the group with C's: the view is the compiled table itself. Now and then something
raises in the midst of a step: publishing, writing, a timer, an effect of the table; both still
agree, and no client waits for ever.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbroker.coordinator.group._groups import GroupTable
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.images import GroupImage
from kbroker.coordinator.group.messages import Leaver, Protocols
from kbroker.coordinator.group.roster import Roster
from kbroker.coordinator.group.states import GroupState
from kbroker.coordinator.group.step import disagreement
from kbroker.errors import ErrorCode
from kbroker.metadata.image import OFFSETS_TOPIC
from tests.support.led_log import LedLog, LedLogManager
from tests.unit.coordinator.group.world import GROUP, Answer, World

CLIENTS_MAX = 7
SESSIONS_MS = (6_000, 10_000, 30_000)
REBALANCES_MS = (2_000, 4_000, 8_000)
DELAYS_MS = (0, 3_000)
# A join waits for one rebalance at most; a tick more, and the steps in which time passes.
WAIT_MS_MAX = max(REBALANCES_MS) + 2 * max(DELAYS_MS) + 1_000
QUIET_MS_MAX = 4 * (max(SESSIONS_MS) + WAIT_MS_MAX)
STEP_MS = 250

NEW_ID = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class Faults:
    """What raises in the midst of a step: at the so-manieth call of a place, once."""

    def __init__(self) -> None:
        self.place = ""
        self.after = 0

    def pass_by(self, place: str) -> None:
        if place != self.place:
            return
        self.after -= 1
        if self.after < 0:
            self.place = ""
            raise MemoryError(f"of this model, at {place}")


# Effects in the group itself, and its calls of others. Hiding needs no memory: it does not raise.
CHANGES = ("check", "supports", "choose", "park", "unpark", "elect", "remove", "replace")
PLACES = ("show", "write", "timer", *CHANGES)


class Watched:
    """Something of the group's world whose methods may raise."""

    def __init__(self, inner: Any, faults: Faults, places: dict[str, str]) -> None:
        self._inner, self._faults, self._places = inner, faults, places

    def __getattr__(self, name: str) -> Any:
        if name in self._places:
            self._faults.pass_by(self._places[name])
        return getattr(self._inner, name)


@contextmanager
def raising_actions(faults: Faults) -> Iterator[None]:
    """The roster's methods pass by as well."""
    before: dict[str, Callable[..., Any]] = {name: getattr(Roster, name) for name in CHANGES}

    def watched(name: str) -> Callable[..., Any]:
        def method(roster: Roster, *args: Any) -> Any:
            faults.pass_by(name)
            return before[name](roster, *args)

        return method

    for name in CHANGES:
        setattr(Roster, name, watched(name))
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(Roster, name, method)


@cache
def some_log() -> LedLog:
    """What a shard needs in order to be ours; nothing is written to it."""
    logs = LedLogManager([Path(tempfile.mkdtemp(prefix="group-model"))])
    logs.start()
    return logs.open(OFFSETS_TOPIC, 0, uuid.UUID(int=1), {})


class Client:
    """What a member's client knows, and the request it waits for."""

    def __init__(self, number: int, instance_id: str | None, needs_id: bool, **timeouts: int):
        self.number = number
        self.instance_id = instance_id
        self.needs_id = needs_id
        self.timeouts = timeouts
        self.version = 0  # of its subscription
        self.member_id = ""
        self.generation = -1
        self.assignment: bytes | None = None
        self.plan: dict[str, bytes] = {}  # a leader's
        self.join: Answer[Any] | None = None
        self.sync: Answer[Any] | None = None
        self.since_ms = 0
        self.alive = True

    @property
    def protocols(self) -> Protocols:
        said = b"%d" % self.version
        both = (("range", said), ("sticky", said))
        return both if self.number % 2 else tuple(reversed(both))

    def begin_again(self, *, forget: bool = False) -> None:
        self.join = self.sync = self.assignment = None
        self.generation = -1
        if forget:
            self.member_id = ""

    def step(self, world: World) -> None:
        """Whatever a client does next."""
        if self.join is not None:
            self._joined(self.join)
        elif self.sync is not None:
            self._synced(self.sync)
        elif self.generation < 0:
            self.since_ms = world.clock.monotonic_ms()
            self.join = world.join(
                self.member_id,
                self.protocols,
                instance_id=self.instance_id,
                needs_id=self.needs_id,
                **self.timeouts,
            )
        elif self.assignment is None:
            self.since_ms = world.clock.monotonic_ms()
            self.sync = world.sync(
                self.member_id, self.generation, instance_id=self.instance_id, given=self.plan
            )
        else:
            self._told(world.heartbeat(self.member_id, self.generation, self.instance_id))

    def _joined(self, join: Answer[Any]) -> None:
        if join.waits:
            return
        self.join = None
        answered = join.got
        if answered.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answered.member_id
        elif answered.code:
            self._told(answered.code)
        else:
            self.member_id, self.generation = answered.member_id, answered.generation
            self.plan = {m.member_id: m.member_id.encode() for m in answered.members}
            assert (
                bool(answered.members) == (answered.leader == self.member_id)
                or answered.skip_assignment
            )

    def _synced(self, sync: Answer[Any]) -> None:
        if sync.waits:
            return
        self.sync = None
        if sync.got.code:
            self._told(sync.got.code)
        else:
            self.assignment = sync.got.assignment

    def _told(self, code: ErrorCode) -> None:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.alive = False
        elif code:
            self.begin_again(forget=code in NEW_ID)


class GroupModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.faults = Faults()
        self.table = GroupTable()
        self.table.set_partition_count(1)
        self.table.open(0, some_log())
        self.table.activate(0)
        self.world = World(view=Watched(self.table, self.faults, {"publish_members": "show"}))
        store = Watched(self.world.store, self.faults, {"write_group": "write"})
        self.world.coordinator._around = replace(self.world.coordinator._around, store=store)
        self._timers = self.world.call_later
        self.world.call_later = self._call_later  # type: ignore[assignment]
        self._actions = raising_actions(self.faults)
        self._actions.__enter__()
        self.clients: list[Client] = []
        self.made = 0
        self.generation = 0

    @initialize(delay_ms=st.sampled_from(DELAYS_MS))
    def configure(self, delay_ms: int) -> None:
        self.world.config["group.initial.rebalance.delay.ms"] = delay_ms

    def _call_later(self, delay_ms: int, action: Callable[[], object]) -> Callable[[], object]:
        self.faults.pass_by("timer")
        return self._timers(delay_ms, action)

    @property
    def live(self) -> list[Client]:
        return [client for client in self.clients if client.alive]

    @property
    def group(self) -> Group | None:
        group = self.world.coordinator.find(GROUP)
        assert group is None or isinstance(group, Group)
        return group

    # --- what happens ---

    @precondition(lambda self: len(self.live) < CLIENTS_MAX)
    @rule(
        static=st.booleans(),
        old=st.booleans(),
        session_ms=st.sampled_from(SESSIONS_MS),
        rebalance_ms=st.sampled_from(REBALANCES_MS),
    )
    def comes(self, static: bool, old: bool, session_ms: int, rebalance_ms: int) -> None:
        self.made += 1
        # Few instances, so that two clients claim the same one now and then.
        instance_id = f"i{self.made % 3}" if static else None
        self.clients.append(
            Client(
                self.made,
                instance_id,
                needs_id=not old,
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
            )
        )

    @precondition(lambda self: self.live)
    @rule(data=st.data(), steps=st.integers(1, 4))
    def acts(self, data: st.DataObject, steps: int) -> None:
        client = data.draw(st.sampled_from(self.live))
        for _ in range(steps):
            client.step(self.world)

    @rule(rounds=st.integers(1, 3))
    def all_act(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self.live:
                client.step(self.world)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def loses_its_answer(self, data: st.DataObject) -> None:
        """The connection is gone; its requests on the way will not be answered."""
        client = data.draw(st.sampled_from(self.live))
        if client.join is not None or client.sync is not None:
            client.begin_again()

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.live))
        client.alive = False
        if client.member_id and self.group is not None:
            leaver = Leaver(client.member_id, client.instance_id)
            self.world.coordinator.leave(GROUP, [leaver], lambda answered: None)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def vanishes(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.live)).alive = False

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def restarts(self, data: st.DataObject) -> None:
        """The process comes back with its configuration and no memory."""
        data.draw(st.sampled_from(self.live)).begin_again(forget=True)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def subscribes_to_something_else(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.live))
        client.version += 1
        if client.join is None and client.sync is None:
            client.begin_again()

    @rule(ms=st.sampled_from([1, 500, 2_500, 9_000, 31_000]))
    def time_passes(self, ms: int) -> None:
        self.world.pass_ms(ms, step_ms=STEP_MS)

    @rule(holds=st.booleans(), fails=st.sampled_from([ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]))
    def store_changes(self, holds: bool, fails: ErrorCode) -> None:
        store = self.world.store
        store.fails, store.holds = fails, holds
        if not holds:
            store.release(fails)

    @rule()
    def leadership_moves(self) -> None:
        """Away and back: what is in the log is what there is."""
        images: dict[str, GroupImage] = {}
        for image in self.world.store.written:
            images[image.group_id] = image
        self.world.coordinator.unload(lambda group_id: True)
        assert self.group is None
        self.world.coordinator.load(list(images.values()))
        self.generation = 0

    @rule(place=st.sampled_from(PLACES), after=st.integers(0, 6))
    def something_will_raise(self, place: str, after: int) -> None:
        self.faults.place, self.faults.after = place, after

    # --- what holds ---

    @invariant()
    def counts_are_what_they_count(self) -> None:
        group = self.group
        if group is None:
            return
        roster, members = group.roster, group.members
        assert roster.awaiting_join == sum(m.awaiting_join is not None for m in members)
        support: dict[str, int] = {}
        for member in members:
            for name, _ in member.protocols:
                support[name] = support.get(name, 0) + 1
        assert roster._supported == support
        assert roster.static == {m.instance_id: m.member_id for m in members if m.is_static}
        assert (roster.leader in roster.members) == bool(members)
        assert roster.unsynced <= set(roster.members)
        assert not set(roster.pending) & set(roster.members)

    @invariant()
    def the_state_fits_what_waits(self) -> None:
        group = self.group
        if group is None:
            return
        state, members = group.state, group.members
        assert (state is GroupState.EMPTY) <= (not members)
        if state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert members and group.protocol is not None
            assert not group.roster.awaiting_join
        if state is not GroupState.COMPLETING_REBALANCE:
            assert not any(m.awaiting_sync for m in members)
        assert group.generation >= self.generation
        self.generation = group.generation

    @invariant()
    def something_will_happen(self) -> None:
        """There is a timer for everything that waits for a client."""
        group = self.group
        if group is None:
            return
        if group.state is GroupState.PREPARING_REBALANCE:
            assert group.join_deadline._cancel is not None
        if group.roster.unsynced and group.state is not GroupState.PREPARING_REBALANCE:
            assert group.sync_deadline._cancel is not None
        for member in group.members:
            if member.is_new or not member.is_waiting:
                assert member.cancel_timer is not None, member.member_id

    @invariant()
    def both_views_agree(self) -> None:
        """C knows what Python says of the group, or nothing of it."""
        group = self.group
        if group is None:
            assert self.table.published(GROUP) is None
        else:
            assert disagreement(group) is None

    @invariant()
    def nobody_waits_longer_than_a_rebalance(self) -> None:
        if self.world.store.held:
            return
        now_ms = self.world.clock.monotonic_ms()
        for client in self.live:
            waits = (client.join and client.join.waits) or (client.sync and client.sync.waits)
            assert not waits or now_ms - client.since_ms <= WAIT_MS_MAX

    def teardown(self) -> None:
        """Quiet: those who live come to share a stable generation."""
        try:
            self.faults.place = ""
            self._becomes_quiet()
        finally:
            self._actions.__exit__(None, None, None)

    def _becomes_quiet(self) -> None:
        world = self.world
        world.store.holds, world.store.fails = False, ErrorCode.NONE
        world.store.release()
        for _ in range(QUIET_MS_MAX // 500):
            for client in self.live:
                client.step(world)
            if self._settled():
                return
            world.pass_ms(500, step_ms=STEP_MS)
        raise AssertionError(f"stuck: {self.group and self.group.described()}")

    def _settled(self) -> bool:
        group = self.group
        live = self.live
        if not live:
            return group is None or group.state is GroupState.EMPTY
        if group is None or group.state is not GroupState.STABLE:
            return False
        same = {(client.member_id, client.generation) for client in live}
        if same != {(member_id, group.generation) for member_id in group.roster.members}:
            return False
        return all(client.assignment is not None for client in live)


TestGroup = GroupModel.TestCase
TestGroup.settings = settings(
    max_examples=int(os.environ.get("KBROKER_GROUP_EXAMPLES", "100")),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
