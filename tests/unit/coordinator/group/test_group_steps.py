"""A step that raises: it is undone whole, waiting requests are answered, C has the same state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.coordinator.group.messages import Leaver, SyncAnswer, SyncAsked
from kbroker.coordinator.group.rebalance import Rebalance
from kbroker.coordinator.group.roster import Roster
from kbroker.coordinator.group.states import GroupState
from kbroker.coordinator.group.step import disagreement
from kbroker.errors import ErrorCode
from tests.unit.coordinator.group.world import CHANGED, GROUP, Answer, World

AGAIN = ErrorCode.COORDINATOR_NOT_AVAILABLE
OF_THIS_TEST = MemoryError("of this test")


def raises(*_: object, **__: object) -> None:
    raise OF_THIS_TEST


def test_a_group_that_cannot_be_published_is_hidden_and_python_goes_on() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.view.fails = OF_THIS_TEST
    waiting = world.join(follower, CHANGED)
    assert world.view.groups == {}
    joined = world.join(leader)
    assert joined.got.code is waiting.got.code is ErrorCode.NONE
    world.settle([leader, follower])
    assert world.heartbeat(follower) is ErrorCode.NONE
    world.view.fails = None
    assert world.heartbeat(follower) is ErrorCode.NONE
    assert world.view.groups[GROUP].state is GroupState.STABLE
    assert world.coordinator.failures.count > 1


@pytest.mark.parametrize("raising", ["_form", "_park", "_restart", "_wait_with_others"])
def test_a_step_that_raises_has_the_group_start_over(
    raising: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    leader, follower = world.stable(2)
    generation = world.group.generation
    first = world.join(follower, CHANGED)
    with monkeypatch.context() as patch:
        _have_raise(patch, raising)
        second = world.join(leader, CHANGED)
        third = world.join(client_id="newcomer", needs_id=False)
    answered = [each.got.code for each in (first, second, third)]
    assert AGAIN in answered
    assert world.group.generation > generation
    assert disagreement(world.group) is None
    assert world.heartbeat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    # A client that comes now finds a group like any other.
    world.pass_ms(20_000)
    ids = world.stable(2)
    assert world.heartbeat(ids[1]) is ErrorCode.NONE
    assert not set(world.group.roster.members) - set(ids)


def _have_raise(patch: pytest.MonkeyPatch, name: str) -> None:
    from kbroker.coordinator.group import rebalance

    effect = getattr(Rebalance, name)
    patch.setattr(Rebalance, name, raises)
    table = {do: raises if run is effect else run for do, run in rebalance._EFFECTS.items()}
    patch.setattr(rebalance, "_EFFECTS", table)


@pytest.mark.parametrize(
    ("raising", "ask"),
    [
        ("check", lambda world, member: world.heartbeat(member)),
        ("check", lambda world, member: world.commit(member)),
        ("check", lambda world, member: world.asks_to_leave(Leaver(member)).got.code),
        ("check", lambda world, member: world.sync(member).got.code),
        ("supports", lambda world, member: world.join(member).got.code),
    ],
    ids=["heartbeat", "commit", "leave", "sync", "join"],
)
def test_every_request_of_a_step_that_raises_has_an_answer(
    raising: str, ask: Callable[[World, str], ErrorCode], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    (leader,) = world.stable()
    with monkeypatch.context() as patch:
        patch.setattr(Roster, raising, raises)
        assert ask(world, leader) is AGAIN
    assert world.state is GroupState.EMPTY
    assert world.coordinator.failures.count == 1


def test_a_timer_that_raises_leaves_none_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    leader, follower = world.stable(2)
    waiting = world.join(follower, CHANGED)
    with monkeypatch.context() as patch:
        patch.setattr(Roster, "absent", raises)
        world.pass_ms(6_000)
    assert waiting.got.code is AGAIN
    assert world.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_an_action_of_the_outbox_that_raises_holds_up_none_after_it(
    error: type[BaseException],
) -> None:
    world = World()
    (leader,) = world.stable()

    def raises_it() -> None:
        raise error("of this test")

    world.group.outbox.add(raises_it)
    assert world.join(leader, CHANGED).got.code is ErrorCode.NONE
    assert world.coordinator.failures.count == 1
    assert world.sync(leader, given={leader: b"1"}).got.assignment == b"1"


def test_a_request_is_answered_when_starting_over_raises_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    (leader,) = world.stable()

    def ends(*_: object) -> None:
        raise SystemExit("of this test")

    with monkeypatch.context() as patch:
        patch.setattr(Roster, "check", raises)
        patch.setattr(Rebalance, "start_over", ends)
        asked = SyncAsked(GROUP, leader, None, 1)
        answer: Answer[SyncAnswer] = Answer()
        with pytest.raises(SystemExit):
            world.group.sync(asked, answer)
    assert answer.got.code is AGAIN


@pytest.mark.parametrize("member", ["leader", "follower"])
def test_a_write_that_raises_answers_its_waiting_requests(
    member: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    leader, follower = world.stable(2)
    waiting = world.join(follower, CHANGED)
    assert world.join(leader).got.code is waiting.got.code is ErrorCode.NONE
    monkeypatch.setattr(world.store, "write_group", raises)
    syncs = {"follower": world.sync(follower), "leader": world.sync(leader, given={leader: b"1"})}
    assert syncs[member].got.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.state is GroupState.PREPARING_REBALANCE
