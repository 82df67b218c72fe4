"""Moments and spans of time as people write them on a command line.

A moment is a timestamp in ms or ISO 8601 (`2026-11-21T14:00:00`, with or without an offset; without
one it is UTC, as in Kafka's tools). A span is ISO 8601 (`P1DT2H`) or short (`90m`, `2h30m`, `1d`).
"""

from __future__ import annotations

import re
from typing import Final

from kbroker.errors import UsageError

_UNIT_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
_PART: Final = r"(?:(\d+(?:\.\d+)?){})?"
_LONG: Final = re.compile(
    "P" + _PART.format("D") + "(?:T" + "".join(map(_PART.format, "HMS")) + ")?", re.IGNORECASE
)
_SHORT: Final = re.compile("".join(map(_PART.format, "dhms")))
MOMENT_HINT: Final = "write 2026-11-21T14:00:00, with an offset such as +01:00 if it is not UTC"
SPAN_HINT: Final = "write P1DT2H30M, or 90m, 2h30m, 1d"
_TIMESTAMP_MS_MAX: Final = 2**62
_DIGITS_MAX: Final = 19


def shown_moment(timestamp_ms: int) -> str:
    """In UTC, to the millisecond; what no calendar holds stays a number."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


def shown_span(span_ms: int) -> str:
    """As `parse_span` reads it, in its two largest units: `2h30m`, `90s` is `1m30s`."""
    if span_ms < _UNIT_MS["s"]:
        return f"{max(span_ms, 0) / 1000:g}s"
    parts: list[str] = []
    left_ms = span_ms
    for unit, unit_ms in _UNIT_MS.items():
        count, left_ms = divmod(left_ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def parse_moment(text: str) -> int:
    """Milliseconds since 1970."""
    word = text.strip()
    if word.isascii() and word.isdecimal():
        if len(word) <= _DIGITS_MAX and (moment_ms := int(word)) < _TIMESTAMP_MS_MAX:
            return moment_ms
        raise UsageError(f"'{text}' is no moment", MOMENT_HINT)
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise UsageError(f"'{text}' is no moment", MOMENT_HINT) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_span(text: str) -> int:
    """Milliseconds, more than none."""
    word = text.strip()
    match = _LONG.fullmatch(word) or _SHORT.fullmatch(word.lower())
    parts = match.groups() if match is not None else ()
    span_ms = sum(
        float(part) * _UNIT_MS[unit] for unit, part in zip("dhms", parts, strict=False) if part
    )
    if not 0 < span_ms < _TIMESTAMP_MS_MAX:
        raise UsageError(f"'{text}' is no span of time", SPAN_HINT)
    return round(span_ms)
