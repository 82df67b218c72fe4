"""A streams group: joins, topics, targets, moves of tasks, losses, failovers, offsets, deletion."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kbroker.coordinator.consumer_group.drafts import AnyChange
from kbroker.coordinator.group.messages import CommitAsked
from kbroker.coordinator.streams_group.images import (
    CopartitionGroup,
    Endpoint,
    Kind,
    MemberImage,
    Subtopology,
    TaskSet,
    TopologyImage,
)
from kbroker.coordinator.streams_group.state import StreamsGroupLabel
from kbroker.coordinator.streams_group.topology import StatusCode
from kbroker.errors import ErrorCode
from kbroker.limits import STREAMS_SUBTOPOLOGIES_MAX
from tests.unit.coordinator.consumer_group.world import topic_of
from tests.unit.coordinator.streams_group.world import (
    EMPTY,
    GROUP,
    HALF,
    NONE,
    REBALANCE_MS,
    SIMPLE,
    STATEFUL,
    World,
    active,
    part,
    tasks,
)

FENCED = ErrorCode.FENCED_MEMBER_EPOCH
MOVED = ErrorCode.NOT_COORDINATOR


@pytest.fixture
def world() -> World:
    world = World()
    world.create(topic_of("t", 4))
    return world


def test_one_member_has_all_tasks(world: World) -> None:
    joined = world.client("a").join()
    assert (joined.code, joined.epoch) == (NONE, 2)
    assert joined.done is not None
    assert (joined.done.tasks, joined.done.statuses) == (active(0, 1, 2, 3), ())
    assert world.group.state is StreamsGroupLabel.STABLE


def test_the_first_target_waits_for_more_members() -> None:
    """The epochs and the status are those of Apache Kafka 4.3.0."""
    world = World(delay_ms=3_000)
    world.create(topic_of("t", 4))
    a, b = world.client("a"), world.client("b")
    assert (a.join().epoch, a.statuses) == (1, [StatusCode.ASSIGNMENT_DELAYED])
    assert (b.join().epoch, a.beat().epoch, a.owned) == (1, 1, EMPTY)
    world.elapse(3_000)
    assert world.group.state is StreamsGroupLabel.RECONCILING
    assert (a.settle(), b.settle()) == (active(0, 2), active(1, 3))
    assert (a.statuses, a.epoch, b.epoch) == ([], 3, 3)


def test_the_wait_ends_while_a_group_is_being_removed() -> None:
    world = World(delay_ms=3_000)
    world.create(topic_of("t", 4))
    a = world.client("a")
    a.join()
    world.ask(a.beats()._replace(epoch=-1))
    codes: list[ErrorCode] = []

    def is_used() -> bool:
        world.elapse(3_000)
        return True  # its offsets are: it stays

    world.group.delete(codes.append, unless=is_used, gone=lambda: None)
    assert codes == [ErrorCode.NON_EMPTY_GROUP]
    a.join()
    assert a.statuses == [StatusCode.ASSIGNMENT_DELAYED]
    world.elapse(3_000)
    assert a.settle() == active(0, 1, 2, 3)


def test_a_heartbeat_that_is_refused_leaves_the_wait_to_the_next_join() -> None:
    world = World(delay_ms=3_000)
    world.create(topic_of("t", 4))
    a, b = world.client("a"), world.client("b")
    a.join()
    world.elapse(3_000)
    a.settle()
    world.ask(a.beats()._replace(epoch=-1))
    assert world.ask(a.beats()).code is ErrorCode.UNKNOWN_MEMBER_ID
    world.elapse(2_000)
    b.join()
    world.elapse(2_000)
    b.beat()
    assert b.statuses == [StatusCode.ASSIGNMENT_DELAYED]
    world.elapse(1_000)
    assert b.settle() == active(0, 1, 2, 3)


def test_tasks_move_when_their_owner_has_given_them_up(world: World) -> None:
    a, b = world.client("a"), world.client("b")
    a.join()
    assert b.join().epoch == 3
    assert b.owned == EMPTY
    asked = a.beats()
    answer = world.ask(asked)
    assert answer.done is not None
    assert (answer.epoch, answer.done.tasks) == (2, active(0, 1))
    # It has not said yet that it has given them up.
    assert world.ask(asked).epoch == 2
    assert b.beat().epoch == 3
    assert b.owned == EMPTY
    a.owned = active(0, 1)
    assert a.beat().epoch == 3
    b.beat()
    assert b.owned == active(2, 3)
    assert world.group.state is StreamsGroupLabel.STABLE


def test_topics_of_the_application_are_made(world: World) -> None:
    a = world.client("a")
    joined = a.join(STATEFUL)
    assert joined.done is not None
    assert (a.statuses, a.owned) == ([StatusCode.MISSING_INTERNAL_TOPICS], EMPTY)
    assert [(each.name, each.partitions) for each in joined.done.missing] == [("store", 4)]
    assert world.group.state is StreamsGroupLabel.NOT_READY
    world.create_missing(joined)
    assert (a.beat().epoch, a.owned, a.statuses) == (3, active(0, 1, 2, 3), [])


def test_topics_that_the_application_reads_must_be_there() -> None:
    world = World()
    a = world.client("a")
    joined = a.join()
    assert joined.done is not None
    assert (a.statuses, joined.done.missing) == ([StatusCode.MISSING_SOURCE_TOPICS], ())
    world.create(topic_of("t", 2))
    assert (a.settle(), a.statuses) == (active(0, 1), [])


def test_more_partitions_are_more_tasks(world: World) -> None:
    a = world.client("a")
    a.join()
    world.create(topic_of("t", 6))
    assert a.settle() == active(*range(6))


def test_a_changelog_does_not_grow_with_its_topic(world: World) -> None:
    a = world.client("a")
    world.create_missing(a.join(STATEFUL))
    a.settle()
    world.create(topic_of("t", 5))
    a.settle()
    assert a.statuses == [StatusCode.INCORRECTLY_PARTITIONED_TOPICS]
    assert a.owned == EMPTY


def test_copies_are_with_other_processes() -> None:
    world = World(standbys=1)
    world.create(topic_of("t", 2), topic_of("store", 2))
    a, b, c = world.client("a", "p"), world.client("b", "p"), world.client("c", "q")
    for each in (a, b, c):
        each.join(STATEFUL)
    for each in (a, b, c) * 3:
        each.settle()
    owned = {each.member_id: each.owned for each in (a, b, c)}
    in_p = [owned["a"], owned["b"]]
    for index in (0, 1):
        having = [of for of in ("p", "q") for each in (in_p if of == "p" else [owned["c"]])
                  if index in {*each.active.get("0", ()), *each.standby.get("0", ())}]  # fmt: skip
        assert sorted(having) == ["p", "q"]


def test_a_copy_becomes_the_task_itself() -> None:
    world = World(standbys=1)
    world.create(topic_of("t", 1), topic_of("store", 1))
    a, b = world.client("a"), world.client("b")
    a.join(STATEFUL)
    b.join(STATEFUL)
    assert (a.settle(), b.settle()) == (active(0), TaskSet({}, tasks("0", 0)))
    world.ask(a.beats()._replace(epoch=-1))
    b.beat()
    b.owned = EMPTY  # it has given the copy up
    assert b.settle() == active(0)


def test_a_silent_member_is_lost(world: World) -> None:
    a, b = world.client("a"), world.client("b")
    a.join()
    b.join()
    a.settle()
    b.settle()
    world.elapse(44_000)
    b.settle()
    world.elapse(2_000)
    assert set(world.group._state.members) == {"b"}
    assert b.settle() == active(0, 1, 2, 3)
    assert a.beat().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_is_removed(world: World) -> None:
    a, b = world.client("a"), world.client("b")
    a.join()
    b.join()
    for _ in range(REBALANCE_MS // 20_000 + 1):
        world.ask(a.beats())
        b.beat()
        world.elapse(20_000)
    assert set(world.group._state.members) == {"b"}
    assert b.settle() == active(0, 1, 2, 3)


def test_epochs_of_before_are_fenced(world: World) -> None:
    a = world.client("a")
    a.join()
    world.client("b").join()
    a.settle()
    for epoch, code in ((2, FENCED), (4, FENCED), (3, NONE)):
        assert world.ask(a.beats()._replace(epoch=epoch)).code is code
    # The answer with its epoch was lost: it has no more than it was given.
    again = world.ask(a.beats(a.owned)._replace(epoch=2))
    assert again.done is not None
    assert (again.code, again.epoch, again.done.tasks) == (NONE, 3, a.owned)


def test_tasks_of_a_lost_answer_come_again(world: World) -> None:
    a = world.client("a")
    a.join()
    answer = world.ask(a.beats(EMPTY))
    assert answer.done is not None
    assert answer.done.tasks == active(0, 1, 2, 3)
    answer = world.ask(a.beats())
    assert answer.done is not None
    assert answer.done.tasks is None


def test_a_group_has_a_bound() -> None:
    world = World(size_max=1)
    assert world.client("a").join().code is NONE
    assert world.client("b").join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.client("a").join().code is NONE


def test_topologies_do_not_change(world: World) -> None:
    newer = SIMPLE._replace(epoch=1)
    a = world.client("a")
    a.join(newer)
    assert world.client("b").join(STATEFUL._replace(epoch=1)).code is ErrorCode.INVALID_REQUEST
    stale = world.client("c")
    assert stale.join(STATEFUL).code is NONE
    assert stale.statuses == [StatusCode.STALE_TOPOLOGY]
    assert "b" not in world.group._state.members


def test_topics_are_made_for_members_with_the_topology_of_the_group(world: World) -> None:
    joined = world.client("a").join(STATEFUL._replace(epoch=1))
    stale = world.client("b").join(STATEFUL)
    assert joined.done is not None
    assert stale.done is not None
    assert [each.name for each in joined.done.missing] == ["store"]
    assert stale.done.missing == ()


@pytest.mark.parametrize(
    "wrong",
    [
        part("0"),
        part("0", "t", repartitions=(HALF,)),
        part("0", "t", changelogs=(HALF._replace(partitions=2),)),
        part("0", "t", sinks=("half",), repartitions=(HALF._replace(partitions=-1),)),
        part("0", "t", groups=(CopartitionGroup((1,), (), ()),)),
    ],
)
def test_a_topology_that_no_topics_make_right_makes_no_group(
    world: World, wrong: Subtopology
) -> None:
    topology = SIMPLE._replace(subtopologies=(wrong,))
    assert world.client("a").join(topology).code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert len(world.gone) == 1
    assert not world.log.batches


def test_a_topology_with_too_many_subtopologies_makes_no_group(world: World) -> None:
    parts = tuple(part(str(n), "t") for n in range(STREAMS_SUBTOPOLOGIES_MAX + 1))
    joined = world.client("a").join(SIMPLE._replace(subtopologies=parts))
    assert joined.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert not world.log.batches
    assert world.client("a").join(SIMPLE._replace(subtopologies=parts[1:])).code is NONE


def test_tasks_that_there_are_none_of_are_refused(world: World) -> None:
    a = world.client("a")
    a.join()
    for owned in (active(4), active(0, of="1")):
        assert world.ask(a.beats(owned)).code is ErrorCode.INVALID_REQUEST


def test_a_member_asks_the_application_to_end(world: World) -> None:
    a, b = world.client("a"), world.client("b")
    a.join()
    b.join()
    world.ask(a.beats()._replace(shuts_down=True))
    b.beat()
    assert b.statuses == [StatusCode.SHUTDOWN_APPLICATION]
    for each in (a, b):
        assert world.ask(each.beats()._replace(epoch=-1)).code is NONE
    assert world.group.state is StreamsGroupLabel.EMPTY
    b.join()
    assert b.statuses == []


def test_endpoints_come_with_their_partitions(world: World) -> None:
    a, b = world.client("a"), world.client("b")
    a.endpoint = Endpoint("here", 7)
    a.join()
    answer = world.ask(b.joins())
    assert answer.done is not None
    assert answer.done.endpoints is not None
    (found,) = answer.done.endpoints
    assert (found.endpoint, found.active) == (a.endpoint, {"t": (0, 1, 2, 3)})
    known = world.ask(b.joins()._replace(endpoint_epoch=answer.done.endpoint_epoch))
    assert known.done is not None
    assert known.done.endpoints is None


def test_a_topic_of_two_subtopologies_has_the_partitions_of_both() -> None:
    world = World()
    world.create(topic_of("t", 3))
    a, b = world.client("a"), world.client("b")
    a.endpoint = Endpoint("here", 7)
    topology = TopologyImage(0, (part("0", "t"), part("1", "t")))
    a.join(topology)
    b.join(topology)
    owned = a.settle()
    assert owned.active["0"] != owned.active["1"]
    answer = world.ask(a.beats())
    assert answer.done is not None
    assert answer.done.endpoints is not None
    (found,) = answer.done.endpoints
    assert set(found.active["t"]) == owned.active["0"] | owned.active["1"]


def test_the_endpoints_are_found_once_until_something_changes(world: World) -> None:
    a, b = world.client("a"), world.client("b")
    a.endpoint = Endpoint("here", 7)
    topology = SIMPLE._replace(subtopologies=(part("0", "t", "u", "t"),))
    a.join(topology)
    world.create(topic_of("u", 1))
    a.settle()

    def table() -> Any:
        answer = a.take(world.ask(a.beats()._replace(endpoint_epoch=-1)))
        assert answer.done is not None
        return answer.done.endpoints

    found = table()
    assert [each.active for each in found] == [{"t": (0, 1, 2, 3), "u": (0,)}]
    assert table() is found
    world.create(topic_of("u", 3))
    assert [each.active["u"] for each in table()] == [(0, 1, 2)]
    b.endpoint = Endpoint("there", 8)
    world.log.refuses = MOVED
    assert world.ask(b.joins(topology)).code is MOVED
    assert len(table()) == 1
    world.log.refuses = NONE
    world.ask(b.joins(topology))
    assert [each.endpoint for each in table()] == [a.endpoint, b.endpoint]
    a.settle()
    assert [each.active.get("t") for each in table()] == [(0, 1), None]


def test_a_subtopology_reads_a_topic_once_however_often_it_is_listed() -> None:
    again = part("0", "t", "t", repartitions=(HALF, HALF))
    assert list(again.inputs()) == ["t", "half"]


def test_a_failover_has_all_that_was_answered(world: World) -> None:
    a, b = world.client("a"), world.client("b")
    a.join()
    b.join()
    for each in (a, b, a, b):
        each.beat()
        before = world.group._state.values()
        world.fail_over()
        assert world.group._state.values() == before
    assert (a.settle(), b.settle()) == (active(0, 1), active(2, 3))


def test_a_write_that_is_refused_changes_nothing(world: World) -> None:
    a = world.client("a")
    a.join()
    before = world.group._state.values()
    world.log.refuses = MOVED
    assert world.client("b").join().code is MOVED
    assert world.group._state.values() == before
    world.log.refuses = NONE
    assert a.settle() == active(0, 1, 2, 3)


def test_a_draft_that_cannot_be_parted_is_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = world.client("a")
    a.join()
    before = world.group._state.values()
    with monkeypatch.context() as patch:
        patch.setattr(type(world.group), "_bytes_of", lambda *_: 1 // 0)
        assert world.client("b").join().code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.group._state.values() == before
    assert a.settle() == active(0, 1, 2, 3)


def test_a_heartbeat_that_fails_begins_no_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = world.client("a")
    a.join()
    world.elapse(44_000)
    with monkeypatch.context() as patch:
        patch.setattr(type(world.group), "_interval_ms", lambda *_: 1 // 0)
        assert world.ask(a.beats()).code is ErrorCode.UNKNOWN_SERVER_ERROR
    world.elapse(2_000)
    assert world.group.is_empty


def test_an_answer_waits_for_the_followers(world: World) -> None:
    world.log.holds = True
    answer = world.begin(world.client("a").joins())
    assert answer.waits
    world.log.release()
    assert answer.got.epoch == 2


def commit(world: World, member_id: str, epoch: int, *partitions: int, **how: Any) -> ErrorCode:
    topic = world.image.topic("t")
    assert topic is not None
    named = [(topic.topic_id, index) for index in partitions]
    how = {"version": 9, **how}
    asked = CommitAsked(GROUP, member_id, None, epoch, lambda: named, **how)
    return world.group.admit_commit(asked).code


def test_offsets_are_committed_by_the_members_with_the_tasks(world: World) -> None:
    assert commit(world, "", -1, 0) is NONE
    a, b = world.client("a"), world.client("b")
    a.join()
    b.join()
    a.settle()
    b.settle()
    stale, unknown = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, "a", 3, 0) is NONE
    # An earlier epoch, in which it had the task already (KIP-1251).
    assert commit(world, "a", 2, 0) is NONE
    assert commit(world, "a", 2, 2) is stale
    assert commit(world, "b", 2, 2) is stale
    assert commit(world, "b", 4, 2) is stale
    assert commit(world, "c", 3, 0) is unknown
    assert commit(world, "", -1, 0) is unknown
    assert commit(world, "a", 3, 0, version=8) is ErrorCode.UNSUPPORTED_VERSION
    late = commit(world, "a", 2, 2, in_transaction=True)
    assert late is ErrorCode.ILLEGAL_GENERATION
    assert commit(world, "", -1, 0, in_transaction=True) is NONE
    group = world.group
    assert group.fetch_error(None, -1) is group.fetch_error("a", 3) is NONE
    assert (group.fetch_error("a", 2), group.fetch_error("c", 3)) == (stale, unknown)
    assert group.readers() == (NONE, {"t"})


def test_a_late_commit_takes_no_time_for_each_subtopology(world: World) -> None:
    a = world.client("a")
    many = tuple(part(str(n), "t") for n in range(500))
    topology = SIMPLE._replace(subtopologies=many)
    a.join(topology)
    world.client("b").join(topology)
    a.settle()
    (index, *_) = a.owned.active["7"]
    began = time.process_time()
    assert commit(world, "a", 2, *[index] * 20_000) is NONE
    assert time.process_time() - began < 1  # seconds; else: seven


def test_without_a_topology_no_offsets_of_members_are_deleted(world: World) -> None:
    a = world.client("a")
    a.join()
    world.group._state.apply(AnyChange(Kind.TOPOLOGY, "", None))
    assert world.group.readers() == (NONE, None)
    world.ask(a.beats()._replace(epoch=-1))
    assert world.group.readers() == (NONE, frozenset())


def test_c_writes_commits_under_another_number_after_each_change(world: World) -> None:
    a = world.client("a")
    a.join()
    first = world.view.generation_of(GROUP)
    world.client("b").join()
    second = world.view.generation_of(GROUP)
    a.settle()
    assert 0 < first < second < world.view.generation_of(GROUP)


def test_requests_of_the_classic_protocol_are_refused(world: World) -> None:
    world.client("a").join()
    group: Any = world.group
    codes: list[Any] = []
    asked: Any = type("Asked", (), {"member_id": "x"})
    group.join(asked, lambda answer: codes.append(answer.code))
    group.sync(asked, lambda answer: codes.append(answer.code))
    group.retire(codes.append)
    group.leave([asked], lambda answer: codes.append(answer.members))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL, unknown, ErrorCode.NON_EMPTY_GROUP, (unknown,),
    ]  # fmt: skip
    assert group.heartbeat("x", None, 1) is unknown
    assert group.listed()[2:] == ("streams", "streams")


def test_an_empty_group_is_removed(world: World) -> None:
    a = world.client("a")
    a.join()
    codes: list[ErrorCode] = []

    def delete() -> None:
        world.group.delete(codes.append, unless=lambda: False, gone=lambda: None)

    delete()
    world.ask(a.beats()._replace(epoch=-1))
    assert world.group.exists
    delete()
    assert codes == [ErrorCode.NON_EMPTY_GROUP, NONE]
    world.fail_over()
    assert not world.group.exists


def test_a_description_has_the_numbers_that_were_found(world: World) -> None:
    a = world.client("a", "p")
    world.create_missing(a.join(STATEFUL))
    a.settle()
    found = world.group.description()
    assert (found.state, found.epoch, found.assignment_epoch) == (StreamsGroupLabel.STABLE, 3, 3)
    (member,) = found.members
    assert (member.member.process_id, member.assigned, member.target) == ("p", a.owned, a.owned)
    (subtopology,) = found.subtopologies
    assert [each.partitions for each in subtopology.changelogs] == [4]
    assert found.topics == {"t", "store"}


def test_a_large_group_is_written_in_parts() -> None:
    world = World(size_max=10_000)
    world.create(topic_of("t", 1))
    world.client("a").join()
    for n in range(5_000):
        world.log.refuses = NONE
        world.group._state.apply(_member(n))
    world.client("z").join()
    while world.jobs:
        world.jobs.pop()()
    sizes = [
        sum(len(key) + len(value or b"") for key, value in batch) for batch in world.log.batches
    ]
    assert len(sizes) > 2
    assert max(sizes) < 900_000


def _member(n: int) -> AnyChange:
    member_id = f"member-{n}-" + "x" * 90
    image = MemberImage(None, None, "client", "/host", REBALANCE_MS, 0, f"process-{n}")
    return AnyChange(Kind.MEMBER, member_id, image)
