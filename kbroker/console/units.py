"""How a value is drawn: by its unit, and what came from a client escaped.

Pure. `drawn` is what a cell says; JSON has the value itself (`document.py`). Text is in one line,
bounded; a payload keeps its lines. No character of either moves a cursor or turns the text's
direction (`outside_text`).
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final

from kbroker.console.page import Unit, Value
from kbroker.limits import CONSOLE_PAYLOAD_CHARS_MAX, CONSOLE_TEXT_CHARS_MAX
from kbroker.outside_text import escaped, printable

DASH: Final = "\u2013"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999
_SIZES: Final = ("B", "KB", "MB", "GB", "TB", "PB")
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS


def drawn(value: Value, unit: Unit) -> str:
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return _payload(value) if unit is Unit.PAYLOAD else printable(value, CONSOLE_TEXT_CHARS_MAX)
    if isinstance(value, float) and not math.isfinite(value):
        return DASH
    match unit:
        case Unit.COUNT:
            return _grouped(value)
        case Unit.BYTES:
            return _bytes(value)
        case Unit.BYTES_PER_S:
            return f"{_bytes(value)}/s"
        case Unit.PER_S:
            return f"{_grouped(value)}/s"
        case Unit.DURATION_MS:
            return _duration(value)
        case Unit.MOMENT_MS:
            return moment(value)
        case Unit.RATIO:
            return f"{100 * value:.1f} %"
        case _:
            return str(value) if isinstance(value, int) else f"{value:,g}"


def exact(value: Value, unit: Unit) -> str:
    """What `drawn` has rounded; empty where it has not."""
    if value is None or isinstance(value, str | bool) or not math.isfinite(value):
        return ""
    match unit:
        case Unit.BYTES | Unit.BYTES_PER_S if abs(value) >= 1_024:
            return f"{value:,.0f} bytes" + ("/s" if unit is Unit.BYTES_PER_S else "")
        case Unit.DURATION_MS if abs(value) >= _SECOND_MS:
            return f"{value:,.0f} ms"
        case Unit.MOMENT_MS:
            return f"{moment(value, fine=True)} UTC"
        case _:
            return ""


def is_number(unit: Unit) -> bool:
    return unit not in (Unit.TEXT, Unit.PAYLOAD, Unit.MOMENT_MS)


def moment(value: int | float, *, fine: bool = False) -> str:
    """UTC, to the second; `fine`: to the millisecond."""
    if not 0 <= value <= _MOMENT_MS_MAX:
        return str(round(value))
    at = _EPOCH + timedelta(milliseconds=round(value))
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{at.microsecond // 1_000:03d}" if fine else text


def _grouped(value: int | float) -> str:
    if isinstance(value, int) or abs(value) >= 1_000:
        return f"{round(value):,}"
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 0.05 else f"{value:.2g}"


def _bytes(value: int | float) -> str:
    size, index = float(value), 0
    while abs(size) >= 1_024 and index + 1 < len(_SIZES):
        size /= 1_024
        index += 1
    if index == 0:
        return f"{size:.0f} B"
    return f"{size:.{1 if abs(size) < 100 else 0}f} {_SIZES[index]}"


def _duration(value: int | float) -> str:
    sign, left = ("\u2212" if value < 0 else ""), abs(value)
    for unit_ms, name, part_ms, part_name in (
        (_DAY_MS, "d", _HOUR_MS, "h"),
        (_HOUR_MS, "h", _MINUTE_MS, "min"),
        (_MINUTE_MS, "min", _SECOND_MS, "s"),
    ):
        if left >= unit_ms:
            whole = int(left // unit_ms)
            part = int(left % unit_ms // part_ms)
            return f"{sign}{whole} {name} {part} {part_name}"
    if left >= _SECOND_MS:
        return f"{sign}{left / _SECOND_MS:.1f} s"
    return f"{sign}{left:.0f} ms" if left >= 1 or left == 0 else f"{sign}{left:.2g} ms"


def _payload(text: str) -> str:
    length = len(text)
    lines = text[:CONSOLE_PAYLOAD_CHARS_MAX].split("\n")
    kept = "\n".join("\t".join(map(escaped, line.split("\t"))) for line in lines)
    if length <= CONSOLE_PAYLOAD_CHARS_MAX:
        return kept
    return f"{kept}... ({length} characters)"
