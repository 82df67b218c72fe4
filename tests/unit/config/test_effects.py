"""Measured effects as data: what is read back, and a damaged file that counts as none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbroker.config.effects import (
    FILE_BYTES_MAX,
    SCHEMA,
    WORDS_CHARS_MAX,
    KnobEffects,
    Tried,
    default_path,
    load,
)

WHOLE: dict[str, Any] = {
    "schema": SCHEMA,
    "machine": "2 x Processor",
    "date": "2026-11-22",
    "knobs": [
        {
            "name": "k",
            "key": "k",
            "default": "8",
            "document": "2",
            "values": [{"value": "2", "words": "CPU x0.90", "decided": True}],
        },
        {"name": "idle", "key": "idle", "why": "no effect in this version"},
    ],
}


def test_a_file_that_was_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "effects.json"
    file.write_text(json.dumps(WHOLE))
    found = load(str(file))
    assert found is not None and (found.machine, found.date) == ("2 x Processor", "2026-11-22")
    assert found.knobs[0].tried == (Tried("2", "CPU x0.90", True),)
    assert found.knobs[1].line("anything") == "no effect in this version"


def _with(**changes: Any) -> dict[str, Any]:
    return {**WHOLE, "knobs": [{**WHOLE["knobs"][0], **changes}]}


@pytest.mark.parametrize(
    "data",
    [
        [], "text", {}, {**WHOLE, "schema": SCHEMA + 1}, {**WHOLE, "knobs": {}},
        {**WHOLE, "machine": 7}, {**WHOLE, "date": "2026\nWARNING all is lost"},
        {**WHOLE, "knobs": ["k"]}, _with(name=None), _with(values="many"), _with(values=[3]),
        _with(values=[{"value": "2", "words": "x", "decided": 1}]),
        _with(values=[{"value": "2", "words": "\x1b[2J", "decided": True}]),
        _with(values=[{"value": "2", "words": "x" * (WORDS_CHARS_MAX + 1), "decided": True}]),
    ],
)  # fmt: skip
def test_a_damaged_file_counts_as_none(tmp_path: Path, data: Any) -> None:
    file = tmp_path / "effects.json"
    file.write_text(json.dumps(data))
    assert load(str(file)) is None


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '"' + "x" * FILE_BYTES_MAX + '"'])
def test_a_file_that_is_not_json_counts_as_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "effects.json"
    file.write_text(text)
    assert load(str(file)) is None
    file.write_bytes(b"\xff\xfe")
    assert load(str(file)) is None
    assert load(str(tmp_path / "missing")) is None


def test_the_line_tells_the_documents_value_and_ours() -> None:
    tried = (Tried("1", "p99 x2.00", True), Tried("2", "no effect found: p99 within 4%", False))
    knob = KnobEffects("k", "k", "8", "2", tried)
    assert knob.line("8") == "2 instead of 8: no effect found: p99 within 4%"
    assert knob.line("1") == "2 instead of 8: no effect found: p99 within 4% | with 1: p99 x2.00"
    assert knob.line("2") == "2 instead of 8: no effect found: p99 within 4%"
    same = KnobEffects("k", "k", "8", "8", tried)
    assert same.line("8") == "1 instead of 8: p99 x2.00"
    assert same.line("2") == "1 instead of 8: p99 x2.00 | with 2: no effect found: p99 within 4%"
    none = KnobEffects("k", "k", "8", "", tried[1:])
    assert none.line("8") == "no effect found by 2 instead of 8"


def test_the_shipped_file_is_whole() -> None:
    """The file is made on a quiet machine and committed; where it is, it must be readable."""
    if Path(default_path()).exists():
        found = load()
        assert found is not None and found.knobs
