"""Heartbeat and OffsetCommit answered in C, beside the Python handlers: the same bytes.

One table of offsets, one log, twice the same request: once the group is published to C and C
answers, once it is hidden and Python does. A stub decides here who may commit; the reason of a
request says why C passed it on to Python.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kbroker.coordinator.group._groups import CommittedOffset, GroupTable
from kbroker.coordinator.group.messages import Admission, CommitAsked
from kbroker.coordinator.group.states import TABLE, Do, Event, GroupState
from kbroker.errors import ErrorCode
from kbroker.protocol.record_batch import decode_batches
from kbroker.protocol.versions import SERVED, is_flexible
from kbroker.types import ApiKey
from tests.unit.engine.wire import Ask, fetch_frame
from tests.unit.handlers.support import (
    FakeBroker,
    changed,
    part_of,
    request_of,
    written,
)
from tests.unit.net.harness import Client, Rig, framed, header, running

COMMIT, BEAT = ApiKey.OFFSET_COMMIT, ApiKey.HEARTBEAT
COMMIT_VERSIONS = range(2, 11)
BEAT_VERSIONS = range(5)
GROUP, MEMBER, INSTANCE, GENERATION = "readers", "reader-1", "one", 3
MEMBERS = [(MEMBER, None), ("reader-2", INSTANCE)]


class Verdict:
    """In place of the coordinator; gives one answer to all."""

    code = ErrorCode.NONE

    def admit_commit(self, asked: CommitAsked) -> Admission:
        return Admission(self.code, asked.generation)

    def heartbeat(self, *asked: Any) -> ErrorCode:
        return self.code


class Beside:
    """The compiled path on a socket with a shard of its own, and what it passes on."""

    def __init__(self, directory: Path, hot: dict[str, Any] | None = None, **options: Any) -> None:
        self.broker = FakeBroker()
        self.broker.create("orders", "returns", partitions=4)
        self.verdict = Verdict()
        self.broker.services.groups = self.verdict  # type: ignore[assignment]
        self.rig_context = running(directory, hot=hot, **options)
        self.rig: Rig = self.rig_context.__enter__()
        self.table = self.broker.services.offsets = GroupTable(self.rig.hot)
        self.table.set_partition_count(1)
        self.rig.hot.serve_groups(self.table)
        for key in (COMMIT, BEAT):
            self.rig.server.set_hot(key, SERVED[key].min, SERVED[key].max)
        self.ids = {name: self.rig.create(name, 4).topic_id for name in ("orders", "returns")}
        image = self.broker.controller.image
        self.broker.controller.image = image.with_topics(
            changed(image.topics[name], topic_id=topic_id) for name, topic_id in self.ids.items()
        )
        self.log = self.rig.create("__consumer_offsets", internal=True, compacted=True).logs[0]
        self.table.open(0, self.log)
        self.table.activate(0)
        self.in_python: list[Any] = []
        self.rig.dispatch = self._dispatch
        self.client: Client = self.rig.client()

    def _dispatch(self, request: Any) -> None:
        self.in_python.append(request.reason)
        twin = self.broker.send(request.api_key, request.api_version, request.body)
        if twin.answer is None:
            request.close_connection("as Python says")
        else:
            request.respond(twin.answer)

    def show(self, state: int = GroupState.STABLE, generation: int = GENERATION) -> None:
        self.table.publish_members(GROUP, state=state, generation=generation, members=MEMBERS)

    def ask(self, entity: Any) -> bytes:
        """The body of the answer."""
        self.in_python.clear()
        key, version = entity.__api_key__, entity.__version__
        self.client.send(framed(header(key, version, 7) + written(entity)))
        answer = self.client.receive()
        head = struct.pack(">i", 7) + b"\0" * is_flexible(key, version)
        assert answer.startswith(head)
        return answer[len(head) :]

    def commit(
        self, version: int, topics: dict[str, list[tuple[int, int, str | None]]], **fields: Any
    ) -> Any:
        """A request; by default of the member."""
        made = []
        for name, partitions in topics.items():
            parts = []
            for index, offset, metadata in partitions:
                epoch = {"committed_leader_epoch": 5} if version >= 6 else {}
                parts.append(
                    part_of(
                        COMMIT, version, "OffsetCommitRequestPartition", partition_index=index,
                        committed_offset=offset, committed_metadata=metadata, **epoch,
                    )
                )  # fmt: skip
            named = {"topic_id": self.ids[name]} if version >= 10 else {"name": name}
            made.append(
                part_of(
                    COMMIT, version, "OffsetCommitRequestTopic", partitions=tuple(parts), **named
                )
            )
        asked = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": GENERATION,
            "member_id": MEMBER,
            "topics": tuple(made),
        } | fields
        return request_of(COMMIT, version, **asked)

    def beat(self, version: int, **fields: Any) -> Any:
        asked = {"group_id": GROUP, "generation_id": GENERATION, "member_id": MEMBER} | fields
        return request_of(BEAT, version, **asked)

    def written_last(self) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values of the last batch, without the times in the values."""
        last = list(decode_batches(self.log.read(0)))[-1]
        return [(each.key, _untimed(each.value or b"")) for each in last.records]

    def close(self) -> None:
        self.table.close(0)
        self.rig_context.__exit__(None, None, None)


