"""The page of transactions: the oldest first, and which of them hold back consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kbroker.console.asked import Refused
from kbroker.console.page import Cell, Facts, Tone
from kbroker.console.pages import transactions
from kbroker.errors import ErrorCode, KafkaError
from kbroker.findings.cluster_health import HeldBack
from kbroker.findings.last_stable import Held, Offsets
from kbroker.peer.transaction_messages import Client as OfClient
from kbroker.peer.transaction_messages import (
    DescribedProducer,
    DescribedProducers,
    DescribedTransaction,
    Filter,
    ListedTransaction,
)
from kbroker.peer.transactions import Described, Listed
from kbroker.types import TopicPartition
from tests.unit.console.fake_cluster import (
    NOW_MS,
    FakeClient,
    asked_of,
    cluster_of,
    facts,
    notices,
    part,
    rows,
    table_of,
)

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
TIMEOUT_MS = 60_000
NOTHING_HELD = HeldBack({}, ())


def described(name: str, open_ms: int, state: str = "Ongoing", **more: Any) -> Described:
    began = NOW_MS - open_ms
    return Described(
        3,
        DescribedTransaction(
            ErrorCode.NONE, name, state, TIMEOUT_MS, began, 7, 1, (A0, A1), more.get("client")
        ),
    )


class Coordinators:
    """In place of `Transactions`."""

    def __init__(self, *known: Described) -> None:
        self.known = {each.transaction.transactional_id: each for each in known}
        self.filters: list[Filter] = []
        self.most_described = 0
        self.of_partition: dict[TopicPartition, DescribedProducers] = {}

    def __call__(self, client: Any) -> Coordinators:
        return self

    def list_transactions(self, wanted: Filter) -> list[Listed]:
        self.filters.append(wanted)
        return [
            Listed(each.coordinator, ListedTransaction(name, 7, each.transaction.state))
            for name, each in self.known.items()
            if each.transaction.state in wanted.states
            and NOW_MS - each.transaction.start_ms > wanted.open_for_ms
        ]

    def describe(self, names: Sequence[str]) -> dict[str, Described]:
        self.most_described = max(self.most_described, len(names))
        lost = DescribedTransaction(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "", "", 0, -1, -1, -1, ())
        return {name: self.known.get(name, Described(-1, lost)) for name in names}

    def producers_now(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, DescribedProducers]:
        return self.of_partition


Install = Any


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def installed(*known: Described, held: HeldBack = NOTHING_HELD) -> Coordinators:
        coordinators = Coordinators(*known)
        monkeypatch.setattr(transactions, "Transactions", coordinators)
        monkeypatch.setattr(transactions, "held_back", lambda *_: held)
        return coordinators

    return installed


def client() -> FakeClient:
    return FakeClient(cluster_of((1,), a=[part(0), part(1)]))


def test_the_oldest_open_one_comes_first(install: Install) -> None:
    install(
        described("young", 1_000, client=OfClient("app", "/10.0.0.7")),
        described("over", 500, state="CompleteCommit"),
        described("old", TIMEOUT_MS + 5_000),
        described("ending", 30_000, state="PrepareAbort"),
    )
    page = transactions.make(asked_of(client()))
    found = rows(page, "open")
    assert [row["transactional_id"] for row in found] == ["old", "ending", "young"]
    assert [row["left_ms"] for row in found] == [-5_000, None, TIMEOUT_MS - 1_000]
    assert (found[2]["client_id"], found[2]["client_address"]) == ("app", "/10.0.0.7")
    assert found[0]["client_id"] is None and found[0]["open_ms"] == TIMEOUT_MS + 5_000
    late = table_of(page, "open").rows[0]
    assert Cell(-5_000, tone=Tone.BAD) in late


def test_of_many_the_ones_that_are_open_for_longest(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "DESCRIBED_MAX", 300)
    old = [described(f"old-{number}", 4_000_000 + number) for number in range(10)]
    coordinators = install(*[described(f"t{number}", 1_000) for number in range(1_000)], *old)
    page = transactions.make(asked_of(client()))
    found = rows(page, "open")
    assert len(found) == 300 and table_of(page, "open").total == 1_010
    assert [row["transactional_id"] for row in found[:10]] == [f"old-{n}" for n in range(9, -1, -1)]
    assert coordinators.most_described == 200
    assert any(each.startswith("1,010 transactions are open") for each in notices(page, Tone.WARN))


def test_which_transaction_holds_which_partition(install: Install) -> None:
    one = described("pay", 90_000)
    producer = DescribedProducer(7, 1, 0, NOW_MS, -1, 12)
    offsets = {A0: Offsets(12, 20), A1: Offsets(5, 500)}
    holder = Held(A0, 12, 20, producer, one, "late: 'pay' is 30s over its timeout", True)
    install(one, held=HeldBack(offsets, (holder,)))
    page = transactions.make(asked_of(client()))
    first, second = rows(page, "held")
    assert (first["partition"], first["waiting"], first["transactional_id"]) == (1, 495, None)
    assert (second["last_stable"], second["waiting"], second["producer_id"]) == (12, 8, 7)
    assert second["transactional_id"] == "pay" and str(second["verdict"]).startswith("late")
    assert table_of(page, "held").rows[1][-1].tone is Tone.BAD


HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e/../?a=b&c"


def test_one_id_with_its_partitions(install: Install) -> None:
    install(described(HOSTILE, 1_000))
    page = transactions.make(asked_of(client(), id=HOSTILE))
    assert facts(page, "transaction")["state"] == "Ongoing"
    assert [row["partition"] for row in rows(page, "partitions")] == [0, 1]
    (link,) = {row[0].path for row in table_of(page, "open").rows}
    assert link.startswith("/ui/transactions?id=%3Cscript%3E") and link.isprintable()
    lost = transactions.make(asked_of(client(), id="no-such"))
    assert any("TRANSACTIONAL_ID_NOT_FOUND" in each for each in notices(lost, Tone.BAD))
    assert not [each for each in lost.sections if isinstance(each, Facts)]
    with pytest.raises(Refused):
        transactions.make(asked_of(client(), id="x" * 40_000))


def test_the_producers_of_a_partition(install: Install) -> None:
    coordinators = install()
    idle = DescribedProducer(1, 0, 5, NOW_MS, -1, -1)
    busy = DescribedProducer(9, 2, 3, NOW_MS, 4, 100)
    coordinators.of_partition = {A0: DescribedProducers(ErrorCode.NONE, None, (idle, busy))}
    page = transactions.make(asked_of(client(), topic="a", partition="0"))
    assert [row["open_from"] for row in rows(page, "producers")] == [100, None]
    silent = transactions.make(asked_of(client(), topic="a", partition="1"))
    assert any("no leader answers" in each for each in notices(silent))
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    coordinators.of_partition = {A0: DescribedProducers(error, None, ())}
    denied = transactions.make(asked_of(client(), topic="a"))
    assert any("you may not see this" in each for each in notices(denied, Tone.WARN))
    with pytest.raises(Refused):
        transactions.make(asked_of(client(), topic="a", partition="-1"))


def test_a_part_that_is_refused_leaves_the_others(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(described("pay", 1_000))

    def refused(*_: Any) -> HeldBack:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "cut")

    monkeypatch.setattr(transactions, "held_back", refused)
    page = transactions.make(asked_of(client()))
    assert len(rows(page, "open")) == 1
    assert any(each.startswith("last stable offsets") for each in notices(page, Tone.BAD))
