"""Starts that may have lost something: taken account of once, by whichever controller."""

from __future__ import annotations

import errno
import threading
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest

from kbroker.metadata.controller import records
from kbroker.metadata.controller.nodes import MetadataNodes, load_brokers
from kbroker.metadata.controller.partition_states import ElectionRules
from kbroker.metadata.image import BrokerImage
from kbroker.metadata.store.base import StoreUnavailableError
from tests.unit.metadata.controller.brokers import Cluster, Wire, agree
from tests.unit.metadata.controller.harness import OneBroker, eventually


@pytest.mark.parametrize("full", [False, True])
def test_a_lossy_start_is_one_until_a_controller_has_taken_it_out_of_its_sets(
    cluster: Cluster, wire: Wire, tmp_path: Path, full: bool
) -> None:
    """Whether the broker can write down that it is known or not."""
    cluster.make(3, 2)
    cluster.end(3)
    wire.holds.add(3)
    remembered = Mock(
        side_effect=OSError(errno.ENOSPC, "No space left on device") if full else None
    )
    cluster.start(3, tmp_path, broker=BrokerImage(3, lossy=True), start_is_known=remembered)
    assert not any(each.lossy for each in load_brokers(cluster.controller.embedded))
    assert not any(each.lossy for each in cluster.controller.image.brokers.values())
    assert not remembered.called
    wire.release()
    eventually(lambda: "t" in cluster.brokers[3].image.topics)
    eventually(lambda: remembered.call_count == 1)
    # By the next controller it is not taken for another one.
    cluster.alter(2, 2, 3)
    cluster.controller.store_is_away = True  # else it may be back before the controller has looked
    cluster.controller.embedded.expire()
    two, three = cluster.brokers[2], cluster.brokers[3]
    eventually(lambda: agree(two.image, three.image) and 1 not in two.image.brokers)
    assert two.image.topics["t"].partitions[0].isr == (3, 2)


@pytest.mark.parametrize("controls", [False, True])
def test_that_a_lossy_start_is_known_is_noted_when_there_is_room_again(
    cluster: Cluster, wire: Wire, tmp_path: Path, controls: bool
) -> None:
    """Without another image: else a crash of the process would count as a loss for ever."""
    noted = Mock(side_effect=[OSError(errno.ENOSPC, "No space left on device"), None])
    cluster.end(3)
    options = {"broker": BrokerImage(3, lossy=True), "start_is_known": noted}
    if controls:
        wire, three = Wire(), OneBroker(tmp_path / "alone", 3)
        three.start(transport=wire, renew=three.next_session, **options)
    else:
        cluster.start(3, tmp_path, **options)
        three = cluster.brokers[3]
    eventually(lambda: (wire.pauses_end(), noted.call_count == 2)[1])
    if controls:
        three.stop()


def test_an_unclean_election_is_counted_though_a_lossy_start_beside_it_cannot_be_noted(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.rules = ElectionRules(unclean=True)
    cluster.make(2, 1)
    one = cluster.controller
    cluster.alter(2, 2)
    cluster.end(3)
    note, failures = MetadataNodes.note_losses, [StoreUnavailableError("/", "injected")]

    def fail_once(nodes: MetadataNodes, starts: Mapping[int, int]) -> None:
        if failures:
            raise failures.pop()
        note(nodes, starts)

    monkeypatch.setattr(MetadataNodes, "note_losses", fail_once)
    both = threading.Event()
    one.controller.in_step(lambda: both.wait(60))
    cluster.brokers.pop(2).stop()
    three = OneBroker(tmp_path, 3)
    cluster.brokers[3] = three
    three.start(
        one.embedded.new_session(),
        broker=BrokerImage(3, lossy=True),
        transport=cluster.wire,
        renew=three.next_session,
    )
    both.set()
    eventually(lambda: one.image.brokers.keys() == {1, 3} and not one.image.brokers[3].lossy)
    assert (cluster.state.leader, cluster.state.isr, failures) == (1, (1,), [])
    assert one.controller.statistics().unclean_elections == 1


def test_a_store_without_the_folder_of_losses_knows_none(cluster: Cluster, tmp_path: Path) -> None:
    store = cluster.controller.embedded
    cluster.end(3)
    store.delete(records.LOSSES)
    cluster.start(3, tmp_path, broker=BrokerImage(3, lossy=True))
    assert not any(each.lossy for each in load_brokers(store))
    store.delete(records.losses_path(3))
    store.delete(records.LOSSES)
    cluster.end(2)
    assert [each.node_id for each in load_brokers(store)] == [1, 3]
    assert not any(each.lossy for each in load_brokers(store))
