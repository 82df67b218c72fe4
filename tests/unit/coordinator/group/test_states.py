"""Every cell of the group's table, raised in a real group, against what is written here by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.coordinator.group.draw_groups import generated
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.images import GroupImage
from kbroker.coordinator.group.messages import Leaver
from kbroker.coordinator.group.states import TABLE, Cell, Do, Event, GroupState
from kbroker.errors import ErrorCode, InvariantError
from tests.support.source_tree import ROOT
from tests.unit.coordinator.group.world import CHANGED, GROUP, REBALANCE_MS, Answer, World

E, P, C, S, D = GroupState
WAITS = None  # the request waits with the group


class Scene:
    """A group of a leader `a` and a static follower `b`, brought into a state."""

    def __init__(self, state: GroupState) -> None:
        self.world = world = World(group_initial_rebalance_delay_ms=3_000)
        world.coordinator.ensure_group(GROUP)
        self.group = world.group
        self.a = self.b = "stranger"
        if state in (P, C, S):
            self._two_members()
            if state is not S:
                self.parked = world.join(self.b, CHANGED, instance_id="ib")
            if state is C:
                assert world.join(self.a).got.code is ErrorCode.NONE
        if state is D:
            world.group.unload()
        assert self.group.state is state

    def _two_members(self) -> None:
        world = self.world
        self.a, first = world.new("a")
        second = world.join(instance_id="ib")
        world.pass_ms(6_100)
        assert first.got.leader == self.a
        self.b = second.got.member_id
        world.settle_pair(self.a, self.b)


def joins(scene: Scene, member_id: str = "", **more: object) -> ErrorCode | None:
    answer = scene.world.join(member_id, **more)  # type: ignore[arg-type]
    return WAITS if answer.waits else answer.got.code


def syncs(scene: Scene, member_id: str, **more: object) -> ErrorCode | None:
    answer = scene.world.sync(member_id, scene.group.generation, **more)
    return WAITS if answer.waits else answer.got.code


def deletes(scene: Scene) -> ErrorCode | None:
    answer: Answer[ErrorCode] = Answer()
    scene.world.store.holds = True
    scene.group.delete(answer, unless=lambda: False, gone=lambda: None)
    return WAITS if answer.waits else answer.got


def gives_and_loses_an_id(scene: Scene) -> ErrorCode | None:
    given = scene.world.join().got
    if given.code is not ErrorCode.MEMBER_ID_REQUIRED:
        return given.code
    return scene.world.leave(given.member_id)[0]


def stores(code: ErrorCode) -> Callable[[Scene], ErrorCode | None]:
    def stimulus(scene: Scene) -> ErrorCode | None:
        scene.world.store.holds = True
        answer = scene.world.sync(scene.a, scene.group.generation)
        scene.world.store.release(code)
        return answer.got.code

    return stimulus


def unloads(scene: Scene) -> ErrorCode | None:
    scene.world.coordinator.unload(lambda group_id: group_id == GROUP)
    return None


def leaves(scene: Scene) -> ErrorCode | None:
    code, codes = scene.world.asks_to_leave(Leaver(scene.b, "ib")).got
    return code or codes[0]


def lets_time_pass(scene: Scene) -> None:
    for _ in range(REBALANCE_MS // 1_000 + 1):
        scene.world.view.last_ms[scene.a] = scene.world.clock.monotonic_ms()
        scene.world.pass_ms(1_000)


N = ErrorCode.NONE
DEAD = ErrorCode.COORDINATOR_NOT_AVAILABLE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
BUSY = ErrorCode.REBALANCE_IN_PROGRESS
ID = ErrorCode.MEMBER_ID_REQUIRED
FULL = ErrorCode.NON_EMPTY_GROUP
Outcome = tuple[GroupState, ErrorCode | None]

# How each event is raised, and for each state the next state of the group and the answer.
WALKS: dict[Event, tuple[Callable[[Scene], ErrorCode | None], tuple[Outcome, ...]]] = {
    Event.ASK_ID: (joins, ((E, ID), (P, ID), (C, ID), (S, ID), (D, DEAD))),
    Event.JOIN: (
        lambda s: joins(s, needs_id=False),
        ((P, WAITS), (P, WAITS), (P, WAITS), (P, WAITS), (D, DEAD)),
    ),
    Event.REJOIN_LEADER: (
        lambda s: joins(s, s.a),
        ((E, UNKNOWN), (C, N), (C, N), (P, WAITS), (D, DEAD)),
    ),
    Event.REJOIN_SAME: (
        lambda s: joins(
            s, s.b, protocols=s.group.roster.members[s.b].protocols
        ) if s.group.roster.members else joins(s, s.b),
        ((E, UNKNOWN), (P, WAITS), (C, N), (S, N), (D, DEAD)),
    ),
    Event.RETURN: (
        lambda s: joins(s, instance_id="ib"),
        ((P, WAITS), (P, WAITS), (P, WAITS), (S, N), (D, DEAD)),
    ),
    Event.SYNC: (
        lambda s: syncs(s, s.b), ((E, UNKNOWN), (P, BUSY), (C, WAITS), (S, N), (D, DEAD)),
    ),
    Event.SYNC_LEADER: (
        lambda s: syncs(s, s.a), ((E, UNKNOWN), (P, BUSY), (S, N), (S, N), (D, DEAD)),
    ),
    Event.HEARTBEAT: (
        lambda s: s.group.heartbeat(s.a, None, s.group.generation),
        ((E, UNKNOWN), (P, BUSY), (C, N), (S, N), (D, DEAD)),
    ),
    Event.COMMIT: (
        lambda s: s.group.check_commit(
            *(("", None, -1) if s.a == "stranger" else (s.a, None, s.group.generation))
        ),
        ((E, N), (P, N), (C, BUSY), (S, N), (D, DEAD)),
    ),
    Event.GONE: (leaves, ((E, UNKNOWN), (P, N), (P, N), (P, N), (D, DEAD))),
    Event.ID_GONE: (gives_and_loses_an_id, ((E, N), (P, N), (C, N), (S, N), (D, DEAD))),
    Event.DELETE: (
        deletes,
        ((D, WAITS), (P, FULL), (C, FULL), (S, FULL), (D, WAITS)),
    ),
    Event.UNLOAD: (unloads, ((D, None), (D, None), (D, None), (D, None), (D, None))),
}  # fmt: skip


def group_of_scene_is_found(scene: Scene) -> bool:
    return scene.world.coordinator.find(GROUP) is scene.group


@pytest.mark.parametrize("state", GroupState, ids=lambda state: state.label)
@pytest.mark.parametrize("event", WALKS, ids=lambda event: event.name)
def test_a_request_in_a_state(event: Event, state: GroupState) -> None:
    stimulus, outcomes = WALKS[event]
    scene = Scene(state)
    assert group_of_scene_is_found(scene)
    answered = stimulus(scene)
    assert (scene.group.state, answered) == outcomes[state]
    cell = TABLE[state, event]
    if cell.do is Do.REFUSE:
        assert scene.group.state is state


def test_all_joined_forms_a_generation() -> None:
    scene = Scene(P)
    generation = scene.group.generation
    assert scene.world.join(scene.a).got.generation == generation + 1
    assert scene.parked.got.generation == generation + 1
    assert scene.group.state is C


def test_without_members_the_group_is_empty() -> None:
    scene = Scene(P)
    assert scene.world.leave(scene.a, scene.b) == [N, N]
    assert scene.group.state is E
    assert scene.parked.got.code is UNKNOWN
    last = scene.world.store.written[-1]
    assert (last.members, last.protocol, last.leader) == ((), None, None)
    assert last.generation == scene.group.generation


def test_the_time_for_joining_ends() -> None:
    scene = Scene(P)
    lets_time_pass(scene)
    assert scene.group.state is C
    assert scene.parked.got.leader == scene.b
    assert list(scene.group.roster.members) == [scene.b]


def test_the_time_for_syncing_ends_before_there_is_an_assignment() -> None:
    scene = Scene(C)
    lets_time_pass(scene)
    assert scene.group.state is E
    assert not scene.group.roster.members


def test_the_time_for_syncing_ends_for_those_that_did_not_ask() -> None:
    scene = Scene(C)
    assert syncs(scene, scene.a) is N
    assert scene.group.state is S
    lets_time_pass(scene)
    assert scene.group.state is P
    assert list(scene.group.roster.members) == [scene.a]


def test_the_assignment_is_stored() -> None:
    scene = Scene(C)
    waiting = scene.world.sync(scene.b)
    assert stores(N)(scene) is N
    assert scene.group.state is S
    assert waiting.got.code is N


def test_the_assignment_is_not_stored() -> None:
    scene = Scene(C)
    waiting = scene.world.sync(scene.b)
    assert stores(ErrorCode.NOT_COORDINATOR)(scene) is ErrorCode.NOT_COORDINATOR
    assert waiting.got.code is ErrorCode.NOT_COORDINATOR
    assert scene.group.state is P


@pytest.mark.parametrize("code", [N, ErrorCode.NOT_COORDINATOR])
def test_a_store_for_a_past_generation_is_ignored(code: ErrorCode) -> None:
    scene = Scene(C)
    scene.world.store.holds = True
    answer = scene.world.sync(scene.a, given={scene.a: b"old"})
    other = scene.world.join(scene.b)
    assert answer.got.code is BUSY
    assert scene.world.join(scene.a).got.code is N
    assert other.got.code is N
    scene.world.store.release(code)
    assert scene.group.state is C
    assert scene.group.roster.members[scene.a].assignment == b""


@pytest.mark.parametrize("state", [E, P, C, S])
def test_a_group_that_goes_on_as_one_of_another_kind(state: GroupState) -> None:
    scene = Scene(state)
    image = scene.group.give_way(lambda image, is_empty: image)
    assert isinstance(image, GroupImage)
    assert (scene.group.state, scene.group.lost) == (D, True)
    if state is P:
        assert scene.parked.got.code is BUSY
    members = [] if state is E else [scene.a, scene.b]
    assert [each.member_id for each in image.members] == members
    assert scene.group.give_way(lambda image, is_empty: image) is None


def _cells(*kinds: Do) -> list[tuple[GroupState, Event]]:
    return [key for key, cell in TABLE.items() if cell.do in kinds]


@pytest.mark.parametrize(("state", "event"), _cells(Do.NEVER))
def test_an_impossible_event_raises_and_changes_nothing(state: GroupState, event: Event) -> None:
    scene = Scene(state)
    before = picture(scene.group)
    with pytest.raises(InvariantError, match=event.name):
        scene.group.fire(event)
    assert picture(scene.group) == before


@pytest.mark.parametrize(("state", "event"), _cells(Do.NOTHING, Do.REFUSE))
def test_an_event_that_is_too_late_or_refused_changes_nothing(
    state: GroupState, event: Event
) -> None:
    scene = Scene(state)
    before = picture(scene.group)
    assert scene.group.fire(event) is TABLE[state, event].code
    assert picture(scene.group) == before


def picture(group: Group) -> tuple[object, ...]:
    return (
        group.state,
        group.generation,
        group.protocol,
        list(group.roster.members),
        [(m.awaiting_join, m.awaiting_sync) for m in group.members],
        list(group.roster.pending),
    )


def test_every_cell_is_defined_and_every_test_above_walks_its_event() -> None:
    assert set(TABLE) == {(state, event) for state in GroupState for event in Event}
    by_hand = {
        Event.ALL_JOINED, Event.NOBODY_LEFT, Event.JOIN_TIMEOUT, Event.SYNC_TIMEOUT,
        Event.STORED, Event.NOT_STORED, Event.KEPT, Event.CONVERT,
    }  # fmt: skip
    assert set(WALKS) | by_hand == set(Event)
    # A cell that is no move keeps its state; DEAD is left only by a deletion that failed.
    for (state, event), cell in TABLE.items():
        if cell.do in (Do.REFUSE, Do.NOTHING, Do.NEVER):
            assert cell.to is state, (state, event)
        assert isinstance(cell, Cell)
        assert state is not D or cell.to is D or event is Event.KEPT


def test_the_page_has_the_table_that_is_followed() -> None:
    assert generated() in (ROOT / "docs/groups.md").read_text(encoding="utf-8")
