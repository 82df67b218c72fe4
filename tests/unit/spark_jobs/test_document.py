"""docs/topics.md is what the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.document import NAME, main, page
from spark_jobs.schema import QUARANTINE, TABLES
from tests.support.source_tree import ROOT


def test_the_committed_page_is_up_to_date() -> None:
    committed = (ROOT / "docs" / NAME).read_text(encoding="utf-8")
    assert committed == page(), "run: python -m spark_jobs.document"


def test_every_field_and_kind_has_its_line() -> None:
    text = page()
    for table in TABLES.values():
        assert f"## `{table.topic}`" in text
        for column in (*table.identity, *table.columns, *QUARANTINE.columns):
            assert f"| `{column.name}` | " in text and column.help in text
        for kind in table.kinds:
            assert f"### `{table.kind_column}` = `{kind.value}`" in text


def test_it_is_written_where_it_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 0
    assert (tmp_path / NAME).read_text(encoding="utf-8") == page()
    assert capsys.readouterr().out == f"{tmp_path / NAME}\n"
