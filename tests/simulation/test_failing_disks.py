"""A leader whose disk takes nothing any more hands over, and a disk that takes it again is used."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.log.engine.checkpoints import RECOVERY_POINT_FILE, read_offsets
from kbroker.metadata.image import NO_LEADER
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from kbroker.types import TopicPartition
from tests.simulation.act import Act
from tests.simulation.cluster import BROKERS, TOPIC, Cluster
from tests.simulation.history import run
from tests.simulation.power import Synced

FIRST = BROKERS[0]
NAME = TopicPartition(TOPIC, 0)
# Undone, as on a full disk; or not even that, and the log is offline.
FULL, BROKEN = ("write", "allocate"), ("write", "truncate")


@pytest.fixture(params=[2])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(tmp_path, random.Random("disks"))
    made.min_in_sync = request.param
    made.begin()
    assert run_until(made, lambda: leader_and_in_sync(made) == (FIRST, {*BROKERS}), 1_000)
    yield made
    made.close()


def run_until(cluster: Cluster, holds: Callable[[], bool], within_ms: int) -> bool:
    end_ms = cluster.loop.now_ms + within_ms
    while not holds() and cluster.loop.now_ms < end_ms:
        cluster.loop.run_until(cluster.loop.now_ms + 10)
    return holds()


def leader_and_in_sync(cluster: Cluster) -> tuple[int, set[int]]:
    state = cluster.running(BROKERS[1]).controller.image.partition(*NAME)
    return (NO_LEADER, set()) if state is None else (state.leader, {*state.isr})


def hands_over(cluster: Cluster) -> bool:
    """A batch, within the time in which a follower that lags would still be waited for."""
    producer = cluster.producers[0]
    before = producer.acknowledged[NAME]
    cluster.produce(0, 0)
    return run_until(cluster, lambda: producer.acknowledged[NAME] > before, 1_400)


@pytest.mark.parametrize("operations", [FULL, BROKEN])
@pytest.mark.parametrize("controller", [BROKERS[0], BROKERS[2]])
def test_a_leader_that_cannot_write_is_replaced(
    cluster: Cluster, operations: tuple[str, ...], controller: int
) -> None:
    if controller != FIRST:
        cluster.running(FIRST).events.hang(20)
        cluster.running(BROKERS[1]).events.hang(20)
        cluster.depose()
        running = cluster.running(controller)
        assert run_until(cluster, lambda: running.controller.active, 1_000)
    place = f"{cluster.brokers[FIRST].directory}/"
    with FileFaults(Fault(operations, place, times=FOREVER, error=errno.EIO)):
        assert hands_over(cluster)
        assert leader_and_in_sync(cluster)[0] != FIRST
        # It does not follow, either: it lacks the new records and leaves the in-sync set.
        assert run_until(cluster, lambda: FIRST not in leader_and_in_sync(cluster)[1], 1_000)
    came_back = run_until(cluster, lambda: FIRST in leader_and_in_sync(cluster)[1], 15_000)
    assert came_back == (operations is FULL)


@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_the_last_replica_in_sync_goes_on_leading_and_writes_again_later(cluster: Cluster) -> None:
    """There is no broker to hand over to: readers are served, and no start is needed."""
    for node_id in BROKERS[1:]:
        cluster.take_away(node_id)
    one = cluster.running(FIRST)

    def state() -> tuple[int, tuple[int, ...]]:
        found = one.controller.image.partition(*NAME)
        assert found is not None
        return found.leader, found.isr

    assert run_until(cluster, lambda: state() == (FIRST, (FIRST,)), 5_000)
    place = f"{cluster.brokers[FIRST].directory}/"
    with FileFaults(Fault(FULL, place, times=FOREVER, error=errno.ENOSPC)):
        assert not hands_over(cluster)
        assert state() == (FIRST, (FIRST,))
    assert hands_over(cluster)


def test_a_broker_that_started_on_a_full_disk_starts_again_after_the_healing() -> None:
    """It opened no log, and still waits for the end of the session of its copy."""
    schedule = (
        Act(1_318, "commit", (0,)),
        Act(1_385, "twin", (FIRST, 1_272)),
        Act(1_538, "stop", (3, 36)),
        Act(1_614, "stop", (FIRST, 870)),
        Act(1_735, "fill_disk", (FIRST, 3_543)),
    )
    assert run(700442, schedule).violation is None


def test_a_power_cut_leaves_records_synced_before_a_cut_was_given_up(cluster: Cluster) -> None:
    """The lower recovery point cannot be written, so the log stays as it is (history 5200008)."""
    assert hands_over(cluster)
    broker = cluster.running(FIRST)
    replica = broker.replicas.partition(*NAME)
    assert replica is not None and replica.log.flush()
    broker.checkpoint()
    directory = cluster.brokers[FIRST].directory
    fault = Fault(FULL, f"{directory}/", times=FOREVER, error=errno.EIO)
    with FileFaults(fault), pytest.raises(OSError):
        replica.log.truncate_to(0)
    assert (replica.log.recovery_point, replica.log_end_offset) == (0, 1)
    points = read_offsets(directory / RECOVERY_POINT_FILE)
    assert Synced.of(replica, points[NAME]).recovery_point == 1