def _untimed(value: bytes) -> bytes:
    """An offset commit's value (version 1 or 4) without its times."""
    if value[:2] == b"\0\1":
        return value[:-16]
    length, at = value[14], 15  # after version, offset and leader epoch: the text's length + 1
    if length & 0x80:
        length, at = length & 0x7F | value[15] << 7, 16
    at += length - 1
    return value[:at] + value[at + 8 :]


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    yield made
    made.close()


Shape = dict[str, list[tuple[int, int, str | None]]]
SHAPES: dict[str, Shape] = {
    "one": {"orders": [(0, 5, "")]},
    "null text": {"orders": [(0, 5, None)]},
    "texts": {"orders": [(1, 5, "a"), (0, 6, "b" * 4096), (3, 2**62, "")]},
    "one twice": {"orders": [(1, 5, "a"), (1, 6, "b")]},
    "two topics": {"orders": [(1, 5, "a")], "returns": [(0, 1, ""), (2, -7, "x")]},
}


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
@pytest.mark.parametrize("shape", list(SHAPES))
def test_commits_are_answered_and_written_as_python_does(
    beside: Beside, version: int, shape: str
) -> None:
    request = beside.commit(version, SHAPES[shape])
    beside.show()
    before = beside.rig.hot.statistics()["commit_requests"]
    in_c = beside.ask(request)
    assert beside.in_python == []
    assert beside.rig.hot.statistics()["commit_requests"] == before + 1
    known, records = _known(beside), beside.written_last()
    beside.table.delete_group(GROUP)
    assert beside.ask(request) == in_c
    assert beside.in_python == ["group"]
    assert _known(beside) == known
    assert beside.written_last() == records


def test_a_commit_is_on_the_disk_where_that_is_asked_for(beside: Beside) -> None:
    beside.log.configure(flush_messages=1, compacted=True)
    beside.show()
    for count in (1, 2, 3):
        beside.ask(beside.commit(9, SHAPES["one"]))
        assert beside.in_python == []
        assert beside.log.recovery_point == beside.log.high_watermark == count
    beside.table.delete_group(GROUP)
    written = beside.log.log_end_offset
    assert beside.log.recovery_point == written
    beside.ask(beside.commit(9, SHAPES["one"]))
    assert beside.in_python == ["group"]
    assert beside.log.recovery_point == beside.log.high_watermark == written + 1


def _known(beside: Beside) -> list[CommittedOffset]:
    return [each._replace(commit_ms=0, expire_ms=0) for each in beside.table.offsets(GROUP)]


def test_a_retention_is_kept_with_the_offset(beside: Beside) -> None:
    beside.show()
    for version in range(2, 5):
        beside.ask(beside.commit(version, SHAPES["one"], retention_time=timedelta(minutes=1)))
        assert beside.in_python == []
        (offset,) = beside.table.offsets(GROUP)
        assert offset.expire_ms == offset.commit_ms + 60_000
        assert offset.topic_id is not None  # in memory: the record has no place for it
        assert offset.leader_epoch == -1


@pytest.mark.parametrize("published", [True, False])
def test_a_retention_as_long_as_can_be_said_has_no_end(beside: Beside, published: bool) -> None:
    if published:
        beside.show()
    asked = written(beside.commit(3, SHAPES["one"], retention_time=timedelta(hours=12345)))
    longest = asked.replace(struct.pack(">q", 12345 * 3_600_000), struct.pack(">q", 2**63 - 1))
    beside.client.send(framed(header(COMMIT, 3, 7) + longest))
    assert beside.client.receive()[-2:] == bytes(2)  # the one partition has no error
    assert beside.in_python == ([] if published else ["group"])
    (offset,) = beside.table.offsets(GROUP)
    assert offset.expire_ms == 2**63 - 1


