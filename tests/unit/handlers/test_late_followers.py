"""What requests to a group are answered while its writes cannot be replicated.

Such requests (OffsetCommit 9, OffsetFetch 8, SyncGroup 5, LeaveGroup 4, OffsetDelete 0,
DeleteGroups 2) went to an Apache Kafka 4.3.0 on 2026-11-23: one broker, and a second replica of
`__consumer_offsets` that was played, by a registration at the controller, heartbeats, and fetches
of a follower where the high watermark was to move. The codes are those that it answered, after
offsets.commit.timeout.ms, and the offsets those of its answers: with two in sync and a follower
that fetches nothing, and the same with one in sync and min.insync.replicas=2, where it writes in
spite of that.

Ours is: with too few in sync a write is refused at once, with the same code, and nothing is written
(test_waiting_commits.py). Its DeleteGroups waits for the writes before it first; is the time over
by then, the group stays. And it describes and lists a group till the followers have its tombstones.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.coordinator.group._groups import GroupTable
from kbroker.coordinator.group.coordinator import GroupCoordinator
from kbroker.coordinator.group.store import OffsetsStore
from kbroker.errors import ErrorCode
from kbroker.log.opening.loader import Checkpointed
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import OFFSETS_TOPIC, ClusterImage, ImageDelta, TopicImage
from kbroker.replica._replica import Replica
from kbroker.types import ApiKey
from tests.support import schemas
from tests.support.led_log import LedLog, open_led_log
from tests.unit.handlers.support import (
    NODE_ID,
    FakeBroker,
    FakeRequest,
    answer_of,
    part_of,
    request_of,
)
from tests.unit.handlers.test_group_members import join, sync

FOLLOWER = 2
LATE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NothingToLoad:
    def load(self, partition: int, replica: Replica) -> None:
        raise AssertionError("the log is empty")

    def cancel(self, partitions: Sequence[int]) -> None:
        return

    def unload(self, partitions: Sequence[int], count: int) -> None:
        return

    def unloads(self, partition: int, count: int) -> bool:
        return False

    def topic_deleted(self, topic: TopicImage) -> None:
        return


class Coordinating(FakeBroker):
    """Leads the groups' only partition; its follower is where the test has it."""

    def __init__(self, log: LedLog) -> None:
        super().__init__()
        self.log = log
        self.waits: list[Callable[[ErrorCode], object]] = []
        listener = SimpleNamespace(
            wake=lambda replica: None, await_followers=lambda *how: self.waits.append(how[-1])
        )
        table = self.services.offsets = GroupTable(listener)
        store = OffsetsStore(table, NothingToLoad(), lambda *_: log, NODE_ID)
        topic = new_topic_image(OFFSETS_TOPIC, uuid.UUID(int=1), [(NODE_ID,)], {})
        store.follow(ClusterImage().with_topics([topic]), ImageDelta(created=(topic,)))
        self.services.groups = GroupCoordinator(
            lambda: self.config, self.clock, self.timer.call_later, store, table
        )
        self.create("orders")

    def settle(self) -> None:
        """The follower has all there is."""
        self.log.note_fetch(FOLLOWER, self.log.log_end_offset, 1)
        self._end(ErrorCode.NONE)

    def _end(self, code: ErrorCode) -> None:
        waits, self.waits = self.waits, []
        for done in waits:
            done(code)

    def in_time(self, entity: Any) -> Any:
        request = self.ask(entity)
        self.settle()
        return answer_of(request)

    def late(self, entity: Any) -> Any:
        """The answer, which comes when the time is over."""
        request: FakeRequest = self.ask(entity)
        assert request.answer is None
        self._end(LATE)
        return answer_of(request)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Coordinating]:
    log = open_led_log(
        tmp_path / f"{OFFSETS_TOPIC}-0", OFFSETS_TOPIC, 0, uuid.UUID(int=1), {"compacted": True},
        Checkpointed(False, 0, 0),
    )  # fmt: skip
    log.set_leadership(NODE_ID, True, 0, 2, {FOLLOWER: True})
    yield Coordinating(log)
    log.close(clean=False)


def commit(
    group: str, offset: int, name: str = "orders", *, member: str = "", generation: int = -1
) -> Any:
    key = ApiKey.OFFSET_COMMIT
    partition = part_of(
        key, 9, "OffsetCommitRequestPartition", partition_index=0, committed_offset=offset,
        committed_metadata="",
    )  # fmt: skip
    topic = part_of(key, 9, "OffsetCommitRequestTopic", name=name, partitions=(partition,))
    return request_of(
        key,
        9,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=(topic,),
    )


