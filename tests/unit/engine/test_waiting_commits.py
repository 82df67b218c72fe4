"""Writes of groups where the offsets' partition has followers: C's and Python's wait alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.offset_fetch.v8.response import OffsetFetchResponse
from kio.serial import entity_reader

from kbroker.coordinator.runtime._shard_table import Written
from kbroker.errors import ErrorCode
from kbroker.handlers.offset_commit import Answered, response_of
from kbroker.handlers.registry import REGISTRY
from kbroker.types import ApiKey
from tests.unit.engine.following import FOLLOWER, follow, lead, nothing_waits
from tests.unit.engine.test_groups import COMMIT, COMMIT_VERSIONS, GROUP, SHAPES, Beside
from tests.unit.handlers.support import part_of, request_of, written
from tests.unit.net.harness import NODE_ID, Client, eventually, framed, header

FETCH = ApiKey.OFFSET_FETCH
RECORD = [(b"\0\2g", b"\0\3")]


class Replicated(Beside):
    """The real handlers with the compiled path, and a follower that a test moves by hand."""

    def _dispatch(self, request: Any) -> None:
        self.in_python.append(request.reason)
        REGISTRY.dispatch(self.broker.services, request)

    def send(self, version: int, offset: int, client: Client | None = None) -> None:
        request = self.commit(version, {"orders": [(0, offset, "x"), (3, offset, "")]})
        framing = header(COMMIT, version, 7) + written(request)
        (client or self.client).send(framed(framing))

    def answer_of(self, version: int, code: ErrorCode) -> bytes:
        """What such a commit is answered, with its header."""
        key = self.ids["orders"] if version >= 10 else "orders"
        body = response_of([Answered(key, [(0, code), (3, code)])]).encode(version)
        return b"\0\0\0\7" + b"\0" * (version >= 8) + body

    def readable_offset(self) -> int:
        """The offset that OffsetFetch tells of one of its partitions."""
        found = self.table.fetch(
            GROUP, [("orders", (3).to_bytes(4))], flexible=False, leader_epochs=False
        )
        assert found[0] == 0
        return int.from_bytes(found[1][0][1][8:16], signed=True)


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Replicated]:
    made = Replicated(tmp_path)
    lead(made.log)
    yield made
    made.close()


in_both = pytest.mark.parametrize("in_c", [True, False], ids=["C", "Python"])


@in_both
@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_commit_is_answered_and_readable_when_the_follower_has_it(
    beside: Replicated, in_c: bool, version: int
) -> None:
    if in_c:
        beside.show()
    follow(beside.rig, beside.log)
    for offset, before in ((5, -1), (6, 5)):
        end = beside.log.log_end_offset
        beside.send(version, offset)
        beside.rig.wait_parked(1)
        follow(beside.rig, beside.log, end)
        assert beside.rig.hot.statistics()["parked_produces_now"] == 1
        assert not beside.client.has_bytes()
        assert beside.readable_offset() == before
        follow(beside.rig, beside.log)
        assert beside.client.receive() == beside.answer_of(version, ErrorCode.NONE)
        assert beside.readable_offset() == offset
    assert beside.in_python == ([] if in_c else ["group"] * 2)
    nothing_waits(beside.rig)


@in_both
def test_those_passed_are_answered_and_the_others_wait_on(beside: Replicated, in_c: bool) -> None:
    if in_c:
        beside.show()
    clients = [beside.rig.client() for _ in range(4)]
    for number, client in enumerate(clients, start=1):
        beside.send(9, number, client)
        beside.rig.wait_parked(number)
    follow(beside.rig, beside.log, 4)
    for client in clients[:2]:
        assert client.receive() == beside.answer_of(9, ErrorCode.NONE)
    assert beside.readable_offset() == 2
    assert beside.rig.hot.statistics()["parked_now"] == 2
    follow(beside.rig, beside.log)
    for client in clients[2:]:
        assert client.receive() == beside.answer_of(9, ErrorCode.NONE)
    assert beside.readable_offset() == 4


@in_both
@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("led elsewhere", ErrorCode.NOT_COORDINATOR),
        ("led elsewhere in between", ErrorCode.NOT_COORDINATOR),
        ("too late", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("too few", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("the end", ErrorCode.NOT_COORDINATOR),
    ],
)
def test_other_ends_of_the_wait(beside: Replicated, in_c: bool, what: str, code: ErrorCode) -> None:
    if in_c:
        beside.show()
    beside.send(9, 5)
    beside.rig.wait_parked(1)
    if what == "too late":
        beside.rig.expire_all(beside.client)
    elif what == "too few":
        # The follower has it, and leaves the set before the leader knows.
        beside.log.note_fetch(FOLLOWER, beside.log.log_end_offset, 1)
        beside.log.configure(min_insync_replicas=2, compacted=True)
        lead(beside.log, {FOLLOWER: False}, in_sync=1)
        beside.rig.hot.wake(beside.log)
    elif what == "the end":
        beside.rig.hot.close_parked()
    else:
        beside.log.set_leadership(FOLLOWER, False, 1, 1)
        if what == "led elsewhere in between":
            lead(beside.log, epoch=2)
            follow(beside.rig, beside.log)
        beside.rig.hot.wake(beside.log)
    assert beside.client.receive() == beside.answer_of(9, code)
    nothing_waits(beside.rig)


@in_both
def test_with_too_few_in_sync_nothing_is_written(beside: Replicated, in_c: bool) -> None:
    if in_c:
        beside.show()
    beside.log.configure(min_insync_replicas=2, compacted=True)
    lead(beside.log, {FOLLOWER: False}, in_sync=1)
    beside.send(9, 5)
    assert beside.client.receive() == beside.answer_of(9, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert beside.log.log_end_offset == 0


@in_both
def test_a_client_that_goes_leaves_nothing(beside: Replicated, in_c: bool) -> None:
    if in_c:
        beside.show()
    beside.send(9, 5)
    beside.rig.wait_parked(1)
    beside.client.close()
    if in_c:
        eventually(lambda: beside.rig.hot.statistics()["parked_now"] == 0, "it is ended")
    follow(beside.rig, beside.log)
    eventually(lambda: beside.readable_offset() == 5, "its offsets stay")
    eventually(lambda: beside.rig.hot.statistics()["parked_bytes"] == 0, "memory is kept")


def test_a_write_of_python_is_answered_when_the_follower_has_it(beside: Replicated) -> None:
    answer_of: list[int] = []

    def write(number: int) -> None:
        appended = Written()
        code = beside.table.append(0, RECORD, appended)
        beside.table.when_replicated(appended, code, lambda code: answer_of.append(number + code))

    for number in range(100, 2000, 100):
        write(number)
    beside.rig.wait_parked(19)
    assert answer_of == []
    follow(beside.rig, beside.log, 9)
    eventually(lambda: sorted(answer_of) == list(range(100, 1000, 100)), "nine are answered")
    # A callback may write, and wait again.
    appended = Written()
    code = beside.table.append(0, RECORD, appended)
    beside.table.when_replicated(appended, code, lambda code: write(5000))
    follow(beside.rig, beside.log)
    eventually(lambda: len(answer_of) == 19 and beside.log.log_end_offset == 21, "all are answered")
    beside.log.set_leadership(FOLLOWER, False, 1, 1)
    beside.rig.hot.wake(beside.log)
    eventually(lambda: answer_of[19:] == [5000 + ErrorCode.NOT_COORDINATOR], "the last one, too")
    nothing_waits(beside.rig)


def test_stable_offsets_are_answered_when_the_follower_has_them(beside: Replicated) -> None:
    beside.show()
    beside.send(9, 5)
    beside.rig.wait_parked(1)
    asks = [beside.rig.client() for _ in range(2)]
    for number, (client, group) in enumerate(zip(asks, (GROUP, "another"), strict=True), start=2):
        client.send(framed(header(FETCH, 8, 7) + written(stable_fetch(group))))
        beside.rig.wait_parked(number)
    follow(beside.rig, beside.log)
    assert beside.client.receive() == beside.answer_of(9, ErrorCode.NONE)
    for client, offset in zip(asks, (5, -1), strict=True):
        answer, _ = entity_reader(OffsetFetchResponse)(client.receive(), 5)
        ((topic,),) = (answer_of.topics for answer_of in answer.groups)
        assert [each.committed_offset for each in topic.partitions] == [offset]
    nothing_waits(beside.rig)


def stable_fetch(group: str) -> Any:
    topic = part_of(FETCH, 8, "OffsetFetchRequestTopics", name="orders", partition_indexes=(3,))
    named = part_of(FETCH, 8, "OffsetFetchRequestGroup", group_id=group, topics=(topic,))
    return request_of(FETCH, 8, groups=(named,), require_stable=True)


def test_a_handler_that_goes_to_python_again_has_gone_there_once(beside: Replicated) -> None:
    """Or it counts as there for ever, and what needs Python waits until it is back."""
    answer_of: list[ErrorCode] = []

    def write_again(code: ErrorCode) -> None:
        answer_of.append(code)
        if len(answer_of) < 20:
            appended = Written()
            code = beside.table.append(0, RECORD, appended)  # type: ignore[assignment]
            beside.table.when_replicated(appended, code, write_again)
            follow(beside.rig, beside.log)

    write_again(ErrorCode.NONE)
    eventually(lambda: len(answer_of) == 20, "each is answered after the one before")
    beside.send(9, 5)
    beside.rig.wait_parked(1)
    follow(beside.rig, beside.log)
    assert beside.client.receive() == beside.answer_of(9, ErrorCode.NONE)
    assert beside.in_python == ["group"]


def test_without_followers_none_waits(beside: Replicated) -> None:
    beside.log.set_leadership(NODE_ID, True, 1, 1)
    answer_of: list[ErrorCode] = []
    for code in (beside.table.append(0, RECORD, appended := Written()), ErrorCode.NOT_COORDINATOR):
        beside.table.when_replicated(appended, code, answer_of.append)
    assert answer_of == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]
    appended = Written()
    assert beside.table.remove_offsets(GROUP, [("orders", 0)], written=appended) == 0
    beside.table.when_replicated(appended, 0, answer_of.append)
    assert answer_of[2:] == [ErrorCode.NONE]
    beside.show()
    for shape in SHAPES.values():
        beside.ask(beside.commit(9, shape))
    assert beside.rig.hot.statistics()["parked_produces"] == 0
    assert beside.in_python == []


def test_a_commit_that_is_due_on_the_disk_waits_for_both(beside: Replicated) -> None:
    beside.log.configure(flush_messages=1, compacted=True)
    beside.show()
    beside.send(9, 5)
    beside.rig.wait_parked(1)
    assert beside.log.recovery_point == 2
    follow(beside.rig, beside.log)
    assert beside.client.receive() == beside.answer_of(9, ErrorCode.NONE)
