"""The tuning study on one knob, alone: on a busy machine a short window would be empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf import cells
from perf.studies import tune
from perf.studies.tune import TWIN, Plan, key_of

pytestmark = [pytest.mark.slow, pytest.mark.alone]


def test_the_study_on_one_knob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "TOUCH_BYTES_FIRST", 1 << 20)  # these blocks write little
    plan = Plan(
        ("compression.type@producer",), rounds=1, seconds=0.3, warm_s=0.02, directory=tmp_path
    )
    outcome = tune.run(plan, lambda _text: None, tmp_path / "journal")
    assert not outcome.faults, outcome.faults
    (knob,) = plan.knobs()
    (cell,) = knob.cells

    def bytes_each(value: str) -> float:
        one = outcome.of(key_of(knob, value, cell))[0]
        return one.bytes / one.records

    assert bytes_each("zstd") < bytes_each("lz4") < bytes_each("none")
    assert abs(bytes_each("none") - bytes_each(TWIN)) < 1
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]
