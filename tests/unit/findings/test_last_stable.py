"""The verdict on each transaction that may hold a consumer of committed records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.findings import last_stable
from kbroker.findings.last_stable import Held, Offsets, held
from kbroker.peer.transaction_messages import (
    DescribedProducer,
    DescribedProducers,
    DescribedTransaction,
    Filter,
    ListedTransaction,
)
from kbroker.peer.transactions import Described, Listed
from kbroker.types import TopicPartition

A, B, C = TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("c", 0)
NOW_MS = 1_000_000
TIMEOUT_MS = 60_000


class Cluster:
    """One transaction, of producer id 7, and what its partitions say."""

    def __init__(self, state: str, *, began_ms: int = NOW_MS, partitions: Any = (A,)) -> None:
        self.described = DescribedTransaction(
            ErrorCode.NONE, "pay", state, TIMEOUT_MS, began_ms, 7, 0, tuple(partitions)
        )
        self.open = {A: (7, 12)}
        self.silent: set[TopicPartition] = set()

    def list_transactions(self, wanted: Filter) -> list[Listed]:
        is_its = self.described.producer_id in wanted.producer_ids and self.described.state
        listed = ListedTransaction("pay", 7, self.described.state)
        return [Listed(3, listed)] if is_its else []

    def describe(self, names: list[str]) -> dict[str, Described]:
        return {name: Described(3, self.described) for name in names}

    def producers_now(self, partitions: Any) -> dict[TopicPartition, DescribedProducers]:
        found = {}
        for each in set(partitions) - self.silent:
            at = self.open.get(each)
            its = () if at is None else (DescribedProducer(at[0], 0, 0, NOW_MS, -1, at[1]),)
            idle = DescribedProducer(1, 0, 0, NOW_MS, -1, -1)
            found[each] = DescribedProducers(ErrorCode.NONE, None, (idle, *its))
        return found


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Any:
    def judged(cluster: Cluster) -> Held:
        monkeypatch.setattr(last_stable, "Transactions", lambda client: cluster)
        client: Any = SimpleNamespace()
        (found,) = held(client, {A: Offsets(12, 20)}, NOW_MS)
        return found

    return judged


@pytest.mark.parametrize(
    ("open_ms", "says", "is_trouble"),
    [
        (20_000, "running: 'pay' has to commit or abort; its coordinator aborts it in 40s", False),
        (70_000, "its timeout is over: broker 3 aborts 'pay' soon", False),
        (90_000, "late: 'pay' is 30s over its timeout, and broker 3 has not aborted it", True),
    ],
)
def test_an_ongoing_one(judge: Any, open_ms: int, says: str, is_trouble: bool) -> None:
    found = judge(Cluster("Ongoing", began_ms=NOW_MS - open_ms))
    assert found.verdict.startswith(says) and found.is_trouble is is_trouble
    assert found.document()["transaction"]["id"] == "pay"


def test_markers_that_are_on_their_way(judge: Any) -> None:
    cluster = Cluster("PrepareAbort", partitions=(A, B, C))
    cluster.open[B] = (7, 1)
    found = judge(cluster)
    assert not found.is_trouble
    assert found.verdict == (
        "the abort of 'pay' is decided, and its markers are being written: a/0, b/1 have none yet"
    )
    cluster.silent = {C}
    found = judge(cluster)
    assert found.is_trouble and found.verdict.endswith(": c/0 cannot be reached")
    cluster.silent, cluster.open = set(), {A: (9, 12)}
    assert judge(cluster).is_trouble  # of another producer, which no coordinator has


def test_hanging_transactions(judge: Any) -> None:
    for state in ("", "Empty", "CompleteCommit"):
        found = judge(Cluster(state))
        assert found.is_trouble and found.verdict.startswith("hanging: ")
        assert "--topic a --partition 0 --start-offset 12 ends it now" in found.verdict
        assert ("no coordinator has" in found.verdict) is not bool(state)
    found = judge(Cluster("Ongoing", partitions=(B,)))
    assert found.is_trouble and "is open without this partition" in found.verdict
    assert "The leader ends it by itself" in found.verdict


def test_nothing_that_is_open_or_no_leader(judge: Any) -> None:
    cluster = Cluster("Ongoing")
    cluster.open = {}
    found = judge(cluster)
    assert not found.is_trouble and found.document() == {}
    assert found.verdict.startswith("no transaction is open: ")
    cluster.silent = {A}
    found = judge(cluster)
    assert found.is_trouble and found.verdict.endswith("LEADER_NOT_AVAILABLE")
