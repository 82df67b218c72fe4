"""Groups follow who leads `__consumer_offsets`, also where a log cannot."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from kbroker.config import BrokerConfig
from kbroker.coordinator.group._groups import CommittedOffset
from kbroker.coordinator.group.messages import JoinAnswer, JoinAsked
from kbroker.coordinator.runtime._shard_table import ACTIVE, NOT_OWNER
from kbroker.metadata.controller import NewTopic
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import OFFSETS_TOPIC, ClusterImage, ImageDelta
from kbroker.server.broker import Broker
from kbroker.types import TopicPartition
from tests.support.standing_disk import standing
from tests.unit.net.harness import eventually

ELSEWHERE = 7
WAIT_S = 60
READ = new_topic_image("t", uuid.UUID(int=5), [(ELSEWHERE,)], {})  # the groups read it


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """It leads the offsets' one partition."""
    values = [
        f"log.dirs={tmp_path / 'data'}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "admin.listeners=",
        "group.initial.rebalance.delay.ms=1",
    ]
    broker = Broker(BrokerConfig.load(None, {}, values), tmp_path / "data")
    broker.start()
    made = threading.Event()

    def done(results: Sequence[object]) -> None:
        made.set()

    broker._running_controller().create_topics(
        [NewTopic(OFFSETS_TOPIC, partitions=1, replication_factor=1)], False, done
    )
    assert made.wait(WAIT_S)
    yield broker
    broker.stop()


def test_the_timer_does_not_wait_for_a_disk_that_hangs(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a group's timer needs a lock that a write to its log holds."""
    groups, timer = broker._groups, broker._timer
    answers: list[JoinAnswer] = []
    due, fired = threading.Event(), threading.Event()
    ends: list[Callable[[], object]] = []

    class Held:
        def on_worker(self, place: TopicPartition, call: Callable[[], object]) -> None:
            ends.append(partial(broker._share.on_worker, place, call))
            due.set()

    asked = JoinAsked("g", "", None, "c", "/::1", "consumer", (("range", b""),), 60_000, 60_000)
    with monkeypatch.context() as patched:
        patched.setattr(groups, "_share", Held)
        groups.coordinator.join(asked._replace(needs_id=False), answers.append)
        assert due.wait(WAIT_S)
    with standing(("write", f"{OFFSETS_TOPIC}-0/{0:020}.log")) as disk:
        offset = CommittedOffset("t", 0, 5, -1, "", 0, -1, None)
        writing = disk.begin(lambda: groups.table.commit("other", [offset]))
        for end in (*ends, fired.set):
            timer.call_later(0, end)
        assert fired.wait(WAIT_S)
        assert not answers
        disk.go_on()
        assert writing.result() == 0
    eventually(lambda: len(answers) == 1, "the group is formed")


def led_by(broker: Broker, leader: int) -> tuple[ClusterImage, ImageDelta]:
    topic = broker._running_controller().image.topics[OFFSETS_TOPIC]
    state = topic.partitions[0]
    led = replace(state, leader=leader, leader_epoch=state.leader_epoch + 1)
    topic = replace(topic, partitions=(led,))
    image = ClusterImage().with_topics([topic, READ])
    return image, ImageDelta(changed=(topic,), from_store=True)


def test_a_deposed_coordinator_answers_nothing_of_groups_though_its_log_cannot_follow(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what its log loses meanwhile is gone when it leads again."""
    table, replica = broker._groups.table, broker._replicas.partition(OFFSETS_TOPIC, 0)
    assert replica is not None and table.shard_state(0) == ACTIVE
    assert table.commit("g", [CommittedOffset("t", 0, 5, -1, "", 0, -1, None)]) == 0
    apply = broker._replicas.apply

    def fails_at_its_end(*what: ClusterImage) -> NoReturn:
        apply(*what)  # type: ignore[call-arg]
        raise OSError("no space is left for another partition's epoch")

    with monkeypatch.context() as patched:
        patched.setattr(broker._replicas, "apply", fails_at_its_end)
        with pytest.raises(OSError, match="no space"):
            broker._apply(*led_by(broker, ELSEWHERE))
    assert table.shard_state(0) == NOT_OWNER
    replica.truncate_to(0)
    broker._apply(*led_by(broker, broker.config.node_id))
    eventually(lambda: table.shard_state(0) == ACTIVE, "it is loaded")
    assert table.offsets("g") == []


def test_a_marker_makes_offsets_hold_in_a_group_that_is_there(broker: Broker) -> None:
    """Also where the group was deleted since, and after a load that finds the offsets pending."""
    groups, replica = broker._groups, broker._replicas.partition(OFFSETS_TOPIC, 0)
    assert replica is not None
    offset = CommittedOffset("t", 0, 5, -1, "", 1_000, -1, None)
    assert groups.table.commit_in_transaction("g", [offset], 7, 0) == 0
    assert groups.coordinator.find("g") is None
    broker._apply(*led_by(broker, ELSEWHERE))
    assert groups.table.pending("g") == frozenset()
    broker._apply(*led_by(broker, broker.config.node_id))
    eventually(lambda: groups.table.shard_state(0) == ACTIVE, "it is loaded")
    assert groups.table.pending("g") == {("t", 0)}
    assert groups.coordinator.find("g") is not None
    groups.coordinator.unload(lambda group_id: True)
    groups.marker_written(0, 7, True, replica.log_end_offset)
    assert groups.table.offsets("g") == [offset]
    assert groups.coordinator.find("g") is not None


def test_a_commit_for_a_topic_that_was_deleted_before_its_marker_holds_nothing(
    broker: Broker,
) -> None:
    """The commit met the topic in an image before, so the deletion has not found it pending."""
    groups, replica = broker._groups, broker._replicas.partition(OFFSETS_TOPIC, 0)
    assert replica is not None
    broker._apply(*led_by(broker, broker.config.node_id))
    eventually(lambda: groups.table.shard_state(0) == ACTIVE, "it is loaded")
    gone = CommittedOffset("gone", 0, 5, -1, "", 1_000, -1, bytes(range(16)))
    namesake = gone._replace(topic="t", topic_id=bytes(range(16)))
    stays = namesake._replace(partition=1, topic_id=READ.topic_id.bytes)
    assert groups.table.commit_in_transaction("g", [gone, namesake, stays], 7, 0) == 0
    groups.marker_written(0, 7, True, replica.log_end_offset)
    assert groups.table.offsets("g") == [stays]
    assert groups.table.pending("g") == frozenset()
