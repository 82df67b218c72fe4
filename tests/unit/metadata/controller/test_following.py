"""What the controller decides, as the other brokers come to know it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.cluster_delta import ClusterDelta
from kbroker.metadata.controller import ConfigChange, MorePartitions, NewTopic
from kbroker.metadata.controller.events import InStep
from kbroker.metadata.controller.image_follower import ImageFollower
from kbroker.metadata.controller.image_updates import NOTHING, ImageAnswer, ImageUpdate
from kbroker.metadata.controller.records import LOG_DIR_EVENTS, encode_broker
from kbroker.metadata.features import FinalizedFeatures
from kbroker.metadata.image import (
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from kbroker.metadata.store.base import Create
from kbroker.types import TopicPartition
from tests.unit.metadata.controller.brokers import Cluster, Wire, agree, follow, update_of
from tests.unit.metadata.controller.harness import OneBroker, eventually, wait


def test_all_brokers_get_every_change(cluster: Cluster) -> None:
    one = cluster.controller
    one.create(NewTopic("t", 3, 2), NewTopic("u", 1, 3, configs={"k": "v"}))
    one.alter(ConfigChange("t", set={"k": "w"}))
    one.grow(MorePartitions("u", 4))
    one.create("gone")
    one.delete("gone")
    follow(cluster)
    for broker in cluster.brokers.values():
        assert broker.image.topics.keys() == {"t", "u"}
        assert sorted(broker.replicas.logs.values()) == ["t", "u"]


def test_a_starting_broker_gets_the_whole_image_and_then_changes(
    cluster: Cluster, wire: Wire, tmp_path: Path
) -> None:
    cluster.controller.create("t", "u")
    cluster.end(3)
    wire.sent.clear()
    cluster.start(3, tmp_path)
    follow(cluster)
    cluster.controller.create("v")
    follow(cluster)
    to_three = [update for node_id, update in wire.sent if node_id == 3]
    assert to_three[0].base == NOTHING and len(to_three[0].delta.topics) == 2
    assert to_three[-1].base != NOTHING
    assert [each.name for each in to_three[-1].delta.topics] == ["v"]


@pytest.mark.parametrize("what", ["requests", "answers"])
def test_a_lost_image_is_sent_again(cluster: Cluster, wire: Wire, what: str) -> None:
    lossy = wire.loses if what == "requests" else wire.loses_answers
    lossy.add(3)
    cluster.controller.create("t")
    cluster.controller.create("u")
    eventually(lambda: agree(cluster.brokers[2].image, cluster.controller.image))
    wire.pauses_end()
    lossy.clear()
    eventually(lambda: (wire.pauses_end(), "u" in cluster.brokers[3].image.topics)[1])
    follow(cluster)


def test_nothing_queues_up_for_a_slow_broker(cluster: Cluster, wire: Wire) -> None:
    wire.holds.add(3)
    wire.sent.clear()
    for number in range(20):
        cluster.controller.create(f"t{number}")
    assert sum(node_id == 3 for node_id, _ in wire.sent) <= 1
    wire.release()
    follow(cluster)
    assert sum(node_id == 3 for node_id, _ in wire.sent) <= 3


def test_an_old_image_is_refused(cluster: Cluster) -> None:
    cluster.controller.create("t")
    follow(cluster)
    two = cluster.brokers[2]
    for fields, code in (
        ({"controller_epoch": 0}, ErrorCode.STALE_CONTROLLER_EPOCH),
        ({"broker_epoch": two.controller.broker_epoch - 1}, ErrorCode.STALE_BROKER_EPOCH),
        ({"base": 999_999}, ErrorCode.INVALID_UPDATE_VERSION),
        # No leader was elected in that one.
        ({"controller_epoch": 2**31 - 1}, ErrorCode.STALE_CONTROLLER_EPOCH),
    ):
        update = update_of(cluster, two, **fields)
        answer: ImageAnswer = wait(lambda done, u=update: two.controller.follow(u, done))
        assert answer.error is code
    assert "t" in two.image.topics
    other = update_of(cluster, two)
    other = other._replace(delta=replace(other.delta, cluster_id="another"))
    answer = wait(lambda done: two.controller.follow(other, done))
    assert answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID
    answer = wait(lambda done: two.controller.follow(update_of(cluster, two), done))
    assert answer.error is ErrorCode.NONE and not two.image.topics  # it would have, had it fitted


class Applied:
    """A propagation that takes whatever it is given."""

    unusable: frozenset[TopicPartition] = frozenset()
    refusing: frozenset[TopicPartition] = frozenset()

    def __init__(self, image: ClusterImage) -> None:
        self.image = image

    def catch_up(self, image: ClusterImage, delta: object) -> None:
        self.image = image


def test_an_overtaken_update_deletes_nothing() -> None:
    """It was sent once more, over another connection, and then the first one was read."""
    applied: Any = Applied(ClusterImage(cluster_id="c"))
    follower = ImageFollower(applied, lambda: 1, lambda event: None)
    partition = PartitionImage("t", 0, (1, 2), (1, 2), 1, 0, 0)
    topic = TopicImage("t", UUID(int=1), (partition,), {}, False)
    images = {3: ClusterImage(cluster_id="c"), 4: ClusterImage(cluster_id="c").with_topics([topic])}

    def receives(epoch: int, version: int) -> ErrorCode:
        delta = ClusterDelta.between(ClusterImage(), images[version])
        return follower.follow(ImageUpdate(2, epoch, 1, NOTHING, version, delta)).error

    assert receives(1, 4) is ErrorCode.NONE
    assert receives(1, 3) is ErrorCode.INVALID_UPDATE_VERSION
    assert "t" in applied.image.topics
    assert receives(1, 4) is ErrorCode.NONE  # the same again: its answer may be lost
    assert receives(2, 3) is ErrorCode.NONE  # the next controller counts for itself


def test_a_whole_image_from_before_the_store_was_read_is_refused() -> None:
    """A controller that reads the store before it learns of the next one knows what that one has
    done since its first update: it has made a topic, and another one under its former name."""
    partition = PartitionImage("t", 0, (1, 2), (1, 2), 1, 0, 0)
    topics = {id_: TopicImage(name, UUID(int=id_), (partition,), {}, False)
              for id_, name in ((1, "t"), (2, "t"), (3, "u"))}  # fmt: skip
    empty = ClusterImage(cluster_id="c")
    before = empty.with_topics([topics[1]])
    now = empty.with_topics([topics[2], topics[3]])
    elected = [4]
    events: list[InStep] = []
    applied: Any = Applied(now)
    follower = ImageFollower(applied, lambda: elected[-1], events.append)

    def receives(epoch: int, version: int, image: ClusterImage) -> ErrorCode:
        delta = ClusterDelta.between(ClusterImage(), image)
        return follower.follow(ImageUpdate(2, epoch, 1, NOTHING, version, delta)).error

    follower.store_read()
    for _ in range(2):  # the second one waited beside the first one, and comes before the event
        assert receives(4, 1, before) is ErrorCode.INVALID_UPDATE_VERSION
        assert applied.image is now and not follower.follows
    events[0].call()
    assert receives(4, 2, now) is ErrorCode.NONE and follower.follows
    follower.store_read()
    events[1].call()  # of the reading before: it says nothing of this one
    assert receives(4, 3, before) is ErrorCode.INVALID_UPDATE_VERSION
    elected.append(5)  # after this broker has read: it has read all that this broker has
    assert receives(5, 1, now) is ErrorCode.NONE


def test_the_known_state_of_a_partition_does_not_go_back() -> None:
    """A controller that read the store before it learns of the next one knows more than that one's
    first update, which was on its way."""

    def image_of(*epochs: int, topic_id: int = 1) -> ClusterImage:
        partitions = tuple(
            PartitionImage("t", index, (1, 2), (1, 2), 1 + epoch % 2, epoch, epoch)
            for index, epoch in enumerate(epochs)
        )
        return ClusterImage(cluster_id="c").with_topics(
            [TopicImage("t", UUID(int=topic_id), partitions, {}, False)]
        )

    def receives(published: ClusterImage, known: ClusterImage) -> ClusterImage:
        applied: Any = Applied(known)
        update = ImageUpdate(2, 1, 1, NOTHING, 1, ClusterDelta.between(ClusterImage(), published))
        follower = ImageFollower(applied, lambda: 1, lambda event: None)
        assert follower.follow(update).error is ErrorCode.NONE
        image: ClusterImage = applied.image
        return image

    assert agree(receives(image_of(2, 5), image_of(3, 4)), image_of(3, 5))
    assert agree(receives(image_of(2, 5, 0), image_of(3, 4)), image_of(3, 5, 0))
    anew = image_of(0, 0, topic_id=2)
    assert agree(receives(anew, image_of(3, 4)), anew)


def test_a_controller_of_an_earlier_kbroker_takes_no_feature_level_back() -> None:
    """It sends none."""
    known = ClusterImage(cluster_id="c").with_features(FinalizedFeatures(3, {"a": 1}))
    applied: Any = Applied(known)
    sent = ClusterDelta.between(ClusterImage(), ClusterImage(cluster_id="c"))
    answer = ImageFollower(applied, lambda: 1, lambda event: None).follow(
        ImageUpdate(2, 1, 1, NOTHING, 1, sent)
    )
    assert answer.error is ErrorCode.NONE
    assert applied.image.features == known.features


def test_no_answer_ends_the_controller_s_office(cluster: Cluster) -> None:
    one = cluster.controller
    for epoch in (2, 2**31 - 1):
        update = update_of(cluster, one, controller_epoch=epoch)
        answer: ImageAnswer = wait(lambda done, u=update: one.controller.follow(u, done))
        assert answer.error is ErrorCode.STALE_CONTROLLER_EPOCH
    assert one.controller.active


def test_a_starting_broker_follows_no_replaced_controller(
    cluster: Cluster, wire: Wire, tmp_path: Path
) -> None:
    """It knows no controller yet; what an old one lacks would be set aside here."""
    cluster.end(3)
    wire.holds.add(3)
    cluster.start(3, tmp_path)
    three = cluster.brokers[3]
    late = update_of(cluster, three, controller_epoch=0)
    answer: ImageAnswer = wait(lambda done: three.controller.follow(late, done))
    assert answer.error is ErrorCode.STALE_CONTROLLER_EPOCH and not three.controller.informed
    wire.release()
    follow(cluster)


def test_an_answer_is_handled_while_the_store_is_away(cluster: Cluster, wire: Wire) -> None:
    one = cluster.controller
    wire.holds.add(3)
    one.create("t")
    one.store.down = True
    assert one.create("u")[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    wire.release()
    eventually(lambda: "t" in cluster.brokers[3].image.topics)
    one.store.down = False
    assert one.create("v")[0].error is ErrorCode.NONE
    follow(cluster)


def test_a_start_while_the_store_was_away_is_one_as_well(cluster: Cluster, tmp_path: Path) -> None:
    cluster.make(3, 2)
    follow(cluster)
    one, first = cluster.controller, cluster.brokers[3]
    one.store.down = True
    assert one.create("u")[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    second = OneBroker(tmp_path, 3)
    first.store.down = True  # its process is dead, and its session has not ended
    second.start(first.embedded.new_session(), locks=lambda: ["d3"], transport=cluster.wire)
    cluster.brokers[3] = second
    eventually(lambda: one.controller.statistics().events_failed >= 2)  # it noticed that
    one.store.down = False
    one.controller.reload()
    eventually(lambda: cluster.epochs().get(3) == second.controller.broker_epoch)
    assert (cluster.state.leader, cluster.state.isr, cluster.state.leader_epoch) == (2, (2,), 1)
    first.stop()


def test_the_next_controller_is_followed_and_the_last_one_is_not(
    cluster: Cluster, wire: Wire
) -> None:
    cluster.make(3, 2)
    follow(cluster)
    one = cluster.brokers[1]
    late = update_of(cluster, cluster.brokers[2])
    before = one.controller.broker_epoch
    one.store_is_away = True
    one.embedded.expire()
    eventually(lambda: any(cluster.brokers[n].controller.active for n in (2, 3)))
    two, three = cluster.brokers[2], cluster.brokers[3]
    eventually(lambda: agree(two.image, three.image) and 1 not in two.image.brokers)
    assert "t" in two.image.topics and two.image.controller_id in (2, 3)
    answer: ImageAnswer = wait(lambda done: two.controller.follow(late, done))
    assert answer.error is ErrorCode.STALE_CONTROLLER_EPOCH
    # Who was the controller shows what it knew, and changes nothing.
    eventually(lambda: not one.controller.active)
    assert "t" in one.image.topics
    assert one.create("u")[0].error is ErrorCode.NOT_CONTROLLER
    # Once the store answers it is one of the brokers again.
    one.store_is_away = False
    eventually(lambda: (wire.pauses_end(), one.controller.broker_epoch > before)[1])
    eventually(lambda: 1 in two.image.brokers and agree(one.image, two.image))
    eventually(lambda: agree(three.image, two.image))


def test_a_broker_that_lost_its_session_leads_nothing_until_it_has_the_image(
    cluster: Cluster, wire: Wire
) -> None:
    cluster.make(3, 2)
    cluster.controller.create(NewTopic("alone", assignments={0: (3,)}))
    follow(cluster)
    three = cluster.brokers[3]
    before = update_of(cluster, three)
    wire.holds.add(3)
    three.embedded.expire()
    eventually(lambda: cluster.epochs().get(3, -1) > before.broker_epoch)
    # A request for its earlier start is refused.
    answer: ImageAnswer = wait(lambda done: three.controller.follow(before, done))
    assert answer.error is ErrorCode.STALE_BROKER_EPOCH
    assert [each.leader for each in three.image.partitions()] == [NO_LEADER, NO_LEADER]
    assert {topic.name for topic in three.replicas.calls[-1].changed} == {"t", "alone"}
    assert three.controller.broker_epoch == cluster.epochs()[3]
    wire.release()
    follow(cluster)
    state = three.image.topics["alone"].partitions[0]
    assert (state.leader, state.leader_epoch) == (3, 2)
    assert (cluster.state.leader, cluster.state.isr) == (2, (2,))


def test_a_controller_whose_session_is_over_reads_the_store_again(tmp_path: Path) -> None:
    """If no leader was elected meanwhile."""
    wire = Wire()
    one = OneBroker(tmp_path, 1)
    wire.brokers[1] = one
    one.start(transport=wire, renew=one.next_session, locks=lambda: ["d1"])
    one.create("t")
    beside = one.embedded.new_session()  # the tree outlives its sessions
    before = one.image.brokers[1].epoch
    one.embedded.expire()
    eventually(lambda: one.controller.active and one.image.brokers[1].epoch > before)
    state = one.image.topics["t"].partitions[0]
    assert (state.leader, state.leader_epoch) == (1, 2)
    assert one.create("u")[0].error is ErrorCode.NONE
    one.stop()
    beside.close()


def test_a_leader_that_cannot_open_its_log_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    cluster.make(3, 2)
    follow(cluster)
    cluster.end(3)
    assert (cluster.state.leader, cluster.state.isr) == (2, (2,))
    cluster.end(2)
    assert cluster.state.leader == NO_LEADER
    cluster.start(2, tmp_path)
    eventually(lambda: cluster.state.leader == 2)
    epoch = cluster.state.leader_epoch
    # The one replica that is in sync does not open: there is no leader, and all brokers get that.
    cluster.end(2)
    two = OneBroker(tmp_path, 2)
    two.replicas.offline = [TopicPartition("t", 0)]
    cluster.brokers[2] = two
    two.start(
        cluster.controller.embedded.new_session(),
        locks=lambda: ["d2"],
        transport=cluster.wire,
        elections=lambda _: cluster.rules,
    )
    eventually(lambda: cluster.state.leader == NO_LEADER and cluster.state.leader_epoch > epoch + 1)
    eventually(lambda: agree(two.image, cluster.controller.image))
    assert cluster.state.isr == (2,)
    # A new reading of the store asks again, and is answered the same.
    epoch = cluster.state.leader_epoch
    cluster.controller.controller.reload()
    eventually(lambda: cluster.state.leader_epoch > epoch and cluster.state.leader == NO_LEADER)


FAILS = TopicPartition("t", 0)


@pytest.mark.parametrize("leader", [1, 3])
def test_a_log_that_fails_while_its_broker_serves_is_led_elsewhere(
    cluster: Cluster, leader: int
) -> None:
    cluster.make(leader, 2)
    follow(cluster)
    cluster.brokers[leader].controller.logs_fail([FAILS])
    eventually(lambda: cluster.state.leader == 2)
    assert (cluster.state.isr, cluster.state.leader_epoch) == ((2,), 1)
    # It does not join as long as that is so.
    (answer,) = cluster.alter(2, 2, leader)
    assert isinstance(answer, KafkaError) and answer.code is ErrorCode.INELIGIBLE_REPLICA
    cluster.brokers[leader].controller.logs_fail([])
    eventually(lambda: isinstance(cluster.alter(2, 2, leader)[0], PartitionImage))
    assert cluster.state.isr == (leader, 2)


def test_that_a_log_fails_is_said_again_when_the_store_is_back(
    cluster: Cluster, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.make(3, 2)
    follow(cluster)
    three = cluster.brokers[3]
    three.store.down = True
    three.controller.logs_fail([FAILS])
    eventually(lambda: "could not notify the controller of failing logs" in caplog.text)
    three.store.down = False
    eventually(lambda: (wire.pauses_end(), cluster.state.leader == 2)[1])


def test_a_failing_log_is_known_to_the_next_controller(cluster: Cluster) -> None:
    """And taken from the store: a new report is accepted again."""
    cluster.make(3, 2)
    follow(cluster)
    one, two, three = (cluster.brokers[node_id] for node_id in (1, 2, 3))
    one.store.down = one.store_is_away = True
    three.controller.logs_fail([FAILS])
    eventually(lambda: two.embedded.children(LOG_DIR_EVENTS) == ["log_dir_event_0000000003"])
    one.embedded.expire()
    eventually(lambda: "t" in two.image.topics and two.image.topics["t"].partitions[0].leader == 2)
    eventually(lambda: two.embedded.children(LOG_DIR_EVENTS) == [])


def test_a_registration_that_fails_in_a_way_of_its_own_is_said_and_tried_again(
    cluster: Cluster, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    three = cluster.brokers[3]
    before = three.controller.broker_epoch
    three.session_failure = ValueError("an unknown error")
    three.embedded.expire()
    # Not by the pauses: the controller, whose image broker 3 refuses meanwhile, pauses as well.
    eventually(lambda: "is not registered, and tries again: an unknown error" in caplog.text)
    assert three.controller.thread.failures.count == 1
    three.session_failure = None
    eventually(lambda: (wire.pauses_end(), cluster.epochs().get(3, -1) > before)[1])
    follow(cluster)


STRANGE_REGISTRATIONS: dict[str, dict[str, object]] = {
    "no endpoint": {"endpoints": ["PLAINTEXT:9092"]},
    "half a character": {"host": "\ud800"},
    "half a character in an endpoint": {"endpoints": ["PLAINTEXT://\ud800:9092"]},
    "a long host": {"host": "h" * 40_000},
    "Apache Kafka's without PLAINTEXT": {"host": None, "port": -1},
}


@pytest.mark.parametrize("what", STRANGE_REGISTRATIONS)
def test_a_registration_that_cannot_be_read_costs_that_broker_alone(
    cluster: Cluster, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {
        **json.loads(encode_broker(BrokerImage(9, "h", 9092), 0)),
        **STRANGE_REGISTRATIONS[what],
    }
    cluster.brokers[2].embedded.create("/brokers/ids/9", json.dumps(fields).encode())
    eventually(lambda: "/brokers/ids/9" in caplog.text)
    assert not cluster.controller.create("t")[0].error
    follow(cluster)
    assert cluster.controller.image.brokers.keys() == {1, 2, 3}
    for broker in cluster.brokers.values():
        assert broker.controller.thread.failures.count == 0


def test_apache_kafka_registers_without_a_rack(cluster: Cluster) -> None:
    """As 3.9 writes it: a rack that is not set is not there."""
    data = (
        b'{"features":{},"listener_security_protocol_map":{"INSIDE":"PLAINTEXT"},"endpoints":'
        b'["INSIDE://kafka-1:9092"],"jmx_port":-1,"port":9092,"host":"kafka-1","version":5,'
        b'"timestamp":"1700000000000"}'
    )
    cluster.brokers[2].embedded.create("/brokers/ids/9", data)
    eventually(lambda: 9 in cluster.controller.image.brokers)
    assert cluster.controller.image.brokers[9].address_on("INSIDE") == ("kafka-1", 9092)


def test_a_new_controller_knows_which_logs_of_its_own_fail(cluster: Cluster) -> None:
    cluster.make(2, 3)
    follow(cluster)
    one, two, three = (cluster.brokers[node_id] for node_id in (1, 2, 3))
    one.store.down = one.store_is_away = True
    three.store.down = True
    two.controller.logs_fail([FAILS])
    eventually(lambda: two.embedded.children(LOG_DIR_EVENTS) == ["log_dir_event_0000000002"])
    one.embedded.expire()
    eventually(lambda: two.controller.active)
    eventually(lambda: two.image.topics["t"].partitions[0].leader == 3)
    assert two.image.topics["t"].partitions[0].isr == (3,)


def test_a_controller_that_reads_the_store_again_does_not_lead_with_a_log_that_fails(
    cluster: Cluster,
) -> None:
    cluster.make(1, 2)
    cluster.end(2)
    cluster.controller.controller.logs_fail([FAILS])
    eventually(lambda: cluster.state.leader == NO_LEADER)
    version = cluster.controller.image.version
    cluster.controller.controller.reload()
    eventually(lambda: cluster.controller.image.version > version)
    assert cluster.state.leader == NO_LEADER


def test_an_event_of_an_earlier_load_keeps_no_other_from_being_handled(
    cluster: Cluster,
) -> None:
    cluster.make(3, 2)
    follow(cluster)
    one, three = cluster.brokers[1], cluster.brokers[3]
    one.store.die_at = one.store.writes + 1  # the write that takes the event
    three.embedded.create(f"{LOG_DIR_EVENTS}/log_dir_event_0000000003")
    eventually(lambda: one.store.down)
    one.store.down, one.store.die_at = False, None
    one.controller.reload()
    eventually(lambda: three.embedded.children(LOG_DIR_EVENTS) == [])


def test_an_event_that_cannot_be_removed_keeps_nothing_else_from_being_done(
    cluster: Cluster,
) -> None:
    one, three = cluster.brokers[1], cluster.brokers[3]
    by_hand = f"{LOG_DIR_EVENTS}/log_dir_event_0000000001"
    three.embedded.multi([Create(by_hand), Create(f"{by_hand}/below")])
    three.embedded.create(f"{LOG_DIR_EVENTS}/log_dir_event_0000000003")
    one.controller.reload()
    left = [by_hand.rpartition("/")[2]]
    eventually(lambda: three.embedded.children(LOG_DIR_EVENTS) == left)
    assert not cluster.controller.create("t")[0].error
    assert one.controller.thread.failures.count == 0


def test_events_that_cannot_be_read_are_tried_once_a_load(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = cluster.brokers[1]
    children = one.store.children
    tried: list[str] = []

    def broken(path: str) -> list[str]:
        if path == LOG_DIR_EVENTS:
            tried.append(path)
            raise ValueError("not this one")
        return children(path)

    monkeypatch.setattr(one.store, "children", broken)
    for times in (1, 2):
        one.controller.reload()
        eventually(lambda times=times: len(tried) >= times)
        assert not cluster.controller.create(f"t{times}")[0].error
        assert not cluster.controller.create(f"u{times}")[0].error
        assert len(tried) == times


def test_an_unannounced_deletion_of_the_last_controller_is_done_once(
    cluster: Cluster, wire: Wire
) -> None:
    """The next one finds the tombstone, and has the topic in its image."""
    cluster.make(3, 2)
    topic = cluster.controller.image.topics["t"]
    others = [cluster.brokers[2], cluster.brokers[3]]
    eventually(lambda: all("t" in each.image.topics for each in others))
    wire.loses |= {2, 3}
    cluster.controller.replicas.fail_on_delete = lambda name: RuntimeError("the process is gone")
    cluster.controller.delete("t")
    cluster.brokers.pop(1).stop()
    wire.loses.clear()  # the next one may have begun before that, and pauses
    eventually(lambda: (wire.pauses_end(), all("t" not in each.image.topics for each in others))[1])
    for each in others:
        published = [gone.topic_id for call in each.replicas.calls for gone in call.deleted]
        assert published == [topic.topic_id]
