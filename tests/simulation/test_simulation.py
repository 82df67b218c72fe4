"""Seeds in which everything must hold, and that a history is the same every time."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

from kbroker.coordinator.runtime._shard_table import ACTIVE, LOADING
from tests.simulation import group_members, links
from tests.simulation.__main__ import main
from tests.simulation.act import Act
from tests.simulation.clients import GIVE_UP_MS, Producer
from tests.simulation.cluster import BROKERS, Cluster
from tests.simulation.history import _write, run
from tests.simulation.network import CLIENTS, Network
from tests.simulation.registrations import Registrations
from tests.simulation.safety import Violation
from tests.simulation.shrink import shrink
from tests.simulation.views import View

SEEDS = 50
EVENTS_MIN = 200
LATE_MS = GIVE_UP_MS + 800


@pytest.mark.parametrize("first", range(0, SEEDS, 25))
def test_everything_holds(first: int, tmp_path: Path) -> None:
    progress = tmp_path / "progress.json"
    seeds = f"{first}..{first + 25}"
    assert main(["--seeds", seeds, "--progress", str(progress)]) == 0


def test_everything_holds_with_producers_that_do_not_wait(tmp_path: Path) -> None:
    progress = tmp_path / "progress.json"
    arguments = ["--pipelined", "--seeds", "0..20", "--progress", str(progress)]
    assert main(arguments) == 0
    waited, sent_on = run(1), run(1, pipelined=True)
    assert sent_on.acknowledged > 3 * waited.acknowledged


def test_everything_holds_where_images_are_larger_than_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = sum(run(seed).requests for seed in range(10))
    monkeypatch.setattr(links, "UPDATE_BYTES", (250, 100))
    outcomes = [run(seed) for seed in range(10)]
    assert all(outcome.violation is None for outcome in outcomes)
    assert sum(outcome.requests for outcome in outcomes) > whole


def test_a_write_waits_for_its_own_partition(tmp_path: Path) -> None:
    """A batch that is under way to another one is acknowledged meanwhile (pipelined 110850)."""
    cluster = Cluster(tmp_path, random.Random("write"), pipelined=True)
    cluster.begin()
    cluster.loop.run_until(cluster.loop.now_ms + 1_000)
    there, here = cluster.names
    state = cluster.safety.partition(here).state
    assert state is not None
    cluster.cut(CLIENTS, state.leader, 400)
    cluster.produce(0, 0)
    assert _write(cluster, 1)
    cluster.close()
    assert {*cluster.safety.acknowledged} == {here, there}
    assert run(110850, pipelined=True).violation is None


def test_a_copy_in_its_place_and_a_power_cut_may_lose_the_records_of_two() -> None:
    """Broker 1 is cut off from the store, its copy registers as lossy and leaves the sets with it,
    and the power of the only other one in sync was cut. One of the two is no excuse."""
    schedule = (
        Act(218, "stop", (3, 29)),
        Act(222, "produce", (3, 1)),
        Act(384, "alone", (2, 991)),
        Act(499, "twin", (1, 2_593)),
        Act(1_213, "pause", (1, 405)),
        Act(1_372, "isolate", (1, 1_967)),
        Act(1_551, "cut_power", (2, 1_035)),
    )
    assert run(900128, schedule).violation is None
    with mock.patch.object(Registrations, "note", return_value=False):
        lost = run(900128, schedule).violation
    assert lost is not None and lost.rule == "a leader has all committed records"


@pytest.mark.parametrize("seed", [1, 3])
def test_a_log_that_its_leader_does_not_know_yet_is_not_waited_for(seed: int) -> None:
    """Broker 3 gives its log away and begins again with nothing; the leader, which the controller
    does not reach, answers of the log before it. The new one begins where its leader's does."""
    schedule = (
        Act(100, "produce", (0, 1)),
        Act(300, "delete_records", (1, 100)),
        Act(1_000, "part", (1, 2, 700)),
        Act(1_010, "reassign", (1, 1, 2)),
        Act(1_100, "reassign", (1, 1, 2, 3)),
        Act(1_200, "delete_records", (1, 100)),
    )
    assert run(seed, schedule).violation is None
    with mock.patch.object(View, "is_known_in", return_value=True):
        early = run(seed, schedule).violation
    assert early is not None and early.rule == "records are deleted at all live replicas"