def fetch(group: str, *, stable: bool) -> Any:
    key = ApiKey.OFFSET_FETCH
    topic = part_of(key, 8, "OffsetFetchRequestTopics", name="orders", partition_indexes=(0,))
    named = part_of(key, 8, "OffsetFetchRequestGroup", group_id=group, topics=(topic,))
    return request_of(key, 8, groups=(named,), require_stable=stable)


def delete_offset(group: str, name: str = "orders") -> Any:
    key = ApiKey.OFFSET_DELETE
    partition = part_of(key, 0, "OffsetDeleteRequestPartition", partition_index=0)
    topic = part_of(key, 0, "OffsetDeleteRequestTopic", name=name, partitions=(partition,))
    return request_of(key, 0, group_id=group, topics=(topic,))


def delete(group: str) -> Any:
    return request_of(ApiKey.DELETE_GROUPS, 2, groups_names=(group,))


def leave(group: str, member_id: str) -> Any:
    key = ApiKey.LEAVE_GROUP
    member = part_of(key, 4, "MemberIdentity", member_id=member_id, group_instance_id=None)
    return request_of(key, 4, group_id=group, members=(member,))


def readable_offset(broker: Coordinating, group: str) -> int:
    (answered,) = broker.call(fetch(group, stable=False)).groups
    assert answered.error_code.value == 0
    offset: int = answered.topics[0].partitions[0].committed_offset
    return offset


def test_commits_and_their_answers(broker: Coordinating) -> None:
    broker.in_time(commit("g", 5))
    assert broker.late(commit("g", 6)).topics[0].partitions[0].error_code.value == LATE
    assert readable_offset(broker, "g") == 5
    (answered,) = broker.late(fetch("g", stable=True)).groups
    assert (answered.error_code.value, answered.topics) == (ErrorCode.NOT_COORDINATOR, ())
    (answered,) = broker.in_time(fetch("g", stable=True)).groups
    assert answered.topics[0].partitions[0].committed_offset == 6
    assert readable_offset(broker, "g") == 6


def test_removals(broker: Coordinating) -> None:
    for group in ("g", "h"):
        broker.in_time(commit(group, 5))
    for _ in range(2):
        answered = broker.late(delete_offset("g"))
        assert (answered.error_code.value, answered.topics) == (LATE, ())
        assert readable_offset(broker, "g") == 5
    for group in ("h", "h", "never"):
        (result,) = broker.late(delete(group)).results
        assert result.error_code.value == LATE
    assert readable_offset(broker, "h") == 5
    broker.settle()
    assert (readable_offset(broker, "g"), readable_offset(broker, "h")) == (-1, -1)
    (result,) = broker.call(delete("h")).results
    assert result.error_code.value == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("deletions", [1, 2, 3])
@pytest.mark.parametrize("existed", [True, False])
def test_a_deletion_between_the_check_and_the_write_of_a_commit(
    broker: Coordinating, monkeypatch: pytest.MonkeyPatch, deletions: int, *, existed: bool
) -> None:
    """What is acknowledged after the deletion is of a group that is there, with all that belongs to
    one: it can be listed and deleted."""
    if existed:
        broker.in_time(commit("g", 5))
    check, left = broker.services.groups.check_commit, [deletions]

    def check_and_delete(*args: Any, **more: Any) -> ErrorCode:
        code = check(*args, **more)
        if left[0]:
            left[0] -= 1
            (deleted,) = broker.in_time(delete("g")).results
            assert deleted.error_code.value == ErrorCode.NONE
        return code

    monkeypatch.setattr(broker.services.groups, "check_commit", check_and_delete)
    request = broker.ask(commit("g", 6))
    broker.settle()
    (answered,) = answer_of(request).topics
    code = answered.partitions[0].error_code.value
    assert code == (ErrorCode.NONE if deletions < 3 else LATE)
    assert readable_offset(broker, "g") == (6 if deletions < 3 else -1)
    groups = [it.group_id for it in broker.services.groups.listings()]
    assert groups == ["g"] * (deletions < 3)
    if deletions < 3:
        (deleted,) = broker.in_time(delete("g")).results
        assert deleted.error_code.value == ErrorCode.NONE
        assert readable_offset(broker, "g") == -1


def test_members(broker: Coordinating) -> None:
    member_id = broker.call(join(3)).member_id
    assert broker.late(sync(2, member_id)).error_code.value == LATE
    assert broker.call(join(3, member_id)).error_code.value == ErrorCode.NONE
    assert broker.in_time(sync(2, member_id, 2)).error_code.value == ErrorCode.NONE
    answered = broker.late(leave("g", member_id))
    assert (answered.error_code.value, answered.members) == (LATE, ())


