"""The store and the loader over real logs and the real table: what is written is found again."""

from __future__ import annotations

import base64
import struct
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.coordinator.group._groups import CommittedOffset, GroupTable
from kbroker.coordinator.group.images import GroupImage, MemberImage
from kbroker.coordinator.group.machine import GroupMachine
from kbroker.coordinator.group.store import OffsetsStore
from kbroker.coordinator.runtime._shard_table import ACTIVE, LOADING, NOT_OWNER, partition_for
from kbroker.coordinator.runtime.loader import Loader
from kbroker.errors import ErrorCode
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import OFFSETS_TOPIC, ClusterImage, ImageDelta, TopicImage
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import build_batch
from tests.unit.coordinator.tables import Listener
from tests.unit.net.harness import eventually

TOPIC_ID, ORDERS, OTHER_ORDERS = (uuid.UUID(int=each) for each in (0x42, 0x43, 0x44))
COUNT, NODE, ELSEWHERE = 4, 1, 2
MEMBER = MemberImage("m-1", "i-1", "c", "/127.0.0.1", 60_000, 45_000, b"sub", b"assigned")

# A log that an Apache Kafka 4.3.0 wrote for a group with one static member that committed three
# offsets, and left: six batches.
KAFKA_LOG = base64.b64decode(
    "AAAAAAAAAAAAAABcAAAAAALheyB9AAAAAAAAAAABogBEe88AAAGiAER7z/////////////8AAAAAAAAAAVQAAAAY"
    "AAIACGctc3RhdGljMAADAAAAAAAA/////wAAAaIARHvPAAAAAAAAAAAAAAAAAQAAASoAAAAAAqVps+cAAAAAAAAA"
    "AAGiAER70gAAAaIARHvS/////////////wAAAAAAAAAB7gMAAAAYAAIACGctc3RhdGljyAMAAwAIY29uc3VtZXIA"
    "AAABAAVyYW5nZQAraW5zdC0xLTFhMjU1NmMxLTA0M2YtNGE4YS04ZjVhLWU0NTE1N2EwMDQ0NQAAAaIARHvQAAAA"
    "AQAraW5zdC0xLTFhMjU1NmMxLTA0M2YtNGE4YS04ZjVhLWU0NTE1N2EwMDQ0NQAGaW5zdC0xAANjbGkACi8xMjcu"
    "MC4wLjEAACMoAAAbWAAAABwAAwAAAAEABm9yZGVycwAAAAAAAAAA/////wAAAAAAIgAAAAAAAQAGb3JkZXJzAAAA"
    "AwAAAAAAAAABAAAAAgAAAAAAAAAAAAAAAAIAAAEqAAAAAAKpnDM8AAAAAAACAAABogBEfEAAAAGiAER8QP//////"
    "//////8AAAAAAAAAA6IBAAAAMAABAAhnLXN0YXRpYwAGb3JkZXJzAAAAAGYABAAAAAAAAAAK/////wpoZWxsbyDD"
    "qQAAAAGiAER8QAEAEPLASwNv/0MHh/ivnRwdig8AogEAAAIwAAEACGctc3RhdGljAAZvcmRlcnMAAAABZgAEAAAA"
    "AAAAAAr/////CmhlbGxvIMOpAAAAAaIARHxAAQAQ8sBLA2//QweH+K+dHB2KDwCiAQAABDAAAQAIZy1zdGF0aWMA"
    "Bm9yZGVycwAAAAJmAAQAAAAAAAAACv////8KaGVsbG8gw6kAAAABogBEfEABABDywEsDb/9DB4f4r50cHYoPAAAA"
    "AAAAAAAFAAAAZAAAAAACskiZWgAAAAAAAAAAAaIARJelAAABogBEl6X/////////////AAAAAAAAAAFkAAAAGAAC"
    "AAhnLXN0YXRpY0AAAwAIY29uc3VtZXIAAAAC/////wAAAaIARJekAAAAAAA="
)


class Groups:
    """In place of the coordinator."""

    def __init__(self) -> None:
        self.loaded: list[GroupImage] = []
        self.ensured: list[str] = []
        self.others: dict[str, object] = {}  # of other kinds
        self.find = self.others.get
        self.lost: list[Callable[[str], bool]] = []

    def load(self, images: Sequence[GroupImage]) -> None:
        self.loaded += images

    def ensure_group(self, group_id: str) -> None:
        self.ensured.append(group_id)

    def unload(self, lost: Callable[[str], bool]) -> None:
        self.lost.append(lost)


