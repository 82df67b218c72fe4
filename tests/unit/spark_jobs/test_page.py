"""The page of a report: complete, escaped, bounded, the same every time; its colours readable."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("matplotlib", reason="missing: matplotlib (extra `report`)")
pytest.importorskip("jinja2", reason="missing: jinja2 (extra `report`)")

from spark_jobs.html import theme, words
from spark_jobs.html.page import ROWS_MAX, render
from spark_jobs.report_model import Cell, Finding, Report, Rows, Section, Table
from tests.support.contrast import LINES_ON, TEXT_ON, contrast
from tests.unit.spark_jobs.sample import HOSTILE, sample

VOID = {"meta", "link"}


class Reader(HTMLParser):
    """Elements, ids, links and text; notes tags that do not pair."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.titles: dict[str, str] = {}
        self.texts: list[str] = []
        self.unpaired: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        if found.get("id"):
            self.ids.append(str(found["id"]))
            self.titles[str(found["id"])] = str(found.get("title") or "")
        self.links += [str(found[name]) for name in ("href", "src") if found.get(name)]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.unpaired.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def one(*rows: tuple[Cell, ...]) -> Report:
    table = Table("t", tuple(f"c{n}" for n in range(len(rows[0]))), rows)
    return Report(3, "r", 1, 2, (Section("s", "S", (), (table,)),))


def test_a_page_is_whole() -> None:
    reader = read(render(sample()))
    assert not reader.unpaired
    assert len(set(reader.ids)) == len(reader.ids)
    inner = {link[1:] for link in reader.links if link.startswith("#")}
    assert inner <= set(reader.ids)
    assert len(inner) > 10
    assert not [link for link in reader.links if not link.startswith(("#", "data:"))]
    assert "script" not in reader.tags


def test_the_same_report_gives_the_same_page() -> None:
    assert render(sample()) == render(Report.from_json(sample().to_json()))


def test_every_cell_is_there_and_says_its_address_and_its_rows() -> None:
    reader = read(render(sample(), "out.json"))
    for address, cell in sample().cells():
        hint = reader.titles[address]
        assert hint.startswith(address)
        if cell.rows is not None:
            rows = "row" if cell.rows.count == 1 else "rows"
            assert hint == f"{address}: {cell.rows.count:,} {rows} of {cell.rows.table}"
    text = "".join(reader.texts)
    assert "cell = 'p-1k' AND acks = 7" in text
    assert "python -m spark_jobs.rows out.json latency.t0.r0.c1" in text


def test_numbers_of_the_same_rows_share_one_line() -> None:
    same, other = Rows("a", "x = 1", 1), Rows("b", "x = 1", 1000)
    page = render(one((Cell("1", 1.0, same), Cell("2", 2.0, other), Cell("3", 3.0, same))))
    assert page.count('id="s.t0.r0.s') == 2
    assert "s.t0.r0.c0 c2" in page
    assert "1,000 rows of b" in page


def test_the_contents_of_a_record_are_text_and_nothing_else() -> None:
    hostile = Report(
        3, HOSTILE, 1, 2,
        (
            Section("s", HOSTILE, (HOSTILE, f"`{HOSTILE}`"),
                    (Table(HOSTILE, (HOSTILE,),
                           ((Cell(HOSTILE, 1.0, Rows(HOSTILE, HOSTILE, 2)),),), HOSTILE),),
                    findings=(Finding(HOSTILE, 1, HOSTILE),)),
        ),
    )  # fmt: skip
    page = render(hostile, HOSTILE)
    reader = read(page)
    assert not reader.unpaired
    assert "script" not in reader.tags
    assert "<script" not in page
    assert "<!--" not in page
    assert "\u202e" not in page
    assert "\x00" not in page
    text = "".join(reader.texts)
    assert text.count("<script>alert(1)</script> \ufffdtxt\ufffd") > 8


def test_code_in_words() -> None:
    section = Section("s", "S", ("run `a < b` and ` alone",))
    assert "<p>run <code>a &lt; b</code> and ` alone</p>" in render(
        Report(3, "r", 1, 2, (section,))
    )


def test_a_long_table_ends_with_a_line() -> None:
    rows = tuple((Cell(str(n), float(n)),) for n in range(ROWS_MAX + 5))
    page = render(one(*rows))
    assert "5 more rows are in report.json." in page
    assert f'id="s.t0.r{ROWS_MAX - 1}.c0"' in page
    assert f'id="s.t0.r{ROWS_MAX}.c0"' not in page


def test_an_empty_report_is_a_page() -> None:
    page = render(Report(3, "r", 1, 2, ()))
    assert "No alarms" in page
    assert not read(page).unpaired


def test_alarms_come_first_and_lead_to_their_section() -> None:
    page = render(sample())
    head = "".join(read(page).texts).partition("Latency")[0]
    assert '<a href="#traffic">broker 1, /data: full in 34 hours</a>' in page
    assert "1 alarm, 1 to look at" in head and "No alarms" not in page
    assert "since 2026-11-21 01:40:00 UTC (2 h)" in head and "look at: add a disk" in head
    assert head.index("full in 34 hours") < head.index("HighMemoryUsage")


def test_every_colour_of_the_page_is_one_of_the_themes() -> None:
    used = set(re.findall(r"var\(--(\w+)\)", render(sample())))
    assert used <= set(theme.LIGHT)
    assert set(theme.LIGHT) == set(theme.DARK)
    assert not re.findall(r"#0a0[bc]", render(sample()))


@pytest.mark.parametrize("colours", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
def test_contrasts(colours: dict[str, str]) -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    low = {
        (front, back): round(contrast(colours[front], colours[back]), 2)
        for pairs, least in ((TEXT_ON, 4.5), (LINES_ON, 3.0))
        for front, back in pairs
        if contrast(colours[front], colours[back]) < least
    }
    assert not low


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a\nb", "a b"),
        ("a\x1b[31mb", "a\ufffd[31mb"),
        ("\ud800", "\ufffd"),
        ("Zürich 東京", "Zürich 東京"),
        ("abcdef", "abcd\u2026"),
    ],
)
def test_clean(text: str, printed: str) -> None:
    assert words.clean(text, 5 if text == "abcdef" else 100) == printed


def test_numbers_and_times() -> None:
    printed = [words.short_number(value) for value in (0, 0.25, 999.9, 1500, -2e6, 7.5e12)]
    assert printed == ["0", "0.25", "999.9", "1.5k", "-2M", "7.5T"]
    assert words.short_number(float("nan")) == ""
    assert words.moment(0) == "1970-01-01 00:00:00 UTC"
    assert words.moment(-1) == "-1 ms"
    assert words.moment(10**18) == f"{10**18} ms"
    assert [words.duration(ms) for ms in (0, 61_000, 3_600_000, 90_061_000, -5)] == [
        "0 s", "1 min 1 s", "1 h", "1 d 1 h", "-5 ms",
    ]  # fmt: skip