def test_a_broker_that_is_away_before_it_has_a_log_deletes_nothing(tmp_path: Path) -> None:
    """It may copy from another that was away, and lead with deleted records (history 1038270)."""
    cluster = Cluster(tmp_path, random.Random("deleted"))
    cluster.begin()
    name = cluster.names[0]
    partition = cluster.safety.partition(name)
    assert partition.state is not None and partition.state.leader == 1
    cluster.loop.run_until(cluster.loop.now_ms + 100)
    cluster.take_away(2)
    cluster.take_away(3)
    del partition.views[2]
    leader = cluster.running(1)
    cluster.safety.deleted(leader, name, 0, cluster.safety.registered(leader))
    cluster.close()
    assert partition.undeleted == {2, 3}


def test_a_copy_has_deleted_records_where_its_leader_was_away(tmp_path: Path) -> None:
    """Records that broker 1 alone deleted are back with its next log, a copy (history 1081663)."""
    cluster = Cluster(tmp_path, random.Random("copied"))
    cluster.begin()
    assert _write(cluster, 0)
    name, follower = cluster.names[0], cluster.running(2)
    partition = cluster.safety.partition(name)
    partition.deleted_to = 1
    for away, expected in ((3, {3}), (1, {1, 2})):
        partition.undeleted = {away}
        cluster.safety.led(follower, partition.views[2].replica, follower.states[name])
        assert partition.undeleted == expected
    cluster.close()


@pytest.mark.parametrize("in_sync", [(1,), (1, 2)])
def test_a_leader_alone_may_have_lost_records_of_the_others(
    tmp_path: Path, in_sync: tuple[int, ...]
) -> None:
    """It answers in its epoch, though the store has a later one already (history 1049737)."""
    cluster = Cluster(tmp_path, random.Random("alone"))
    cluster.begin()
    assert _write(cluster, 0)
    name, leader = cluster.names[0], cluster.running(1)
    partition = cluster.safety.partition(name)
    view, stored = partition.views[1], partition.state
    assert stored is not None and view.replica is not None and partition.committed
    partition.state = stored._replace(leader_epoch=stored.leader_epoch + 1)
    for node_id in (1, 2, 3):
        partition.losses.add(node_id, partition.committed)
    view.contents.records.clear()
    state = dataclasses.replace(leader.states[name], isr=in_sync)
    cluster.safety.led(leader, view.replica, state)
    cluster.close()
    assert partition.lost is (in_sync == (1,))


@pytest.mark.parametrize("newer", [0, 1])
def test_a_leader_of_an_older_epoch_need_not_know_a_producer(tmp_path: Path, newer: int) -> None:
    """Its successor has acknowledged records that it lacks (history 3032706)."""
    cluster = Cluster(tmp_path, random.Random("older"))
    cluster.begin()
    assert _write(cluster, 0)
    name, producer = cluster.names[0], cluster.producers[0]
    partition = cluster.safety.partition(name)
    stored = partition.state
    assert stored is not None
    partition.state = stored._replace(leader_epoch=stored.leader_epoch + newer)
    producer._lines[name].sequence += 1
    with nullcontext() if newer else pytest.raises(Violation, match="knows a producer's sequence"):
        cluster.produce(0, 0)
        cluster.loop.run_until(cluster.loop.now_ms + 100)
    cluster.close()


@pytest.mark.parametrize(
    ("later", "under_way", "may_be_unknown"),
    [(0, False, False), (4, False, False), (4, True, True), (5, False, True)],
)
def test_a_leader_knows_the_last_five_batches_of_a_producer(
    tmp_path: Path, later: int, under_way: bool, may_be_unknown: bool
) -> None:
    """A request is late, and the same batch was acknowledged when it was sent again (5111605)."""
    cluster = Cluster(tmp_path, random.Random("five"))
    cluster.begin()
    name, producer = cluster.names[0], cluster.producers[0]
    cluster.produce(0, 0)
    assert isinstance(producer, Producer)
    sending = producer.sending[name]
    while name in producer.sending:
        cluster.loop.run_until(cluster.loop.now_ms + 100)
    for _ in range(later):
        assert _write(cluster, 0)
    if under_way:
        cluster.produce(0, 0)
    producer._is_out_of_order(sending, cluster.running(cluster.leader_of(name)[0]))
    assert (cluster.safety.violation is None) is may_be_unknown
    cluster.close()


