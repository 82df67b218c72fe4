"""Moments and spans of time as they are typed."""

from __future__ import annotations

import pytest

from kbroker.errors import UsageError
from kbroker.findings.moments import parse_moment, parse_span


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("0", 0),
        ("1763733600000", 1763733600000),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T00:00:01.004", 1004),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("1970-01-02", 86_400_000),
        (" 1970-01-01T00:00:01Z ", 1000),
    ],
)
def test_moments(text: str, moment_ms: int) -> None:
    assert parse_moment(text) == moment_ms


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "²", "2026-13-01", "9" * 30])
def test_texts_that_are_no_moment(text: str) -> None:
    with pytest.raises(UsageError, match="is no moment"):
        parse_moment(text)


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT90M", 5_400_000),
        ("pt1h", 3_600_000),
        ("90m", 5_400_000),
        ("2h30m", 9_000_000),
        ("1d", 86_400_000),
        ("1.5S", 1_500),
    ],
)
def test_spans(text: str, span_ms: int) -> None:
    assert parse_span(text) == span_ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1", "1", "h", "0m", "30m2h", "-1h", "P1M", "P1Y"]
)
def test_texts_that_are_no_span(text: str) -> None:
    with pytest.raises(UsageError, match="is no span"):
        parse_span(text)
