"""What the metrics topic says of single transactions: of a real coordinator, and of leaders."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cluster.open_transactions import Holder
from kbroker.observe import seen_transactions
from kbroker.observe.seen_transactions import NONE_SEEN, Client, seen
from kbroker.security.session import ANONYMOUS, Session
from kbroker.types import TopicPartition
from tests.unit.coordinator.txn.world import World

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
CLIENT = Session(ANONYMOUS, "cashier", "PLAIN", "10.1.2.3")


def open_in(world: World, name: str) -> Any:
    answer = world.init(name=name)
    assert answer is not None
    world.add(answer[1], name=name)
    return answer[1]


def test_ids_that_aborted_or_are_open_for_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.coordinator.remember("none", CLIENT)
    pairs = {name: open_in(world, name) for name in ("pay", "slow", "late")}
    world.end(pairs["pay"], False, name="pay")
    world.coordinator.remember("slow", CLIENT)
    world.pass_ms(10_000)
    open_in(world, "young")
    found = seen(world.coordinator, [], {}.get, world.clock.wall_ms())
    assert found.aborted == [("pay", 1, 0, Client())]
    assert [(each.transactional_id, each.open_s) for each in found.is_open] == [
        ("slow", 10.0), ("late", 10.0)
    ]  # fmt: skip
    (slow, _) = found.is_open
    assert (slow.state, slow.timeout_ms, slow.partitions) == ("Ongoing", 60_000, 1)
    assert slow.client == ("cashier", "10.1.2.3")
    monkeypatch.setattr(seen_transactions, "OPEN_MAX", 1)
    (longest,) = seen(world.coordinator, [], {}.get, world.clock.wall_ms() + 1).is_open
    assert longest.transactional_id == "slow"
    world.pass_ms(50_001)
    world.look()  # both are over their time
    found = seen(world.coordinator, [], {}.get, world.clock.wall_ms())
    assert [each[:3] for each in found.aborted] == [
        ("pay", 1, 0), ("slow", 1, 1), ("late", 1, 1)
    ]  # fmt: skip
    assert [each.transactional_id for each in found.is_open] == ["young"]


def test_transactions_that_hold_the_last_stable_offset() -> None:
    transaction: Any = SimpleNamespace(producer_id=9, producer_epoch=1, first_offset=52)
    replica: Any = SimpleNamespace(statistics=lambda: {"high_watermark": 60})
    holders = [Holder(A, transaction, 20.0), Holder(B, transaction, 9.9)]
    found = seen(None, holders, {A: replica, B: replica}.get, 0)
    assert found.held == [(A, 9, 1, 52, 20.0, 8)]
    assert seen(None, holders, {}.get, 0) == NONE_SEEN
    transaction.first_offset = 60  # it has ended since the look
    assert seen(None, holders, {A: replica}.get, 0).held == []
