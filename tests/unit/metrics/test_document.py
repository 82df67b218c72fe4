"""The committed documentation is what the catalogue says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.metrics.catalogue import CATALOGUE
from kbroker.metrics.document import NAME, main, page

DOCS = Path(__file__).parents[3] / "docs"


def test_the_committed_page_is_up_to_date() -> None:
    committed = (DOCS / NAME).read_text(encoding="utf-8")
    assert committed == page(), "run: python -m kbroker.metrics.document"


def test_every_metric_has_its_line() -> None:
    for metric in CATALOGUE:
        assert f"| `{metric.canonical}` | {metric.kind} |" in page()


def test_it_is_written_where_it_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 0
    assert (tmp_path / NAME).read_text(encoding="utf-8") == page()
    assert capsys.readouterr().out == f"{tmp_path / NAME}\n"