@pytest.mark.parametrize("version", [7, 9, 10])
@pytest.mark.parametrize("state", list(GroupState))
def test_which_states_take_a_member_s_commit(beside: Beside, version: int, state: int) -> None:
    beside.show(state)
    beside.ask(beside.commit(version, SHAPES["one"]))
    cell = TABLE[GroupState(state), Event.COMMIT]
    # An empty group has no members: its cell is about commits of no member.
    takes = cell.do is Do.ANSWER and state != GroupState.EMPTY
    assert beside.in_python == ([] if takes else ["group"])


def test_clients_without_a_member_commit_to_an_empty_group(beside: Beside) -> None:
    beside.table.publish_members(GROUP, state=GroupState.EMPTY, generation=3, members=[])
    asked = {"generation_id_or_member_epoch": -1, "member_id": ""}
    beside.ask(beside.commit(9, SHAPES["one"], **asked))
    assert beside.in_python == []
    beside.show()
    beside.ask(beside.commit(9, SHAPES["one"], **asked))
    assert beside.in_python == ["group"]


ODD: dict[str, dict[str, Any]] = {
    "another generation": {"generation_id_or_member_epoch": GENERATION + 1},
    "no generation": {"generation_id_or_member_epoch": -1},
    "another member": {"member_id": "reader-3"},
    "no member": {"member_id": ""},
    "an instance that it is not": {"group_instance_id": INSTANCE},
    "another instance": {"member_id": "reader-2", "group_instance_id": "two"},
    "another group": {"group_id": "others"},
    "a name that is not ASCII": {"group_id": "gr\u00fc\u00dfe"},
}


@pytest.mark.parametrize("odd", list(ODD))
def test_requests_that_are_not_plainly_right_are_for_python(beside: Beside, odd: str) -> None:
    beside.show()
    beside.verdict.code = ErrorCode.FENCED_INSTANCE_ID
    answer = beside.ask(beside.commit(9, SHAPES["one"], **ODD[odd]))
    assert beside.in_python == ["group"]
    assert struct.pack(">h", 82) in answer
    fields = dict(ODD[odd])
    if "generation_id_or_member_epoch" in fields:
        fields["generation_id"] = fields.pop("generation_id_or_member_epoch")
    beside.ask(beside.beat(4, **fields))
    assert beside.in_python == ["group"]
    assert beside.log.log_end_offset == 0


def test_the_instance_of_a_static_member_is_known(beside: Beside) -> None:
    beside.show()
    who = {"member_id": "reader-2", "group_instance_id": INSTANCE}
    beside.ask(beside.commit(9, SHAPES["one"], **who))
    assert beside.in_python == []
    beside.ask(beside.beat(4, **who))
    assert beside.in_python == []


def test_partitions_that_are_not_there_and_long_texts_are_for_python(beside: Beside) -> None:
    beside.show()
    beside.ask(beside.commit(9, {"orders": [(0, 9, "")], "returns": []}))
    assert beside.in_python == ["group"]
    for shape in ([(4, 1, "")], [(-1, 1, "")], [(0, 1, "x" * 4097)], [(0, 1, "\u00fc")]):
        beside.ask(beside.commit(9, {"orders": [(0, 9, ""), *shape]}))
        assert beside.in_python == ["group"]
    beside.ask(beside.commit(9, {"gone": [(0, 9, "")]}))
    assert beside.in_python == ["group"]


def test_a_shard_that_is_not_ours_is_for_python(beside: Beside) -> None:
    beside.show()
    beside.table.open(0, beside.log)  # loading
    beside.show()
    for request in (beside.commit(9, SHAPES["one"]), beside.beat(4)):
        beside.ask(request)
        assert beside.in_python == ["group"]
    beside.table.close(0)
    for request in (beside.commit(9, SHAPES["one"]), beside.beat(4)):
        beside.ask(request)
        assert beside.in_python == ["group"]
    assert beside.log.log_end_offset == 0


def test_a_log_that_refuses_is_for_python(beside: Beside) -> None:
    beside.show()
    beside.log.set_leadership(2, False, 1, 1)
    answer = beside.ask(beside.commit(9, SHAPES["one"]))
    assert beside.in_python == ["group"]
    assert struct.pack(">h", ErrorCode.NOT_COORDINATOR) in answer
    assert beside.table.offsets(GROUP) == []