@pytest.mark.parametrize("counts", [False, True])
def test_a_heartbeat_that_a_load_answers_does_not_keep_a_member(
    tmp_path: Path, counts: bool
) -> None:
    """Its session was over at the coordinator before (history 4401029)."""
    cluster = Cluster(tmp_path, random.Random("member"))
    cluster.begin()
    member, state = cluster.committers[1], LOADING if counts else ACTIVE

    def commit(wanted: int) -> None:
        member.commit()
        while member.acknowledged < wanted:
            cluster.loop.run_until(cluster.loop.now_ms + 100)

    with mock.patch.multiple(group_members, HEARTBEATS=1, LEAVES=0, ACTIVE=state):
        commit(1)
        cluster.loop.run_until(cluster.loop.now_ms + group_members.SESSION_MS + 500)
        cluster.take_away(cluster.leader_of(member._home)[0])
        for node_id in BROKERS:
            cluster.slow_loads(node_id, 4_000)
        with pytest.raises(Violation, match="stays one") if counts else nullcontext():
            commit(2)
    cluster.close()


def test_a_leader_counts_how_long_a_follower_lags_from_the_beginning_of_its_epoch() -> None:
    """Its image of that epoch is late: a request with it was lost, and is sent again."""
    schedule = (
        Act(70, "hang_fetchers", (3, 5_500)),
        Act(506, "alone", (2, 168)),
        Act(616, "cut_power", (1, 20)),
        Act(778, "produce", (0, 1)),
    )
    assert run(5_104_736, schedule, transactions=True).violation is None


@pytest.mark.parametrize("seed", [1, 32])
def test_requests_that_were_lost_on_the_way_are_awaited(seed: int) -> None:
    """Requests of before a way was mended: an image with a follower's new start, whose fetches its
    leader refuses until then; a follower's fetch. Both are sent again in time after the mending."""
    schedule = (
        Act(10, "part", (1, 2, 1_700)),
        Act(100, "kill", (3, 30)),
        Act(5_000, "ask_end", (0,)),  # nothing else happens until then
    )
    assert run(seed, schedule).violation is None
    with mock.patch.object(Network, "_held_up", return_value=set()):
        early = run(seed, schedule).violation
    assert early is not None and early.rule == "a follower fetches"


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("given_up", [False, True])
def test_a_batch_that_its_producer_gave_up_may_come_at_any_time(
    tmp_path: Path, given_up: bool, pipelined: bool
) -> None:
    """Even after its later batches under another id. No other batch may."""
    cluster = Cluster(tmp_path, random.Random("late"), pipelined=pipelined)
    cluster.begin()
    assert _write(cluster, 0)
    partition = cluster.safety.partition(cluster.names[0])
    assert partition.state is not None
    cluster.network.delay(CLIENTS, partition.state.leader, LATE_MS)
    assert not _write(cluster, 0)
    cluster.network.delay(CLIENTS, partition.state.leader, 0)
    assert _write(cluster, 0)
    before = len(partition.committed)
    if not given_up:
        cluster.safety.given_up.clear()
    with nullcontext() if given_up else pytest.raises(Violation, match="in the order of sending"):
        cluster.loop.run_until(cluster.loop.now_ms + 1_000)
    assert len(partition.committed) > before
    cluster.close()


def test_a_history_is_long_enough() -> None:
    outcomes = [run(seed) for seed in range(5)]
    assert all(outcome.steps >= EVENTS_MIN for outcome in outcomes)
    assert all(outcome.acknowledged for outcome in outcomes)
    assert sum(outcome.consumed > 0 for outcome in outcomes) > len(outcomes) / 2


def test_a_seed_is_the_same_history_in_every_process() -> None:
    """Also where the order of its sets differs."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", "3"]
    outputs = {
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1 and b"all held" in outputs.pop()


def test_the_progress_is_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    progress = tmp_path / "progress.json"
    for _ in range(2):
        assert main(["--seeds", "0..2", "--progress", str(progress)]) == 0
    assert "2 histories, 0 failed" in capsys.readouterr().out.splitlines()[-1]


def test_a_schedule_shrinks_to_the_acts_that_make_it_fail() -> None:
    schedule = [Act(at, "produce", (at,)) for at in range(37)]

    def fails(tried: object) -> str | None:
        left = {act.at_ms for act in tried}  # type: ignore[attr-defined]
        return "both" if {5, 30} <= left else None

    assert [act.at_ms for act in shrink(schedule, "both", fails)] == [5, 30]
