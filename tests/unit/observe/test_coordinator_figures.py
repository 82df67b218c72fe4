"""Figures of the transaction coordinator: what a scrape shows of ids, loads and waiting markers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kbroker.coordinator.runtime.loader import LoadTimes
from kbroker.errors import ErrorCode
from kbroker.metrics.catalogue import BY_KEY
from kbroker.metrics.model import Figures
from kbroker.observe.coordinator_figures import samples
from tests.unit.coordinator.txn.world import World


def found(transactions: Any) -> dict[str, Any]:
    figures: dict[str, Figures | Any] = {}
    for piece in samples(transactions):
        figures |= piece
    assert set(figures) <= set(BY_KEY)
    return figures


def served(world: World, times: LoadTimes, waiting: tuple[int, int]) -> Any:
    return SimpleNamespace(
        coordinator=world.coordinator,
        loader=SimpleNamespace(times=times),
        markers=SimpleNamespace(waiting=waiting),
    )


def test_a_broker_that_coordinates_nothing() -> None:
    figures = found(None)
    assert figures.pop("transactional_ids") == []
    assert set(map(tuple, figures.values())) == {(((), 0),)}


def test_ids_loads_and_markers() -> None:
    world = World()
    for name in ("open", "late", "idle"):
        answer = world.init(name=name)
        assert answer is not None
        if name != "idle":
            world.add(answer[1], name=name)
        if name == "late":
            world.log.refuses = [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]
            world.end(answer[1], name=name)
    times = LoadTimes().with_one(10).with_one(20)
    figures = found(served(world, times, (3, 2)))
    assert {labels[0]: count for labels, count in figures["transactional_ids"]} == {
        "Empty": 1, "Ongoing": 1, "PrepareCommit": 1, "PrepareAbort": 0, "CompleteCommit": 0,
        "CompleteAbort": 0,
    }  # fmt: skip
    assert figures["transactions_append_retry"] == [((), 1)]
    assert figures["transactions_load_max"] == [((), 20)]
    assert figures["transactions_load_avg"] == [((), 15)]
    assert figures["markers_queued"] == [((), 3)]
    assert figures["markers_unknown_destination"] == [((), 2)]
    world.run_later()
    world.pass_ms(60_001)
    world.look()
    figures = found(served(world, times, (0, 0)))
    assert figures["transactions_append_retry"] == [((), 0)]
    assert figures["transactions_timed_out"] == figures["transactions_aborted"] == [((), 1)]
    assert figures["transactions_committed"] == [((), 1)]
    counts = {labels[0]: count for labels, count in figures["transactional_ids"]}
    assert (counts["CompleteCommit"], counts["CompleteAbort"]) == (1, 1)
