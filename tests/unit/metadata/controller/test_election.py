"""Two controllers on one store: one rules, the other waits, and none writes out of office."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode
from kbroker.metadata.controller import records
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.controller.election import Election
from kbroker.metadata.controller.nodes import FencedError, MetadataNodes
from kbroker.metadata.controller.skeleton import ensure_skeleton
from kbroker.metadata.image import NO_CONTROLLER, new_uuid
from kbroker.metadata.store.base import NoNodeError, StoreUnavailableError
from kbroker.metadata.store.embedded import EmbeddedStore
from tests.unit.metadata.controller.harness import FaultyStore, OneBroker, codes, eventually

OK = ErrorCode.NONE


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    made = EmbeddedStore.open(tmp_path / "metadata")
    ensure_skeleton(made, "cluster")
    yield made
    made.close()


def test_one_is_elected_and_the_epoch_counts_the_terms(store: EmbeddedStore) -> None:
    other = store.new_session()
    first, second = Election(store, 1, ManualClock()), Election(other, 2, ManualClock())
    assert first.current_controller() == NO_CONTROLLER
    assert first.try_win() and not second.try_win()
    assert first.try_win() and first.epoch == 1  # it is the controller already
    assert first.holds_office() and not second.holds_office()
    assert second.current_controller() == 1
    second.resign()  # not his to leave
    assert first.holds_office()
    first.resign()
    assert second.try_win()
    assert (first.epoch, second.epoch) == (1, 2)
    other.close()


def test_a_winner_whose_answer_was_lost_has_won(store: EmbeddedStore) -> None:
    deaf = FaultyStore(store)
    election = Election(deaf, 1, ManualClock())
    deaf.die_at, deaf.die_after_commit = 1, True
    with pytest.raises(StoreUnavailableError):
        election.try_win()
    deaf.down = False
    assert election.try_win() and election.holds_office()
    assert election.epoch == election.last_epoch() == 1
    store.multi([election.fence])


def test_a_replaced_controller_writes_nothing(store: EmbeddedStore) -> None:
    other = store.new_session()
    first, second = Election(store, 1, ManualClock()), Election(other, 2, ManualClock())
    first.try_win()
    nodes = MetadataNodes(store, first.fence, first.epoch)
    topic = new_topic_image("t", new_uuid(), [(1,)], {})
    nodes.create_topics([topic])
    other.delete(records.CONTROLLER)  # as an operator, or an expiry, would
    assert second.try_win()
    late = new_topic_image("late", new_uuid(), [(1,)], {})
    for write in (
        lambda: nodes.create_topics([late]),
        lambda: nodes.delete_topics([topic]),
        lambda: nodes.set_configs([topic]),
        lambda: nodes.set_partitions(topic.partitions),
        lambda: nodes.take_producer_ids(1, 10),
    ):
        with pytest.raises(FencedError):
            write()
    assert store.children(records.TOPICS) == ["t"]
    assert not store.exists(records.PRODUCER_ID_BLOCK)
    first.resign()
    assert second.holds_office()
    other.close()


def test_a_replaced_controller_is_refused_the_nodes_that_its_successor_has_removed(
    store: EmbeddedStore,
) -> None:
    """It learns that it was replaced, and not that a node is missing."""
    other = store.new_session()
    first, second = Election(store, 1, ManualClock()), Election(other, 2, ManualClock())
    first.try_win()
    nodes = MetadataNodes(store, first.fence, first.epoch)
    topic = new_topic_image("t", new_uuid(), [(1,)], {})
    nodes.create_topics([topic])
    other.delete(records.CONTROLLER)
    assert second.try_win()
    MetadataNodes(other, second.fence, second.epoch).delete_topics([topic])
    grown = new_topic_image("t", topic.topic_id, [(1,), (1,)], {})
    for write in (
        lambda: nodes.delete_topics([topic]),
        lambda: nodes.forget_deletions([topic]),
        lambda: nodes.set_configs([topic]),
        lambda: nodes.set_partitions(topic.partitions),
        lambda: nodes.add_partitions([(topic, grown)]),
        lambda: nodes.remove_partitions([(grown, topic)]),
        lambda: list(nodes.reassign(topic.partitions, {"t": topic})),
    ):
        with pytest.raises(FencedError):
            write()
    other.close()


def test_a_topic_that_is_not_in_the_store_is_not_deleted(store: EmbeddedStore) -> None:
    election = Election(store, 1, ManualClock())
    election.try_win()
    nodes = MetadataNodes(store, election.fence, election.epoch)
    with pytest.raises(NoNodeError):
        nodes.delete_topics([new_topic_image("t", new_uuid(), [(1,)], {})])
    assert store.children(records.DELETED_TOPICS) == []


def test_the_standby_takes_over_with_everything_when_the_session_expires(tmp_path: Path) -> None:
    one, two = OneBroker(tmp_path, node_id=1), OneBroker(tmp_path, node_id=2)
    one.start()
    two.start(one.embedded.new_session())
    assert one.controller.active and not two.controller.active
    assert two.image.controller_id == 1
    assert codes(two.create("t")) == [ErrorCode.NOT_CONTROLLER]
    assert two.replicas.calls == []
    eventually(lambda: set(one.image.brokers) == {1, 2})  # or all of it is placed on the first
    one.create("t")
    topic = one.image.topics["t"]

    one.embedded.expire()
    eventually(lambda: two.controller.active)
    assert codes(one.create("u")) == [ErrorCode.NOT_CONTROLLER]
    assert not one.controller.active
    assert codes(two.create("u")) == [OK]
    assert two.image.controller_id == 2
    assert two.controller.statistics().controller_epoch == 2
    # Broker 1 is gone: same topic, and where it held the only replica the next epoch, no leader.
    taken_over = two.image.topics["t"]
    assert taken_over.topic_id == topic.topic_id
    assert {(each.replicas, each.leader, each.leader_epoch) for each in taken_over.partitions} == {
        ((1,), -1, 1),
        ((2,), 2, 0),
    }
    one.stop()
    two.stop()


def test_a_controller_whose_node_was_deleted_is_elected_again(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    broker.start()
    broker.create("t")
    broker.embedded.delete(records.CONTROLLER)
    # Whether or not the news has arrived: the request is done in one term or refused, never lost.
    assert codes(broker.create("u"))[0] in (OK, ErrorCode.NOT_CONTROLLER)
    eventually(
        lambda: broker.controller.statistics().controller_epoch == 2 and broker.controller.active
    )
    assert codes(broker.create("v")) == [OK]
    assert {"t", "v"} <= set(broker.image.topics)
    broker.stop()
