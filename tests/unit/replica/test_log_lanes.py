"""A data directory that does not answer, and the thread that has logs opened, removed and closed.

It goes on, what other directories have is led and served, and what was late is done in its order.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from kbroker import own_thread
from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.log_lanes import STUCK_MS, LogLanes
from kbroker.log.manager import LogManager
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE
from kbroker.log.upkeep.lane import ThreadLane
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import BrokerImage, ClusterImage, ImageDelta, TopicImage, new_uuid
from kbroker.own_thread import OwnThread
from kbroker.replica._replica import Replica
from kbroker.replica._topic_table import TopicTable
from kbroker.replica.held_replicas import HeldReplicas
from kbroker.replica.manager import NEW_LOG_MS, ReplicaManager
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support.record_batches import build_batch
from tests.support.standing_disk import StandingDisk, standing
from tests.unit.net.harness import eventually

T = TypeVar("T")
NODE_ID = 1
WAIT_S = 60.0


class Held:
    """What a broker with two data directories has of replicas, each with its lane."""

    def __init__(self, path: Path) -> None:
        self.paths = path / "one", path / "two"
        self.clock = ManualClock()
        self.image = ClusterImage().with_brokers([BrokerImage(NODE_ID)])
        self.named: list[TopicPartition] = []
        self.was_ready = threading.Semaphore(0)
        self.start()

    def start(self) -> None:
        held = HeldReplicas(lambda replica: None)
        self.logs = LogManager(self.paths, clock=self.clock, listener=held)
        self.logs.start()
        self.lanes = LogLanes(self.logs, self.clock, ThreadLane, self._ready)
        self.replicas = ReplicaManager(
            BrokerConfig.load(None, {}, []), NODE_ID, self.logs, TopicTable(), held, None,
            self.lanes,
        )  # fmt: skip

    def stop(self) -> None:
        self.logs.stop(hanging=self.lanes.stop())

    def _ready(self, names: Sequence[TopicPartition]) -> None:
        self.named += names
        self.was_ready.release()

    def topic(self, name: str) -> TopicImage:
        topic = new_topic_image(name, new_uuid(), [(NODE_ID,)], {})
        self.image = self.image.with_topics([topic])
        return topic

    def open(self, *topics: TopicImage, new: bool = True, **how: bool) -> list[TopicPartition]:
        """As an image of the controller; those that stay offline."""
        names = frozenset(TopicPartition(each.name, 0) for each in topics) if new else frozenset()
        return self.replicas.apply(
            self.image, ImageDelta(created=topics, **{"from_store": True, **how}, new=names)
        )

    def create(self, name: str) -> Replica:
        assert self.open(self.topic(name)) == []
        return self.log(name)

    def delete(self, topic: TopicImage) -> None:
        self.image = self.image.without_topics([topic.name])
        self.replicas.apply(self.image, ImageDelta(deleted=(topic,)))

    def log(self, name: str) -> Replica:
        replica = self.replicas.partition(name, 0)
        assert replica is not None
        return replica

    def names(self) -> set[str]:
        return {each.name for path in self.paths for each in path.iterdir() if each.is_dir()}

    def stuck(self, disk: StandingDisk, call: Callable[[], T], stuck_ms: int = STUCK_MS) -> T:
        """The answer of a call that meets a hanging operation."""
        with ThreadPoolExecutor(1) as pool:
            future: Future[T] = pool.submit(call)
            disk.wait()
            # All is put when the call waits; what the other lane has to do is to be over, too.
            assert self.clock.wait_for_sleepers(1)
            eventually(lambda: sum(bool(lane.left) for lane in self.lanes._lanes.values()) == 1)
            self.clock.advance(stuck_ms - 1)
            assert self.clock.wait_for_sleepers(1) and not future.done()
            self.clock.advance(1)
            # It may have come to the lane that is stuck just now, after the other one.
            eventually(lambda: future.done() or self.clock.advance(stuck_ms))
            return future.result(WAIT_S)

    def await_ready(self) -> None:
        assert self.was_ready.acquire(timeout=WAIT_S)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    made = Held(tmp_path)
    yield made
    made.stop()


def test_logs_of_other_directories_are_led_while_a_log_does_not_open(held: Held) -> None:
    hung, other = held.topic("hung"), held.topic("other")
    name = TopicPartition("hung", 0)
    with standing(("mkdir", "hung-0")) as disk:
        assert held.stuck(disk, lambda: held.open(hung, other)) == [name]
        assert held.replicas.partition("hung", 0) is None and held.replicas.any_offline
        assert disk.soon(lambda: held.log("other").append(build_batch())).base_offset == 0
        # What comes now does not wait at all, and begins where the disk answers.
        third = disk.soon(lambda: held.create("third"))
        assert third.log.path.parent == held.log("other").log.path.parent
        assert disk.soon(lambda: held.open(hung, new=False)) == [name]
        assert held.named == []
    held.await_ready()
    assert held.named == [name]
    only = ImageDelta(changed=(hung,), from_store=True, only=frozenset([name]))
    assert held.replicas.apply(held.image, only) == []
    assert held.log("hung").append(build_batch()).base_offset == 0
    assert not held.replicas.any_offline


@pytest.mark.parametrize("place", [("rename", "hung-0"), ("write", "hung-0/" + "0" * 20 + ".log")])
def test_a_removal_that_hangs_keeps_none_waiting_and_is_done_later(
    held: Held, place: tuple[str, str]
) -> None:
    """At the rename of the directory, or after a write to the log."""
    hung = held.topic("hung")
    assert held.open(hung) == []
    replica = held.log("hung")
    with standing(place) as disk:
        if place[0] == "write":
            disk.begin(lambda: replica.append(build_batch()))
        held.stuck(disk, lambda: held.delete(hung))
        assert held.replicas.removing() == {hung.topic_id}
        assert held.replicas.partition("hung", 0) is None
        assert disk.soon(lambda: held.create("other")).append(build_batch()).base_offset == 0
        assert "hung-0" in held.names()
    held.await_ready()
    assert held.replicas.removing() == frozenset()
    assert "hung-0" not in held.names() and held.named == []


def test_a_topic_that_is_deleted_before_its_log_opens_leaves_nothing(held: Held) -> None:
    hung = held.topic("hung")
    with standing(("open", "hung-0/" + "0" * 20 + ".log")) as disk:
        held.stuck(disk, lambda: held.open(hung))
        disk.soon(lambda: held.delete(hung))
        assert held.replicas.removing() == {hung.topic_id}
    held.await_ready()
    assert held.replicas.removing() == frozenset()
    assert held.logs.open_logs() == [] and "hung-0" not in held.names()
    assert held.named == [] and not held.replicas.any_offline


def test_a_topic_that_is_made_anew_opens_when_the_old_log_is_gone(held: Held) -> None:
    old = held.topic("t")
    assert held.open(old) == []
    held.log("t").append(build_batch())
    with standing(("rename", "t-0")) as disk:
        held.stuck(disk, lambda: held.delete(old))
        again = held.topic("t")
        assert disk.soon(lambda: held.open(again)) == [TopicPartition("t", 0)]
    while not held.named:
        held.await_ready()
    assert held.open(again) == []
    assert held.log("t").topic_id == again.topic_id and held.log("t").log_end_offset == 0


def test_a_broker_that_is_alone_refuses_a_topic_that_it_cannot_make(held: Held) -> None:
    hung = held.topic("hung")
    with standing(("mkdir", "hung-0")) as disk:
        with pytest.raises(KafkaError) as caught:
            held.stuck(disk, lambda: held.open(hung, from_store=False), NEW_LOG_MS)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        disk.soon(lambda: held.delete(hung))  # as the controller does then
    held.await_ready()
    assert held.logs.open_logs() == [] and "hung-0" not in held.names()
    assert held.create("hung").append(build_batch()).base_offset == 0


def test_a_replica_that_goes_elsewhere_is_closed_and_removed_later(held: Held) -> None:
    moved = held.topic("moved")
    assert held.open(moved) == []
    gone = replace(moved, partitions=(replace(moved.partitions[0], replicas=(2,), isr=(2,)),))
    with standing(("rename", "moved-0")) as disk:
        delta = ImageDelta(changed=(gone,), from_store=True)
        assert held.stuck(disk, lambda: held.replicas.apply(held.image, delta)) == []
        assert held.replicas.partition("moved", 0) is None
    held.await_ready()
    assert held.logs.open_logs() == []


def test_a_stop_leaves_a_directory_that_does_not_answer_and_closes_the_others(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = held.topic("hung")
    held.create("first").append(build_batch())
    held.create("second").append(build_batch())
    with standing(("mkdir", "hung-0")) as disk:
        held.stuck(disk, lambda: held.open(hung))
        (hanging,) = (lane.thread for lane in held.lanes._lanes.values() if lane.left)

        def join(thread: OwnThread, timeout_s: float) -> None:
            """The lane that hangs is not waited for, as after the time for it; others end."""
            if thread is not hanging:
                threading.Thread.join(thread, WAIT_S)

        with monkeypatch.context() as patch:
            patch.setattr(OwnThread, "join", join)
            disk.soon(held.stop)
        marks = [(path / CLEAN_SHUTDOWN_FILE).exists() for path in held.paths]
        assert sorted(marks) == [False, True]
    held.await_ready()
    held.logs.stop()


def test_logs_are_opened_though_a_lane_has_lost_its_thread(
    held: Held, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held.create("before")
    threads = list(held.lanes.threads)
    original = ThreadLane._next

    def fail(lane: ThreadLane) -> object:
        if lane.thread in threads:
            raise MemoryError
        return original(lane)

    monkeypatch.setattr(own_thread, "THREAD_PAUSE_MS", 0)
    monkeypatch.setattr(ThreadLane, "_next", fail)
    for number in range(2):  # the first meets a thread that is about to be lost, or is
        assert held.open(held.topic(f"{number}")) == []
        held.log(f"{number}").append(build_batch())
    assert all(each.dead for each in threads)
    assert not any(each.dead for each in held.lanes.threads)
    assert sum("is replaced" in each for each in caplog.messages) == len(threads)


def test_where_the_high_watermark_lies_is_read_in_the_lane(held: Held) -> None:
    """Of a log that nothing of is in the page cache: no read is the controller's."""
    topic = held.topic("a")
    held.open(topic)
    log = held.log("a")
    log.log.configure(segment_bytes=20_000, index_interval_bytes=500)
    for _ in range(400):
        log.append(build_batch([b"x" * 100]))
    log.set_leadership(2, False, 1, 1)
    log.set_high_watermark(77)
    list(held.logs.checkpoint())
    held.stop()
    held.start()
    reads: list[int] = []

    def note(operation: str, path: str) -> None:
        if operation == "read":
            reads.append(threading.get_ident())

    cold = Fault(("read_now", "open_now"), times=FOREVER, error=errno.EAGAIN)
    with FileFaults(cold, before=note):
        assert held.open(topic, new=False) == []
    assert reads and threading.get_ident() not in reads
