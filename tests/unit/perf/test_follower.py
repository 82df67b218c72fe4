"""`python -m perf.follower`: a follower and its played leader, the table, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf.brokers.kbroker import ROOT
from perf.follower import __main__ as follower


def test_a_block_of_rounds(tmp_path: Path) -> None:
    cell = follower.Cell.named("3x200")
    assert cell == (3, 200)
    with follower.following(cell, ROOT, tmp_path / "f", is_counted=False) as following:
        found = following.block(20)
    assert found.cpu_us > 0 and found.took_us > 0


def test_values_beside_those_of_another_build() -> None:
    assert follower.to_cells([30.0, 60.0]) == ["30.0", "60.0", "0.500"]
    assert follower.to_cells([1234.4]) == ["1,234"]


@pytest.mark.parametrize("cells", ["1", "0x100", "1x100,ax2"])
def test_an_unknown_cell_is_refused(cells: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        follower.main(["--cells", cells])
    assert "usage" in capsys.readouterr().err


def test_without_valgrind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert follower.main(["--instructions"]) == 1
    assert "valgrind is missing" in capsys.readouterr().err
