"""The README's table is drawn from a run, and says what the run could not decide."""

from __future__ import annotations

import json

from kbroker.generated_part import replaced
from perf import how_fast, report
from tests.unit.perf.test_report import blocks, outcome_of


def test_the_readme_has_the_figures_that_were_kept() -> None:
    page = how_fast.README.read_text(encoding="utf-8")
    kept = json.loads(how_fast.KEPT.read_text())
    assert replaced(page, how_fast.BEGIN, how_fast.drawn(kept)) == page


def rows(*kbroker: float) -> list[str]:
    sides = {"kafka": blocks("p-1k-4x5", "kafka", *[10.0] * len(kbroker))}
    sides["kbroker"] = blocks("p-1k-4x5", "kbroker", *kbroker)
    data = how_fast.kept(report.to_json(outcome_of({"p-1k-4x5": sides})))
    json.dumps(data, allow_nan=False)
    lines = how_fast.drawn(data).splitlines()
    return [line for line in lines if line.startswith("| produce 1 KB")]


def test_a_ratio_has_its_interval() -> None:
    (row,) = rows(1.0, 1.2, 1.1, 1.0, 1.3, 1.1, 1.2)
    assert "| - | 1,000/s | 1,000/s | 0.11 [0.1, 0.13] | 0.11 [0.1, 0.13] |" in row


def test_an_undecided_figure_has_a_reason() -> None:
    (row,) = rows(9.0, 11.0, 12.0, 9.5, 13.0, 10.5, 8.0)
    assert "1.1 [0.8, 1.3], no difference found" in row
    (row,) = rows(1.0, 1.0, 1.0)
    assert "3 of 6 rounds needed" in row
