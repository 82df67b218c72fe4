"""JSON has what the page has, as values."""

from __future__ import annotations

import json

from kbroker.console.document import as_json
from kbroker.console.page import (
    Cell,
    Column,
    Fact,
    Facts,
    Form,
    Links,
    Notice,
    Page,
    Table,
    Tone,
    Unit,
)
from kbroker.console.render import Frame, as_html
from tests.unit.console.hostile import TEXTS, page_of


def pauses() -> None:
    pass


def test_json_is_the_page() -> None:
    columns = [Column("topic", "Topic"), Column("bytes", "Size", Unit.BYTES)]
    rows = [[Cell("orders", "/ui/topics/orders"), Cell(2048)], [Cell("x"), Cell(None)]]
    page = Page(
        "Topics",
        [
            Notice(Tone.WARN, "one is late", "wait"),
            Facts(
                "cluster",
                "Cluster",
                [Fact("up", "Up", Cell(True)), Fact("r", "R", Cell(float("inf")))],
            ),
            Table("topics", "Topics", columns, rows, total=9, next_path="/ui/topics?from=2"),
            Form("find", "Find", "/ui/topics", [], "Find"),
            Links("more", "More", [("Groups", "/ui/groups")]),
        ],
    )
    assert json.loads(as_json(page, pauses)) == {
        "title": "Topics",
        "sections": [
            {"kind": "notice", "tone": "warn", "what": "one is late", "next_step": "wait"},
            {"kind": "facts", "name": "cluster", "title": "Cluster",
             "values": {"up": True, "r": None}},
            {"kind": "table", "name": "topics", "title": "Topics",
             "columns": [{"name": "topic", "title": "Topic", "unit": "text"},
                         {"name": "bytes", "title": "Size", "unit": "bytes"}],
             "rows": [{"topic": "orders", "bytes": 2048}, {"topic": "x", "bytes": None}],
             "total": 9, "next_path": "/ui/topics?from=2"},
            {"kind": "links", "name": "more", "title": "More",
             "items": [{"title": "Groups", "path": "/ui/groups"}]},
        ],
    }  # fmt: skip


def test_every_text_is_a_value_as_it_is() -> None:
    for text in TEXTS:
        table = json.loads(as_json(page_of(text), pauses))["sections"][3]
        assert table["rows"][0]["c0"] == text


def test_both_pause_after_each_200_rows() -> None:
    table = Table("t", "T", [Column("n", "N")], [[Cell(n)] for n in range(500)])
    for make in (as_json, lambda page, pause: as_html(page, Frame("k", []), pause)):
        counted: list[int] = []
        make(Page("P", [table]), lambda counted=counted: counted.append(1))
        assert len(counted) == 2
