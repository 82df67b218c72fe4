"""`kbroker top --page`: pages of the console as text, and keys that change the page."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from kbroker.cli import page_text, top, top_live, top_pages
from kbroker.cli.top import View
from kbroker.console.page import (
    Cell,
    Column,
    Fact,
    Facts,
    Field,
    Form,
    Links,
    Notice,
    Page,
    Table,
    Tone,
    Unit,
)
from kbroker.errors import ErrorCode, KafkaError
from tests.unit.console.fake_cluster import FakeClient, cluster_of, part

HOSTILE = "\x1b[2J[red]\u202e\nsecond\ttab"
VIEW = View(interval_ms=1_000, rows=2, internal=False)

PAGE = Page(
    HOSTILE,
    [
        Notice(Tone.BAD, f"bad {HOSTILE}", "mend it"),
        Facts("facts", HOSTILE, [Fact("free", "Free", Cell(2048), Unit.BYTES),
                                 Fact("name", HOSTILE, Cell(HOSTILE))]),
        Table(
            "rows", "Rows",
            (Column("name", "Name"), Column("bytes", "Size", Unit.BYTES),
             Column("text", "Text", Unit.PAYLOAD)),
            [(Cell(HOSTILE), Cell(number), Cell(HOSTILE)) for number in range(3)],
        ),
        Table("none", "None of them", (Column("name", "Name"),), [], "there are none"),
        Links("more", "More", [("x", "/ui/x")]),
        Form("form", "Form", "/ui/x", [Field("a", "A")], "Go"),
    ],
)  # fmt: skip


def test_plain_text_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    page_text.print_page(PAGE, 2)
    text = capsys.readouterr().out
    assert all(line.isprintable() for line in text.split("\n"))
    assert "failing: bad" in text and "-> mend it" in text
    assert "2.0 KB" in text and "and 1 more" in text
    assert "None of them: there are none" in text
    assert "/ui/x" not in text


def test_rich_draws_no_markup_of_others() -> None:
    out = io.StringIO()
    console = Console(file=out, width=200, color_system=None)
    console.print(page_text.draw_page(PAGE, 2, "headline"))
    text = out.getvalue()
    assert "[red]" in text and "headline" in text and "and 1 more" in text
    assert all(line.isprintable() for line in text.split("\n"))


def test_a_page_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    client: Any = FakeClient(cluster_of((1,), orders=[part(0)]))
    top_pages.print_pages(client, VIEW, "brokers", None, "json")
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["title"] == "Brokers"


def test_frames_come_after_the_interval(capsys: pytest.CaptureFixture[str]) -> None:
    client: Any = FakeClient(cluster_of((1,), orders=[part(0)]))
    slept: list[float] = []
    client.cluster.sleep_ms = slept.append
    top_pages.print_pages(client, VIEW, "brokers", 3, "text")
    assert capsys.readouterr().out.count("Brokers:") == 3 and slept == [1_000, 1_000]


def test_a_failure_is_a_notice_of_the_page() -> None:
    client: Any = FakeClient(KafkaError(ErrorCode.NETWORK_EXCEPTION, "cut"))
    page = top_pages.page_of(client, "brokers")
    (notice,) = page.sections
    assert isinstance(notice, Notice) and "cut" in notice.what


def test_the_names_of_the_option_are_those_of_the_pages() -> None:
    assert tuple(top_pages.PAGES) == top.PAGE_NAMES
    assert len(top_pages.BY_KEY) == len(top_pages.PAGES)
    assert not {top_live.SUMMARY_KEY, top_live.LEAVE_KEY} & top_pages.BY_KEY.keys()


def test_keys_change_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = FakeClient(cluster_of((1,)))
    asked: list[str] = []

    def page_of(client: Any, name: str) -> Page:
        asked.append(name)
        return PAGE

    def frames(*_: Any, **__: Any) -> Any:
        asked.append("summary")
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "cut")
        yield

    monkeypatch.setattr(top_live, "page_of", page_of)
    monkeypatch.setattr(top_live, "frames", frames)
    keys = iter(["", "b", "\x1b[A", "k", "s", "q"])
    waits: list[int] = []

    def wait(duration_ms: int) -> str:
        waits.append(duration_ms)
        return next(keys)

    top_live.live(client, VIEW, "overview", wait)
    assert asked == ["overview", "overview", "brokers", "brokers", "summary", "security"]
    assert waits == [1_000] * 6
    # A cluster that does not answer at the start is an error of the command.
    with pytest.raises(KafkaError):
        top_live.live(client, VIEW, None, wait)
