"""A copy of a broker's data directory is started, or another broker has its id: two processes under
one registration, of which the store knows one."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.errors import DataDirectoryError, ErrorCode
from kbroker.metadata.cluster_delta import ClusterDelta
from kbroker.metadata.controller import records
from kbroker.metadata.controller.image_updates import ImageAnswer
from kbroker.metadata.controller.registration import SESSION_END_MS
from kbroker.metadata.image import NO_BROKER_EPOCH, NO_LEADER, BrokerImage, ClusterImage
from kbroker.metadata.store.base import Create, Delete, MetadataStore, SessionEvent
from tests.unit.metadata.controller.brokers import Cluster, Wire, follow, update_of
from tests.unit.metadata.controller.harness import (
    SETTINGS,
    FaultyStore,
    OneBroker,
    eventually,
    wait,
)


def usurp(cluster: Cluster, node_id: int) -> MetadataStore:
    """Another process takes the registration, as one did that asked for no proof."""
    session = cluster.controller.embedded.new_session()
    path = records.broker_path(node_id)
    data = records.encode_broker(BrokerImage(node_id), 1, ["a copy's"])
    session.multi([Delete(path), Create(path, data, ephemeral=True)])
    return session


def test_a_broker_that_sees_another_in_its_place_leads_nothing_until_that_is_gone(
    cluster: Cluster, wire: Wire
) -> None:
    cluster.make(3, 2)
    follow(cluster)
    three = cluster.brokers[3]
    before = three.controller.broker_epoch
    wire.holds.add(2)  # it gets no image of the others
    twin = usurp(cluster, 3)
    eventually(lambda: three.controller.broker_epoch == NO_BROKER_EPOCH and wire.pauses_of(3) > 0)
    assert [each.leader for each in three.image.partitions()] == [NO_LEADER]
    wire.pauses_end()  # it tries again, and finds the other one there
    eventually(lambda: wire.pauses_of(3) > 0)
    assert three.controller.broker_epoch == NO_BROKER_EPOCH
    eventually(lambda: cluster.epochs()[3] > before)
    twin.close()
    eventually(lambda: (wire.pauses_end(), three.controller.broker_epoch > before)[1])
    wire.release()
    follow(cluster)
    assert three.controller.broker_epoch == cluster.epochs()[3]


def test_a_broker_that_lost_its_id_waits_in_one_session_and_logs_it_once(
    cluster: Cluster, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    three = cluster.brokers[3]
    before = three.controller.broker_epoch
    twin = usurp(cluster, 3)
    eventually(lambda: three.controller.broker_epoch == NO_BROKER_EPOCH and wire.pauses_of(3) > 0)
    waiting = three.controller._store
    for _ in range(5):
        wire.pauses_end()
        eventually(lambda: wire.pauses_of(3) > 0)
        wait(lambda done: three.controller.in_step(lambda: done(None)))
    assert three.controller._store is waiting
    assert caplog.text.count("broker 3 is not registered") == 1
    assert "node.id 3 is in use" in caplog.text
    twin.close()
    eventually(lambda: (wire.pauses_end(), three.controller.broker_epoch > before)[1])
    # Lost once more, it says so once more.
    usurp(cluster, 3)
    eventually(lambda: three.controller.broker_epoch == NO_BROKER_EPOCH and wire.pauses_of(3) > 0)
    assert caplog.text.count("broker 3 is not registered") == 2


def test_a_store_that_is_away_is_said_once(
    cluster: Cluster, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    three = cluster.brokers[3]
    before = three.controller.broker_epoch
    three.store_is_away = True
    three.embedded.expire()
    for _ in range(5):
        eventually(lambda: wire.pauses_of(3) > 0)
        wire.pauses_end()
    assert caplog.text.count("broker 3 is not registered") == 1
    three.store_is_away = False
    eventually(lambda: (wire.pauses_end(), three.controller.broker_epoch > before)[1])


def test_a_clean_stop_leaves_anothers_registration(cluster: Cluster) -> None:
    three = cluster.brokers[3]
    three.store_is_away = True
    twin = usurp(cluster, 3)
    eventually(lambda: three.controller.broker_epoch == NO_BROKER_EPOCH)
    three.store = FaultyStore(three.embedded)
    cluster.brokers.pop(3).stop()
    assert twin.exists(records.broker_path(3))
    twin.close()


@pytest.mark.parametrize("is_away", [True, False])
def test_a_broker_that_is_not_known_asks_the_store(
    cluster: Cluster, wire: Wire, is_away: bool
) -> None:
    """A controller that was replaced may lag; where the store is away, it may be right."""
    cluster.make(3, 2)
    follow(cluster)
    three = cluster.brokers[3]
    before = three.controller.broker_epoch
    three.store.down = is_away
    three.controller.doubt_registration()
    wait(lambda done: three.controller.in_step(lambda: done(None)))
    if not is_away:
        assert three.controller.broker_epoch == before
        assert [each.leader for each in three.image.partitions()] == [3]
        return
    assert three.controller.broker_epoch == NO_BROKER_EPOCH
    assert [each.leader for each in three.image.partitions()] == [NO_LEADER]
    assert three.controller.thread.failures.count == 0
    wire.pauses_end()
    eventually(lambda: wire.pauses_of(3) > 0)
    three.store.down = False
    eventually(lambda: (wire.pauses_end(), three.controller.broker_epoch > before)[1])
    follow(cluster)


def test_a_start_under_an_id_in_use_waits_and_then_says_so(
    cluster: Cluster, wire: Wire, tmp_path: Path
) -> None:
    three, twin = cluster.brokers[3], OneBroker(tmp_path, 3)
    failures: list[BaseException] = []

    def start() -> None:
        try:
            twin.start(
                three.embedded.new_session(), locks=lambda: ["a copy's"], transport=wire.end_of(3)
            )
        except DataDirectoryError as error:
            failures.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    eventually(lambda: wire.pauses_of(3) > 0)
    twin.clock.advance(SETTINGS["zookeeper.session.timeout.ms"])
    wire.pauses_end()
    eventually(lambda: wire.pauses_of(3) > 0)
    assert not failures
    twin.clock.advance(SESSION_END_MS)
    wire.pauses_end()
    thread.join()
    assert "node.id 3 is in use" in str(failures[0])
    assert three.controller.broker_epoch == cluster.epochs()[3]


def test_a_start_that_waits_outlives_a_store_that_is_away(
    cluster: Cluster, wire: Wire, tmp_path: Path
) -> None:
    three, again = cluster.brokers[3], OneBroker(tmp_path, 3)
    session = three.embedded.new_session()
    thread = threading.Thread(
        target=lambda: again.start(session, locks=lambda: ["other"], transport=wire.end_of(3))
    )
    thread.start()
    eventually(lambda: wire.pauses_of(3) > 0)
    again.store.down = True
    wire.pauses_end()
    eventually(lambda: wire.pauses_of(3) > 0 or not thread.is_alive())
    assert thread.is_alive()
    again.store.down = False
    three.store.down = True
    three.embedded.close()
    wire.pauses_end()
    thread.join()
    assert again.controller.broker_epoch != NO_BROKER_EPOCH
    three.stop()
    cluster.brokers[3] = again


def test_a_broker_that_is_not_registered_is_not_elected(cluster: Cluster, wire: Wire) -> None:
    three = cluster.brokers[3]
    twin = usurp(cluster, 3)
    eventually(lambda: three.controller.broker_epoch == NO_BROKER_EPOCH and wire.pauses_of(3) > 0)
    wire.pauses_end()  # it has a session again, and finds the other one there
    eventually(lambda: wire.pauses_of(3) > 0)
    cluster.brokers.pop(2).stop()
    cluster.controller.store.down = True
    twin.delete(records.CONTROLLER)
    three.controller._on_session_event(three.store.session_id, SessionEvent.CONNECTED)
    for _ in range(2):
        wait(lambda done: three.controller.in_step(lambda: done(None)))
    assert not three.controller.active
    twin.close()
    eventually(lambda: (wire.pauses_end(), three.controller.active)[1])
    assert three.controller.broker_epoch != NO_BROKER_EPOCH


@pytest.mark.parametrize("given_up", [True, False])
def test_a_start_goes_on_when_the_other_session_ends_or_it_is_given_up(
    cluster: Cluster, wire: Wire, tmp_path: Path, given_up: bool
) -> None:
    three, again = cluster.brokers[3], OneBroker(tmp_path, 3)
    session = three.embedded.new_session()
    thread = threading.Thread(
        target=lambda: again.start(session, locks=lambda: ["other"], transport=wire.end_of(3))
    )
    thread.start()
    eventually(lambda: wire.pauses_of(3) > 0)
    if given_up:
        again.controller.start_given_up = True
    else:
        three.store.down = True
        three.embedded.close()
    wire.pauses_end()
    thread.join()
    assert (again.controller.broker_epoch == NO_BROKER_EPOCH) is given_up
    if not given_up:
        cluster.brokers[3] = again
        eventually(lambda: cluster.epochs().get(3) == again.controller.broker_epoch)
        three.stop()
        return
    again.stop()
    assert cluster.controller.embedded.exists(records.broker_path(3))


def test_a_broker_that_is_cut_off_from_the_store_follows_the_next_controller(
    cluster: Cluster,
) -> None:
    cluster.make(3, 2)
    follow(cluster)
    two = cluster.brokers[2]
    two.store.down = True
    next_one = update_of(cluster, two)
    sent = cluster.controller.image.at_version(0)
    delta = ClusterDelta.between(ClusterImage(), replace(sent, controller_id=3))
    next_one = next_one._replace(
        controller_id=3, controller_epoch=next_one.controller_epoch + 1, delta=delta
    )
    answer: ImageAnswer = wait(lambda done: two.controller.follow(next_one, done))
    assert answer.error is ErrorCode.NONE and two.image.controller_id == 3
    late = update_of(cluster, two)
    answer = wait(lambda done: two.controller.follow(late, done))
    assert answer.error is ErrorCode.STALE_CONTROLLER_EPOCH
    # None was elected in that epoch: when the store is back, all is sent again.
    before = two.controller.broker_epoch
    two.store.down = False
    two.controller._on_session_event(two.store.session_id, SessionEvent.CONNECTED)
    eventually(lambda: two.controller.broker_epoch > before)
    follow(cluster)
    assert two.image.controller_id == 1