def test_a_batch_that_the_log_never_takes_changes_nothing(broker: Coordinating) -> None:
    """The same Kafka, where max.message.bytes of its topic became 250: -1 for each of these, and
    the group has all its offsets."""
    names = ["orders", "a", "b", "c", "d", "long" * 50]
    broker.create(*names[1:])
    for name in names:
        broker.in_time(commit("g", 5, name))
    member_id = broker.call(join(3, group="j")).member_id
    broker.log.configure(max_message_bytes=250, compacted=True)
    end = broker.log.log_end_offset
    never = ErrorCode.UNKNOWN_SERVER_ERROR
    answered = broker.call(sync(2, member_id, group_id="j", assignment=b"a" * 2000))
    assert answered.error_code.value == never
    assert broker.call(delete_offset("g", names[-1])).error_code.value == never
    (result,) = broker.call(delete("g")).results
    assert result.error_code.value == never
    answered = broker.call(commit("g" * 300, 5))
    assert answered.topics[0].partitions[0].error_code.value == never
    assert broker.log.log_end_offset == end
    assert len(broker.services.offsets.offsets("g")) == len(names)


# --- a group that changes while a commit is between its check and its write ---------------------


def between(
    monkeypatch: pytest.MonkeyPatch, broker: Coordinating, *changes: Callable[[], object]
) -> None:
    """One after the other, each after a check of a commit."""
    check, left = broker.services.groups.check_commit, list(changes)

    def checked(*asked: Any, **how: Any) -> ErrorCode:
        code = check(*asked, **how)
        if left:
            left.pop(0)()
        return code

    monkeypatch.setattr(broker.services.groups, "check_commit", checked)


def error_of(answer: Any) -> int:
    code: int = answer.topics[0].partitions[0].error_code.value
    return code


def stable(broker: Coordinating) -> str:
    member_id: str = broker.call(join(3)).member_id
    assert broker.in_time(sync(2, member_id)).error_code.value == ErrorCode.NONE
    return member_id


def test_a_member_that_is_removed_meanwhile_commits_nothing(
    broker: Coordinating, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = stable(broker)
    between(monkeypatch, broker, lambda: broker.in_time(leave("g", member)))
    answered = broker.in_time(commit("g", 5, member=member, generation=1))
    assert error_of(answered) == ErrorCode.UNKNOWN_MEMBER_ID
    assert readable_offset(broker, "g") == -1


def test_a_member_of_the_generation_before_commits_nothing(
    broker: Coordinating, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = stable(broker)
    again = schemas.request_module(ApiKey.JOIN_GROUP, 3).JoinGroupRequestProtocol
    protocols = (again(name="range", metadata=b"other topics"),)
    between(monkeypatch, broker, lambda: broker.ask(join(3, member, protocols=protocols)))
    answered = broker.in_time(commit("g", 5, member=member, generation=1))
    assert error_of(answered) == ErrorCode.ILLEGAL_GENERATION
    assert readable_offset(broker, "g") == -1


def test_a_group_that_is_deleted_meanwhile_has_no_offsets(
    broker: Coordinating, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = stable(broker)

    def gone() -> None:
        broker.in_time(leave("g", member))
        (deleted,) = broker.in_time(delete("g")).results
        assert deleted.error_code.value == ErrorCode.NONE

    between(monkeypatch, broker, gone)
    answered = broker.in_time(commit("g", 5, member=member, generation=1))
    assert error_of(answered) == ErrorCode.GROUP_ID_NOT_FOUND
    assert broker.services.offsets.offsets("g") == []


def test_offsets_of_no_member_are_refused_when_members_have_come(
    broker: Coordinating, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.in_time(commit("g", 4))
    between(monkeypatch, broker, lambda: stable(broker))
    assert error_of(broker.in_time(commit("g", 5))) == ErrorCode.UNKNOWN_MEMBER_ID
    assert readable_offset(broker, "g") == 4


def test_of_a_group_that_c_does_not_know_python_is_asked_twice(broker: Coordinating) -> None:
    member = stable(broker)
    broker.services.offsets.remove_members("g")
    answered = broker.in_time(commit("g", 5, member=member, generation=1))
    assert (error_of(answered), readable_offset(broker, "g")) == (ErrorCode.NONE, 5)


def test_a_group_that_changes_with_each_look_is_asked_later(
    broker: Coordinating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C gets another generation than the check has seen, three times."""
    member = stable(broker)
    table = broker.services.offsets

    def shows(generation: int) -> None:
        table.publish_members("g", state=3, generation=generation, members=[(member, None)])

    between(monkeypatch, broker, *[partial(shows, 9)] * 3)
    answered = broker.ask(commit("g", 5, member=member, generation=1))
    assert error_of(answer_of(answered)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert readable_offset(broker, "g") == -1
