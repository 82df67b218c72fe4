"""Histories with transactions: seeds in which everything must hold, and faults that are found."""

from __future__ import annotations

import random
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

from kbroker.coordinator.txn.image import Pair, TransactionImage
from kbroker.coordinator.txn.states import State
from kbroker.types import ApiKey
from tests.simulation.cluster import Cluster
from tests.simulation.history import _transact, run
from tests.simulation.planted_transactions import PLANTED_IN_TRANSACTIONS
from tests.simulation.safety import Violation

SEEDS = range(12)


def test_everything_holds_in_transactions() -> None:
    outcomes = [run(seed, transactions=True) for seed in SEEDS]
    assert [each.violation for each in outcomes if each.violation] == []
    assert sum(each.committed for each in outcomes) > 10 * len(SEEDS) / 4
    assert sum(each.aborted for each in outcomes) > len(SEEDS)
    assert sum(each.left_out for each in outcomes) > len(SEEDS)


@pytest.mark.parametrize("lost", [False, True])
def test_a_partition_that_lost_its_marker_does_not_say_how_a_transaction_ended(
    tmp_path: Path, lost: bool
) -> None:
    """Records without their marker are ended by that of a later transaction (history 185)."""
    cluster = Cluster(tmp_path, random.Random("lost"))
    here, there = cluster.names
    transaction = cluster.ledger.begin(object())
    transaction.acknowledged[b"x"] = there
    transaction.outcomes.update({here: True, there: False})
    cluster.safety.partition(here).lost = lost
    cluster.ledger.look_at_all()
    assert (cluster.safety.violation is None) is lost
    cluster.close()


@pytest.mark.parametrize(
    ("epochs", "leads", "is_late"),
    [([0, 1, 2], False, True), ([0, 1, 2], True, False), ([0, 2, 1], False, False),
     ([0, 2], False, False)],
)  # fmt: skip
def test_an_epoch_below_others_is_given_late_and_came_before_them_in_the_log(
    tmp_path: Path, epochs: list[int], leads: bool, is_late: bool
) -> None:
    """A coordinator is paused, and answers when another has given more (history 4203239)."""
    cluster = Cluster(tmp_path, random.Random("late"))
    ledger, by = cluster.ledger, mock.Mock(node_id=1)
    home = ledger.home_of("x")
    leader = by.replicas.partition.return_value
    leader.leader_epoch = 3
    state = mock.Mock(leader=1, leader_epoch=3 if leads else 4)
    cluster.safety.partition(home).state = state
    ledger._states.extend(TransactionImage(7, each, 1, State.EMPTY, 1) for each in epochs)
    for epoch in (2, 1):
        ledger.gives(Pair(7, epoch), object(), by, home)
    assert (cluster.safety.violation is None) is is_late
    cluster.close()


@pytest.mark.parametrize("lost", [False, True])
def test_a_pair_is_given_to_two_producers_where_the_log_has_lost_it_and_nowhere_else(
    tmp_path: Path, lost: bool
) -> None:
    """A batch of the second one is answered as a duplicate of the first one's (4101467)."""
    cluster = Cluster(tmp_path, random.Random("shared"))
    home = cluster.ledger.home_of("x")
    cluster.states = [home]
    cluster.safety.partition(home).lost = lost
    for _ in range(2):
        assert not cluster.ledger.is_shared(Pair(7, 0))
        cluster.ledger.gives(Pair(7, 0), object(), mock.Mock(node_id=1), home)
    assert cluster.ledger.is_shared(Pair(7, 0))
    assert (cluster.safety.violation is None) is lost
    cluster.close()


@pytest.mark.parametrize(
    ("is_over", "epoch", "is_served"),
    [(True, 0, False), (True, 1, True), (False, 0, True)],
)
def test_a_late_commit_of_tv1_does_not_end_the_next_transaction_of_a_process_that_ended(
    tmp_path: Path, is_over: bool, epoch: int, is_served: bool
) -> None:
    """The coordinator cannot tell them apart until the epoch is raised (4301739, 4302072)."""
    cluster = Cluster(tmp_path, random.Random("ended"))
    producer, running = cluster.transactional[0], mock.Mock()
    owner = producer._owner
    producer._pair = Pair(7, 0)
    first = owner.transaction = cluster.ledger.begin(owner)
    late = producer._serving(ApiKey.END_TXN, 4, b"", mock.Mock(), owner, producer._pair, first)
    if is_over:
        owner.transaction = cluster.ledger.begin(owner)
    producer.crash()
    cluster.ledger._pairs["x"] = Pair(7, epoch)
    late(running, mock.Mock())
    assert running.serve.called is is_served
    cluster.close()


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_transaction_has_a_longer_timeout_where_messages_are_slow_and_nowhere_else(
    tmp_path: Path, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its messages follow one another (histories 4206637 and 4302209)."""
    cluster = Cluster(tmp_path, random.Random("slow"))
    cluster.network._slow_percent = 10 if is_slow else 0
    cluster.begin()
    cluster.serve_transactions(1, 0, 2)
    cluster.heal()
    producer = cluster.transactional[0]
    producer.timeout_ms = 1
    transact = producer.transact

    def with_a_longer_timeout_only(**how: bool) -> None:
        if producer.timeout_ms > 1:
            transact(**how)

    monkeypatch.setattr(producer, "transact", with_a_longer_timeout_only)
    with nullcontext() if is_slow else pytest.raises(Violation, match="no transaction"):
        _transact(cluster)
    cluster.close()
    assert producer.committed == is_slow


@pytest.mark.parametrize("name", PLANTED_IN_TRANSACTIONS)
def test_it_is_found(name: str) -> None:
    plant = PLANTED_IN_TRANSACTIONS[name]
    seeds = range(plant.first, plant.first + plant.seeds)
    with plant.switched_on():
        assert any(run(seed, transactions=True).violation is not None for seed in seeds)


def test_all_other_acts_are_the_same_with_transactions_and_without() -> None:
    without, some = run(0, transactions=False), run(0, transactions=True)
    added = [each for each in some.schedule if each not in without.schedule]
    assert len(some.schedule) == len(without.schedule) + len(added)
    assert {"serve_transactions", "transact"} < {each.what for each in added}
    assert not without.committed
