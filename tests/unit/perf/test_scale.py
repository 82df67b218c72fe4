"""The simulated path of a request, where its answer is known, and beside what was measured."""

from __future__ import annotations

import json

import pytest

from kbroker.generated_part import replaced
from perf.scale import __main__ as scale
from perf.scale import tables
from perf.scale.bounds import Machine, bounds
from perf.scale.measured import from_json
from perf.scale.path import Costs, Shape, predicted

COSTS = Costs(processor_us=3.0, handler_us=2.0, client_us=5.0)
# A prediction and a measured rate of these cells may differ by this factor. The page says why the
# others may differ by more.
HELD = ("p-100-16x5", "p-1k-16x5", "j-100-16x5", "f-16k", "heartbeat-16x5")
WITHIN = 1.25
KEPT = json.loads(scale.KEPT.read_text())


def rate(shape: Shape, costs: Costs = COSTS) -> float:
    return predicted(costs, shape, 20_000).requests_per_s


def test_on_one_core_all_costs_add_up() -> None:
    found = predicted(COSTS, Shape(1, 1, client="shares"), 20_000)
    assert found.requests_per_s == pytest.approx(1e6 / 10, rel=0.01)
    assert found.stops_at == "cores" and found.busy["cores"] == pytest.approx(1.0, rel=0.01)


def test_two_cores_are_shared_by_three_threads() -> None:
    assert rate(Shape(2, 1, client="shares")) == pytest.approx(2e6 / 10, rel=0.05)
    # No thread is faster than itself.
    slow = Costs(1.0, 1.0, 20.0)
    assert rate(Shape(2, 1, client="shares"), slow) == pytest.approx(1e6 / 20, rel=0.02)


def test_a_client_on_a_core_of_its_own() -> None:
    assert rate(Shape(1, 1, client="own core")) == pytest.approx(1e6 / 5, rel=0.02)
    assert rate(Shape(1, 1, client="own core"), Costs(3.0, 2.0, 1.0)) == pytest.approx(
        1e6 / 5, rel=0.02
    )


@pytest.mark.parametrize(("processors", "takers"), [(1, 1), (3, 1), (10, 1), (10, 2), (10, 5)])
def test_with_cores_enough_the_busiest_kind_of_thread_decides(processors: int, takers: int) -> None:
    found = predicted(COSTS, Shape(32, processors, takers, connections=160), 40_000)
    expected = min(processors / 3.0, takers / 2.0) * 1e6
    assert found.requests_per_s == pytest.approx(expected, rel=0.06)
    assert found.stops_at == ("processors" if processors / 3.0 < takers / 2.0 else "takers")


def test_few_requests_in_flight_are_limited_by_the_way() -> None:
    """One at a time: it is in one place at a time."""
    assert rate(Shape(32, 10, 5, connections=1, in_flight=1)) == pytest.approx(1e6 / 5, rel=0.01)


def test_the_lock_of_the_queue_is_held_by_one() -> None:
    """Each push and each take holds it, however many requests there are in one of them."""
    free = predicted(COSTS, Shape(32, 10, 1, connections=160), 40_000)
    held = predicted(COSTS, Shape(32, 10, 1, connections=160, queue_us=50.0), 40_000)
    assert held.stops_at == "queue" and held.busy["queue"] == pytest.approx(1.0, rel=0.05)
    assert held.requests_per_s < 0.9 * free.requests_per_s
    two = predicted(COSTS, Shape(32, 10, 2, connections=160, queue_us=50.0), 40_000)
    assert two.requests_per_s > 1.5 * held.requests_per_s


def test_the_same_shape_gives_the_same_answer() -> None:
    shape = Shape(4, 3, 2, connections=7, in_flight=3, queue_us=0.2)
    assert predicted(COSTS, shape) == predicted(COSTS, shape)


@pytest.mark.parametrize(
    "shape", [Shape(0, 1), Shape(1, 0), Shape(1, 1, 0), Shape(1, 1, connections=0)]
)
def test_nothing_to_work_with_is_refused(shape: Shape) -> None:
    with pytest.raises(ValueError, match="nothing"):
        predicted(COSTS, shape)


def test_bytes_have_bounds_of_their_own() -> None:
    machine = Machine(cores=1, memory=70e9, network=12e9, disks=4e9)
    produced = [(each.what, each.bytes_per_s) for each in bounds(machine, "produce")]
    assert produced == [("disks", 4e9), ("memory", 10e9), ("network", 12e9)]
    assert [each.what for each in bounds(machine, "fetch")] == ["network", "memory"]


def test_the_page_has_the_figures_that_were_kept() -> None:
    page = scale.PAGE.read_text(encoding="utf-8")
    assert replaced(page, scale.BEGIN, tables.drawn(KEPT)) == page


@pytest.mark.parametrize("cell", HELD)
def test_predictions_are_near_the_measured_rates(cell: str) -> None:
    one, cpus = from_json(KEPT["cells"])[cell], int(KEPT["machine"]["cpus"])
    for measured, found in (
        (one.requests_per_s, tables.here(one.costs, cell, cpus)),
        (one.pinned_per_s, tables.pinned(one.costs, cell, cpus)),
    ):
        ratio = found.requests_per_s / measured
        assert 1 / WITHIN <= ratio <= WITHIN, f"{cell}: {ratio:.2f}"