class Node:
    """The parts of one broker's start."""

    def __init__(
        self,
        path: Path,
        *,
        buffer_bytes: int = 1 << 20,
        topics: dict[str, uuid.UUID] | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.logs = LedLogManager([path])
        self.logs.start()
        self.table = GroupTable(listener)
        self.groups = Groups()
        ids = {} if topics is None else {name: each.bytes for name, each in topics.items()}
        self.clock = ManualClock()
        self.machine = GroupMachine(self.table, None if topics is None else ids.get)
        self.machine.attach(self.groups)
        self.loader = Loader(self.table, self.machine, self.clock, buffer_bytes=buffer_bytes)
        self.open: dict[int, LedLog] = {}
        self.later: list[Callable[[], None]] = []
        self.store = OffsetsStore(
            self.table, self.loader, lambda _, index: self.open.get(index), NODE, self.later.append
        )

    def lead(self, *leaders: int, followers: Sequence[int] = ()) -> None:
        """The topic appears, or its leaders change; the followers are in sync."""
        first = not self.open
        topic = new_topic_image(OFFSETS_TOPIC, TOPIC_ID, [(leader,) for leader in leaders], {})
        for partition in topic.partitions:
            if partition.index not in self.open:
                self.open[partition.index] = self.logs.open(
                    OFFSETS_TOPIC, partition.index, TOPIC_ID, {}
                )
            log = self.open[partition.index]
            log.set_leadership(
                partition.leader, partition.leader == NODE, 0, 1 + len(followers),
                dict.fromkeys(followers, True),
            )  # fmt: skip
        delta = ImageDelta(created=(topic,)) if first else ImageDelta(changed=(topic,))
        self.store.follow(ClusterImage().with_topics([topic]), delta)

    def delete(self, topic: TopicImage) -> None:
        self.store.follow(ClusterImage(), ImageDelta(deleted=(topic,)))

    def states(self) -> list[int]:
        return [self.table.shard_state(index) for index in range(COUNT)]

    def has_one_offset(self) -> bool:
        return len(self.table.offsets("g")) == 1

    def await_load(self) -> None:
        eventually(lambda: self.states() == [ACTIVE] * COUNT, "everything is loaded")

    def write(self, image: GroupImage, incarnation: int = 1) -> ErrorCode:
        answers: list[ErrorCode] = []
        self.store.write_group(image, incarnation, answers.append)
        (code,) = answers
        return code

    def stop(self) -> None:
        self.loader.stop()
        self.logs.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    with nodes_of(tmp_path) as make:
        yield make


@contextmanager
def nodes_of(path: Path) -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def make(**settings: int) -> Node:
        if nodes:
            nodes[-1].stop()
        nodes.append(Node(path / "data", **settings))
        return nodes[-1]

    yield make
    if nodes:
        nodes[-1].stop()


def image(group_id: str, generation: int = 1, *members: MemberImage) -> GroupImage:
    return GroupImage(group_id, "consumer", generation, "range", "m-1", 5, members)


def offset(
    topic: str, partition: int, at: int, topic_id: uuid.UUID | None = None, expire_ms: int = -1
) -> CommittedOffset:
    raw = None if topic_id is None else topic_id.bytes
    return CommittedOffset(topic, partition, at, -1, "note", 1_000, expire_ms, raw)


def test_before_the_topic_there_is_no_coordinator(start: Callable[..., Node]) -> None:
    node = start()
    assert node.store.state_of("g") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert node.write(image("g")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    answers: list[ErrorCode] = []
    node.store.delete_group("g", lambda: answers.append(ErrorCode.NONE), answers.append)
    node.store.when_settled("g", answers.append)
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2


def test_empty_partitions_are_active_at_once(start: Callable[..., Node]) -> None:
    node = start()
    node.lead(NODE, NODE, ELSEWHERE, NODE)
    assert node.states() == [ACTIVE, ACTIVE, NOT_OWNER, ACTIVE]
    groups = {partition_for(f"g{number}", COUNT): f"g{number}" for number in range(50)}
    assert node.store.state_of(groups[0]) is ErrorCode.NONE
    assert node.store.state_of(groups[2]) is ErrorCode.NOT_COORDINATOR
    assert node.write(image(groups[2])) is ErrorCode.NOT_COORDINATOR


def test_written_records_are_loaded_after_the_ready_line(start: Callable[..., Node]) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.write(image("g1", 3, MEMBER)) is ErrorCode.NONE
    assert node.write(image("g2", 1)) is ErrorCode.NONE
    assert node.write(image("g1", 4, MEMBER)) is ErrorCode.NONE
    assert node.write(image("gone", 1)) is ErrorCode.NONE
    assert node.table.commit("g1", [offset("orders", 0, 7), offset("orders", 1, 8)]) == 0
    assert node.table.commit("simple", [offset("orders", 0, 9)]) == 0
    assert node.table.commit("gone", [offset("orders", 0, 1)]) == 0
    node.store.delete_group("gone", lambda: None, lambda code: None)
    for buffer_bytes in (1, 1 << 20):  # a batch a piece, and all at once
        node = start(buffer_bytes=buffer_bytes)
        node.lead(*[NODE] * COUNT)
        assert node.store.state_of("g1") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert node.write(image("g1", 5)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        node.loader.start()
        node.await_load()
        assert sorted(node.groups.loaded) == [image("g1", 4, MEMBER), image("g2", 1)]
        assert set(node.groups.ensured) >= {"simple"}
        assert "gone" not in node.groups.ensured
        assert [each.offset for each in node.table.offsets("g1")] == [7, 8]
        assert node.table.offsets("gone") == []
        assert node.table.offset("simple", "orders", 0) == offset("orders", 0, 9)


def test_a_late_write_of_a_group_that_is_gone_is_refused(start: Callable[..., Node]) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    log = node.open[partition_for("g", COUNT)]
    assert node.write(image("g", 6), incarnation=7) is ErrorCode.NONE
    assert node.write(image("g", 7, MEMBER), incarnation=6) is ErrorCode.NOT_COORDINATOR
    assert log.log_end_offset == 1
    node.store.delete_group("g", lambda: None, lambda code: None)
    assert node.write(image("g", 1), incarnation=9) is ErrorCode.NONE
    assert log.log_end_offset == 3


def test_the_first_writes_of_a_group_that_was_made_anew_are_in_the_log(
    start: Callable[..., Node],
) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    log = node.open[partition_for("g", COUNT)]
    assert node.write(image("g", 6), incarnation=1) is ErrorCode.NONE
    assert node.write(image("g", 1, MEMBER), incarnation=2) is ErrorCode.NONE
    assert log.log_end_offset == 2
    again = start()
    again.lead(*[NODE] * COUNT)
    again.loader.start()
    again.await_load()
    assert again.groups.loaded == [image("g", 1, MEMBER)]


def test_a_new_leader_loads_records_that_its_followers_do_not_have_yet(
    start: Callable[..., Node],
) -> None:
    """Above the high watermark there is what the leader before may have promised."""
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.write(image("g", 3, MEMBER)) is ErrorCode.NONE
    assert node.table.commit("g", [offset("orders", 0, 7)]) == 0
    again = start()
    again.lead(*[ELSEWHERE] * COUNT)
    for log in again.open.values():
        log.set_high_watermark(0)
    again.lead(*[NODE] * COUNT, followers=[ELSEWHERE])
    assert {log.high_watermark for log in again.open.values()} == {0}
    again.loader.start()
    again.await_load()
    assert again.groups.loaded == [image("g", 3, MEMBER)]
    assert again.table.offset("g", "orders", 0) == offset("orders", 0, 7)


def test_a_deletion_is_in_the_log_before_the_followers_have_it(start: Callable[..., Node]) -> None:
    node = start(listener=(listener := Listener()))
    node.lead(*[NODE] * COUNT, followers=[ELSEWHERE])
    results: list[object] = []
    node.store.delete_group("g", lambda: results.append("in the log"), results.append)
    node.store.when_settled("g", results.append)
    assert (results, len(listener.waits)) == (["in the log"], 2)
    log = node.open[partition_for("g", COUNT)]
    log.note_fetch(ELSEWHERE, log.log_end_offset, 0)
    node.store.when_settled("g", results.append)
    assert results == ["in the log", ErrorCode.NONE]
    assert len(listener.waits) == 2


def test_a_partition_that_is_led_elsewhere_in_the_middle_of_its_load_is_no_damage(
    start: Callable[..., Node], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.write(image("g")) is ErrorCode.NONE
    node = start()
    node.lead(*[NODE] * COUNT)
    read, reads = LedLog.read, threading.Event()

    def lost(log: LedLog, *where: int, **how: bool) -> bytes:
        log.set_leadership(ELSEWHERE, False, 1, 1)
        reads.set()
        return read(log, *where, **how)

    monkeypatch.setattr(LedLog, "read", lost)
    node.loader.start()
    assert reads.wait(60)
    node.lead(*[ELSEWHERE] * COUNT)
    eventually(lambda: node.groups.lost, "the coordinator is notified")
    assert node.states() == [NOT_OWNER] * COUNT
    assert "cannot be read" not in caplog.text


def test_a_partition_that_is_lost_takes_its_groups_along(start: Callable[..., Node]) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    node.loader.start()
    mine = [f"g{number}" for number in range(20)]
    for group_id in mine:
        assert node.table.commit(group_id, [offset("orders", 0, 1)]) == 0
    node.lead(NODE, ELSEWHERE, NODE, NODE)
    assert node.states() == [ACTIVE, NOT_OWNER, ACTIVE, ACTIVE]
    eventually(lambda: node.groups.lost, "the coordinator is notified")
    (lost,) = node.groups.lost
    assert {g for g in mine if lost(g)} == {g for g in mine if partition_for(g, COUNT) == 1}
    node.lead(NODE, NODE, NODE, NODE)
    eventually(lambda: node.states() == [ACTIVE] * COUNT, "loaded again")
    assert all(node.table.offset(group_id, "orders", 0) is not None for group_id in mine)


def test_the_topic_itself_may_be_deleted(start: Callable[..., Node]) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    node.delete(new_topic_image(OFFSETS_TOPIC, TOPIC_ID, [(NODE,)], {}))
    assert node.store.state_of("g") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert node.table.partition_count == 0


def test_more_partitions_give_every_group_its_new_place(start: Callable[..., Node]) -> None:
    node = start()
    node.lead(NODE, NODE)
    node.loader.start()
    assert node.write(image("g1", 1)) is ErrorCode.NONE
    node.lead(*[NODE] * COUNT)
    assert node.table.partition_count == COUNT
    eventually(lambda: node.states() == [ACTIVE] * COUNT, "loaded again")
    assert node.write(image("g2", 1)) is ErrorCode.NONE
    assert node.open[partition_for("g2", COUNT)].log_end_offset >= 1


def test_a_deleted_topic_takes_its_offsets_along(start: Callable[..., Node]) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    node.loader.start()
    assert node.table.commit("g", [offset("orders", 0, 5, ORDERS), offset("orders", 1, 6)]) == 0
    assert node.table.commit("g", [offset("other", 0, 7, OTHER_ORDERS)]) == 0
    assert node.table.commit("late", [offset("orders", 0, 9, OTHER_ORDERS)]) == 0
    node.delete(new_topic_image("orders", ORDERS, [(NODE,)], {}))
    eventually(lambda: len(node.table.offsets("g")) == 1, "the offsets are gone")
    # Of the topic that has the name now:
    assert node.table.offset("late", "orders", 0) is not None
    again = start()
    again.lead(*[NODE] * COUNT)
    again.loader.start()
    eventually(lambda: again.states() == [ACTIVE] * COUNT, "loaded")
    assert [each.topic for each in again.table.offsets("g")] == ["other"]


@pytest.mark.parametrize("again_there", [False, True])
def test_a_topic_deleted_right_before_a_stop_leaves_no_offsets(
    start: Callable[..., Node], again_there: bool
) -> None:
    """Forgetting is queued, and the queue does not outlive a stop."""
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.table.commit("g", [offset("orders", 0, 5, ORDERS), offset("orders", 1, 6)]) == 0
    assert node.table.commit("g", [offset("other", 0, 7, TOPIC_ID)]) == 0
    assert node.table.commit("late", [offset("orders", 0, 9, OTHER_ORDERS)]) == 0
    topics = {"other": TOPIC_ID} | ({"orders": OTHER_ORDERS} if again_there else {})
    for _ in range(2):  # what was forgotten stays so
        again = start(topics=topics)
        again.lead(*[NODE] * COUNT)
        again.loader.start()
        again.await_load()
        eventually(again.has_one_offset, "only the other topic's")
        assert bool(again.table.offsets("late")) is again_there


class CommittedMeanwhile:
    """The table, where another client commits right before offsets are removed."""

    def __init__(self, table: GroupTable, *commit: CommittedOffset) -> None:
        self._table = table
        self._commit = commit

    def __getattr__(self, name: str) -> object:
        return getattr(self._table, name)

    def remove_offsets(self, group_id: str, *args: object, **settings: object) -> object:
        assert self._table.commit(group_id, self._commit) == 0
        return self._table.remove_offsets(group_id, *args, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("stopped", [False, True])
def test_commits_for_the_new_topic_stay_when_the_old_one_is_forgotten(
    start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """Also where the clock has gone back since the old one's commits."""
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.table.commit("g", [offset("orders", 0, 5, ORDERS), offset("orders", 1, 6)]) == 0
    assert node.table.commit("g", [offset("other", 0, 7, TOPIC_ID)]) == 0
    if stopped:
        node = start(topics={"orders": OTHER_ORDERS, "other": TOPIC_ID})
        node.lead(*[NODE] * COUNT)
    later = offset("orders", 0, 1, OTHER_ORDERS)._replace(commit_ms=900)
    monkeypatch.setattr(node.machine, "_table", CommittedMeanwhile(node.table, later))
    if not stopped:
        node.delete(new_topic_image("orders", ORDERS, [(NODE,)], {}))
    node.loader.start()
    node.await_load()  # of three offsets two are there before the third
    eventually(lambda: len(node.table.offsets("g")) == 2, "the offsets of the old one are gone")
    assert node.table.offset("g", "orders", 0) == later
    node.loader.stop()
    assert node.table.offset("g", "orders", 0) == later


@pytest.mark.parametrize("expire_ms", [-1, 1 << 50])
def test_offsets_of_another_topic_of_the_same_name_are_not_there(
    start: Callable[..., Node], expire_ms: int
) -> None:
    """The record of an offset with a time of its own has no place for the id; we know it."""
    node = start()
    node.lead(*[NODE] * COUNT)
    of_both = [offset("orders", 0, 5, ORDERS, expire_ms), offset("orders", 1, 6, None, expire_ms)]
    assert node.table.commit("g", of_both) == 0
    fetch = partial(node.table.fetch, "g", flexible=False, leader_epochs=False)
    wanted = [("orders", bytes(4))]
    for now, there in ((ORDERS, True), (OTHER_ORDERS, False), (None, True)):
        ids = {} if now is None else {"orders": now.bytes}
        code, topics, _ = fetch(wanted, topic_id_of=ids.get)
        assert code == 0
        assert (b"\xff" * 8 in topics[0][1]) is not there
        code, topics, _ = fetch(None, topic_id_of=ids.get)
        assert bool(topics) is there
    # One commit for the new topic, and the others of the old one are gone.
    assert node.table.commit("g", [offset("orders", 0, 1, OTHER_ORDERS)]) == 0
    assert [each.partition for each in node.table.offsets("g")] == [0]


def test_offsets_without_an_id_of_a_topic_that_is_no_more_are_forgotten_at_the_load(
    start: Callable[..., Node],
) -> None:
    """So they are not there for a topic that gets the name afterwards."""
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.table.commit("g", [offset("orders", 0, 5, ORDERS, 1 << 50)]) == 0
    assert node.table.commit("g", [offset("other", 0, 7, TOPIC_ID, 1 << 50)]) == 0
    for _ in range(2):
        again = start(topics={"other": TOPIC_ID})
        again.lead(*[NODE] * COUNT)
        again.loader.start()
        again.await_load()
        eventually(again.has_one_offset, "only the other topic's")


def test_metadata_is_answered_again_within_bounds(start: Callable[..., Node]) -> None:
    """What a group has may be asked for once in any case, and as much again as is allowed."""
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.table.commit("g", [offset("orders", index, 5) for index in range(4)]) == 0
    fetch = partial(node.table.fetch, "g", flexible=False, leader_epochs=False)
    refused = struct.pack(">qhh", -1, 0, ErrorCode.INVALID_REQUEST)
    all_four = b"".join(index.to_bytes(4) for index in range(4))  # each with a text of four bytes
    for wanted, again_max, before, results, used in (
        ([("orders", all_four)], 0, False, 4, 0),
        ([("orders", all_four)], 16, True, 4, 16),
        ([("orders", all_four)], 9, True, 2, 8),
        ([("orders", all_four * 100)], 40, False, 14, 40),
        ([("orders", all_four), ("orders", all_four)], 4, False, 5, 4),
    ):
        code, topics, texts = fetch(wanted, texts_again_max=again_max, named_before=before)
        answer = b"".join(data for _, data in topics)
        asked = sum(len(indexes) // 4 for _, indexes in wanted)
        assert (code, answer.count(b"note"), texts) == (0, results, used)
        assert answer.count(refused) == asked - results


def test_a_damaged_group_costs_one_group(
    start: Callable[..., Node], caplog: pytest.LogCaptureFixture
) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    partition = partition_for("good", COUNT)
    records = [
        (b"\x00\x02\x00\x03bad", b"\x00\x63"),
        (b"\x00\x02\x7f\xffx", b"\x00\x03"),
        (b"\x00\x09?", b"?"),
    ]
    assert node.table.append(partition, records) == 0
    assert node.write(image("good")) is ErrorCode.NONE
    again = start()
    again.lead(*[NODE] * COUNT)
    again.loader.start()
    eventually(lambda: again.states() == [ACTIVE] * COUNT, "loaded")
    assert [each.group_id for each in again.groups.loaded] == ["good"]
    assert caplog.text.count("left out") == 2


def test_a_batch_that_cannot_be_read_costs_itself(
    start: Callable[..., Node], caplog: pytest.LogCaptureFixture
) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.write(image("good")) is ErrorCode.NONE
    partition = partition_for("good", COUNT)
    log = node.open[partition]
    unreadable = build_batch([b"v"], codec="gzip", payload=b"not packed at all")
    log.append(unreadable, prechecked=True)
    assert node.table.commit("good", [offset("orders", 0, 5, ORDERS)]) == 0
    again = start()
    again.lead(*[NODE] * COUNT)
    again.loader.start()
    eventually(lambda: again.states() == [ACTIVE] * COUNT, "loaded")
    assert [each.group_id for each in again.groups.loaded] == ["good"]
    assert len(again.table.offsets("good")) == 1
    assert f"{OFFSETS_TOPIC}-{partition}: the batch at offset 1 cannot be read" in caplog.text


@pytest.mark.parametrize(
    "error", [OSError(5, "the device said no"), MemoryError("of this test"), SystemExit()]
)
def test_a_log_that_cannot_be_read_leaves_its_partition_unowned(
    start: Callable[..., Node],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.write(image("good")) is ErrorCode.NONE
    again = start()
    again.lead(*[NODE] * COUNT)
    partition = partition_for("good", COUNT)
    states = [NOT_OWNER if index == partition else ACTIVE for index in range(COUNT)]

    def read(*_: object, **how: object) -> bytes:
        raise error

    monkeypatch.setattr(LedLog, "read", read)
    assert again.table.shard_state(partition) == LOADING
    again.loader.start()
    eventually(lambda: again.states() == states, "the partition is given up")
    assert "cannot be read" in caplog.text


def test_a_log_of_apache_kafka_is_loaded(start: Callable[..., Node]) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    log = node.open[partition_for("g-static", COUNT)]
    at = 0
    while at < len(KAFKA_LOG):
        size = 12 + int.from_bytes(KAFKA_LOG[at + 8 : at + 12], "big")
        log.append(bytes(8) + KAFKA_LOG[at + 8 : at + size])  # the offset is no part of the CRC
        at += size
    again = start()
    again.lead(*[NODE] * COUNT)
    again.loader.start()
    again.await_load()
    (group,) = again.groups.loaded
    assert group == GroupImage("g-static", "consumer", 2, None, None, 1795300824996, ())
    note = "hello \u00e9\0"  # as its librdkafka sent it
    topic_id = uuid.UUID("f2c04b03-6fff-4307-87f8-af9d1c1d8a0f").bytes
    assert again.table.offsets("g-static") == [
        CommittedOffset("orders", index, 10, -1, note, 1795300817984, -1, topic_id)
        for index in range(3)
    ]


def test_none_waits_for_a_loader_that_is_lost(
    start: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.lead(*[NODE] * COUNT)
    assert node.write(image("good")) is ErrorCode.NONE
    again = start()
    again.lead(*[NODE] * COUNT)
    assert again.store.state_of("good") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def ends() -> None:
        raise SystemExit

    monkeypatch.setattr(again.loader.thread, "_loop", ends)
    again.loader.start()
    eventually(lambda: again.loader.thread.dead, "the thread is given up")
    eventually(
        lambda: again.store.state_of("good") is ErrorCode.NOT_COORDINATOR, "its jobs are, too"
    )
    # Nor does anything pile up for it, and what cannot wait for it is done.
    again.lead(NODE + 1, *[NODE] * (COUNT - 1))
    again.lead(*[NODE] * COUNT)
    again.delete(new_topic_image("orders", ORDERS, [(NODE,)], {}))
    assert not again.loader._jobs
    assert [lost(in_partition(0)) for lost in again.groups.lost] == [True]
    assert LOADING not in again.states()


def in_partition(index: int) -> str:
    """A group of that partition."""
    return next(f"g{n}" for n in range(100) if partition_for(f"g{n}", COUNT) == index)
