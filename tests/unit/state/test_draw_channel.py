"""The committed page has the table that the core follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker._state import ChannelStateMachine
from kbroker.generated_part import END, replaced
from kbroker.net import draw_channel

PAGE = Path(__file__).parents[3] / "docs" / "channel.md"


def test_the_committed_page_is_the_generated_one() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert replaced(page, draw_channel.BEGIN, draw_channel.generated()) == page, (
        "run: python -m kbroker.net.draw_channel docs/channel.md"
    )


def test_every_legal_cell_is_drawn() -> None:
    text = draw_channel.generated()
    stock_text, pipelined_text = text.split("### The pipelined machine")
    for pipelined, drawn in ((False, stock_text), (True, pipelined_text)):
        for (state, event), reached in ChannelStateMachine(pipelined).transitions().items():
            edge = f"    {state.name} --> {reached.name}:"
            edges = [line for line in drawn.split("\n") if line.startswith(edge)]
            assert len(edges) == 1 and event.name in edges[0]


def test_writing_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{draw_channel.BEGIN}\nold\n{END}\nafter\n")
    assert draw_channel.main([str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert draw_channel.main([]) == 0
    assert capsys.readouterr().out.strip() in text


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="markers"):
        replaced("nothing here", draw_channel.BEGIN, "")
