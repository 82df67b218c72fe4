"""Blocks as JSON: what is written is read back, anything else is refused."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest

from perf.studies.measured import END_TO_END, Measured
from tests.unit.perf.studies.fake import measured, p50_us


def test_json_both_ways() -> None:
    one = measured(250, others=0.01)
    again = Measured.from_json(json.loads(json.dumps(one.to_json())))
    assert again.to_json() == one.to_json()
    assert p50_us(again) == pytest.approx(250, rel=0.01)
    assert again.quiet and again.figures == {"held": 1.0}


def test_rates() -> None:
    one = measured(records=500)
    assert one.records_per_s == 500
    assert one.megabytes_per_s == pytest.approx(0.5)
    assert one.cpu_us_per_record == pytest.approx(20)
    assert math.isnan(one.percentile_us("request", 50))


DAMAGE: list[tuple[tuple[Any, ...], Any]] = [
    (("records",), -1),
    (("records",), 1.5),
    (("records",), True),
    (("records",), 1 << 70),
    (("wall_s",), 0),
    (("wall_s",), float("nan")),
    (("others_cpu",), "0"),
    (("histograms",), []),
    (("histograms",), {str(n): {} for n in range(9)}),
    (("histograms", END_TO_END), None),
    (("histograms", END_TO_END, "sub_bits"), 3),
    (("histograms", END_TO_END, "total"), 21),
    (("histograms", END_TO_END, "buckets"), [[-1, 20]]),
    (("histograms", END_TO_END, "buckets"), [[1 << 40, 20]]),
    (("histograms", END_TO_END, "buckets"), [[1, -20]]),
    (("histograms", END_TO_END, "buckets"), [[1]]),
    (("figures",), {"held": None}),
    (("figures",), {"held": float("inf")}),
]


@pytest.mark.parametrize(("where", "what"), DAMAGE)
def test_a_line_that_is_not_a_block_is_refused(where: tuple[Any, ...], what: object) -> None:
    data = copy.deepcopy(measured().to_json())
    inner = data
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = what
    with pytest.raises(ValueError):
        Measured.from_json(data)


@pytest.mark.parametrize("missing", sorted(measured().to_json()))
def test_every_field_is_needed(missing: str) -> None:
    data = measured().to_json()
    del data[missing]
    with pytest.raises(ValueError):
        Measured.from_json(data)


@pytest.mark.parametrize("data", [None, [], 3, "block"])
def test_something_else_is_refused(data: object) -> None:
    with pytest.raises(ValueError):
        Measured.from_json(data)
