"""The table of format numbers, the page that is drawn from it, and the files that have a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker import __version__
from kbroker.errors import DataDirectoryError
from kbroker.generated_part import replaced
from kbroker.metadata import directory_format, draw_formats, meta_properties
from kbroker.metadata.formats import LABELS, PLACES, TABLE, Format, check, needed, newest

PAGE = Path(__file__).parents[3] / "docs" / "formats.md"


def test_the_page_is_that_of_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert replaced(page, draw_formats.BEGIN, draw_formats.generated()) == page


def test_numbers_of_a_format_begin_at_0_and_have_no_gap() -> None:
    for each in Format:
        numbers = [row.number for row in TABLE if row.format is each]
        assert numbers == list(range(newest(each) + 1))
        assert LABELS[each] and PLACES[each]


def test_nothing_is_needed_before_there_are_transactions_or_acls() -> None:
    assert needed(transactions=False, acls=False) == dict.fromkeys(Format, 0)
    assert needed(transactions=True, acls=False) == {**dict.fromkeys(Format, 1), Format.BACKUP: 0}
    assert needed(transactions=False, acls=True) == {
        **dict.fromkeys(Format, 0),
        Format.NODES: 2,
        Format.BETWEEN_BROKERS: 3,
    }
    assert needed(transactions=True, consumer_groups=True) == {
        **dict.fromkeys(Format, 1),
        Format.BACKUP: 0,
        Format.INTERNAL_TOPICS: 2,
    }


def test_a_higher_number_is_refused_with_the_release_that_reads_it() -> None:
    for each in Format:
        check(each, newest(each), "here", "0.1.0")
    with pytest.raises(DataDirectoryError) as caught:
        check(Format.LOG_DIRECTORY, 2, "/data", "0.3.0")
    assert str(caught.value) == (
        f"KB1004 /data has format 2 of the log directory, and kbroker {__version__} reads formats"
        " up to 1 -> start kbroker 0.3.0 or a later one, which can read it"
    )


def test_a_directory_keeps_its_number(tmp_path: Path) -> None:
    assert directory_format.load(tmp_path) == 0
    directory_format.save(tmp_path, 1, "0.1.0")
    assert directory_format.load(tmp_path) == 1
    assert [each.name for each in tmp_path.iterdir()] == [directory_format.FILE_NAME]


@pytest.mark.parametrize(
    "text", ["", "format=", "format=-1\n", "format=1e3", "\xff\x00", "format=\u0661"]
)
def test_a_damaged_number_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / directory_format.FILE_NAME).write_text(text, encoding="utf-8")
    with pytest.raises(DataDirectoryError, match="cannot be used"):
        directory_format.load(tmp_path)


def test_meta_properties_are_as_before(tmp_path: Path) -> None:
    meta = meta_properties.ensure(tmp_path, "c", 1)
    directory_format.save(tmp_path, 1, "0.1.0")
    assert meta_properties.load(tmp_path) == meta