@pytest.mark.parametrize("version", BEAT_VERSIONS)
@pytest.mark.parametrize("state", list(GroupState))
def test_heartbeats_in_every_state(beside: Beside, version: int, state: int) -> None:
    cells = {each: TABLE[each, Event.HEARTBEAT] for each in GroupState}
    codes = {each: cell.code for each, cell in cells.items() if cell.do is Do.ANSWER}
    beside.show(state)
    beside.verdict.code = codes.get(GroupState(state), ErrorCode.UNKNOWN_MEMBER_ID)
    request = beside.beat(version)
    answer = beside.ask(request)
    assert beside.in_python == ([] if state in codes else ["group"])
    last_ms = beside.table.last_heard_ms(GROUP, MEMBER)
    assert (last_ms > 0) == (state in codes)
    beside.table.remove_members(GROUP)
    assert beside.ask(request) == answer
    assert beside.in_python == ["group"]


def test_commits_renew_a_member_too(beside: Beside) -> None:
    beside.show()
    beside.table.set_clock_shift_ms(3_600_000)
    beside.ask(beside.commit(9, SHAPES["one"]))
    last_ms = beside.table.last_heard_ms(GROUP, MEMBER)
    assert last_ms > 3_600_000
    assert beside.table.last_heard_ms(GROUP, "reader-2") == 0
    beside.show(GroupState.PREPARING_REBALANCE, GENERATION + 1)
    assert beside.table.last_heard_ms(GROUP, MEMBER) == last_ms


def test_bytes_that_do_not_parse_are_for_python(beside: Beside) -> None:
    beside.show()
    for key, version, body in (
        (COMMIT, 9, written(beside.commit(9, SHAPES["texts"]))),
        (COMMIT, 2, written(beside.commit(2, SHAPES["two topics"]))),
        (BEAT, 4, written(beside.beat(4))),
    ):
        for cut in range(len(body)):
            client = beside.rig.client()
            client.send(framed(header(key, version) + body[:cut]))
            assert client.ended()
            client.close()
    assert beside.log.log_end_offset == 0


def test_fetches_that_wait_at_the_log_are_answered(beside: Beside) -> None:
    beside.show()
    topic = beside.rig.topics["__consumer_offsets"]
    for commit in (
        lambda: beside.ask(beside.commit(9, SHAPES["one"])),
        lambda: beside.table.commit(GROUP, beside.table.offsets(GROUP)),
    ):
        reader = beside.rig.client()
        offset = beside.log.log_end_offset
        reader.send(fetch_frame(12, [Ask(topic, 0, offset)], max_wait_ms=600_000))
        beside.rig.wait_parked(1)
        commit()
        assert len(reader.receive()) > 61


def test_many_at_once_leave_memory_and_log_agreed(tmp_path: Path) -> None:
    """Commits of many connections, members published again and offsets removed beside them."""
    beside = Beside(tmp_path, handlers=4, processors=2)
    rounds, clients, errors = 150, 8, []

    def commits(number: int) -> None:
        client = beside.rig.client()
        for offset in range(rounds):
            shape: Shape = {
                "orders": [(number % 4, offset, "x" * (offset % 30))],
                "returns": [(0, offset, "")],
            }
            client.send(framed(header(COMMIT, 9, offset) + written(beside.commit(9, shape))))
            client.send(framed(header(BEAT, 4, offset) + written(beside.beat(4))))
            for _ in range(2):
                if struct.unpack(">i", client.receive()[:4])[0] != offset:
                    errors.append(number)

    beside.show()
    done = threading.Event()

    def disturbs() -> None:
        while not done.is_set():
            beside.show()
            beside.table.remove_offsets(GROUP, [("returns", 0), ("orders", 1)])
            beside.table.statistics(0)
            beside.table.remove_members(GROUP)

    threads = [threading.Thread(target=commits, args=(number,)) for number in range(clients)]
    disturber = threading.Thread(target=disturbs)
    for thread in (*threads, disturber):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    disturber.join()
    assert not errors
    again = GroupTable()
    again.set_partition_count(1)
    again.open(0, beside.log)
    at = 0
    while at < beside.log.log_end_offset:
        _, at, others, _ = again.load_batches(0, beside.log.read(at))
        assert others == []
    assert again.offsets(GROUP) == beside.table.offsets(GROUP)
    assert beside.table.offset(GROUP, "orders", 0).offset == rounds - 1  # type: ignore[union-attr]
    beside.close()


def test_a_commit_without_memory_is_not_answered_as_one_that_is_kept(tmp_path: Path) -> None:
    """Python tries once more; without memory there, too, the client gets an error."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.unit.engine.commits_child", str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    found = [json.loads(line) for line in run.stdout.splitlines()]
    no_memory = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert found == [[0, 5], [0, 9], [no_memory, 9], [0, 15]], run.stderr
