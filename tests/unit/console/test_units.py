"""Values as they are drawn."""

from __future__ import annotations

import pytest

from kbroker.console.page import Unit, Value
from kbroker.console.units import drawn, exact


@pytest.mark.parametrize(
    ("value", "unit", "text", "title"),
    [
        (None, Unit.BYTES, "\u2013", ""),
        (True, Unit.TEXT, "yes", ""),
        ("orders", Unit.COUNT, "orders", ""),
        (1234567, Unit.TEXT, "1234567", ""),
        (1234567, Unit.COUNT, "1,234,567", ""),
        (0.5, Unit.COUNT, "0.5", ""),
        (512, Unit.BYTES, "512 B", ""),
        (1536, Unit.BYTES, "1.5 KB", "1,536 bytes"),
        (300 * 1024**3, Unit.BYTES, "300 GB", "322,122,547,200 bytes"),
        (2048.0, Unit.BYTES_PER_S, "2.0 KB/s", "2,048 bytes/s"),
        (12.34, Unit.PER_S, "12.3/s", ""),
        (0, Unit.PER_S, "0/s", ""),
        (0.001, Unit.PER_S, "0.001/s", ""),
        (12, Unit.DURATION_MS, "12 ms", ""),
        (1500, Unit.DURATION_MS, "1.5 s", "1,500 ms"),
        (-61_000, Unit.DURATION_MS, "\u22121 min 1 s", "61,000 ms"),
        (90_061_000, Unit.DURATION_MS, "1 d 1 h", "90,061,000 ms"),
        (1_700_000_000_123, Unit.MOMENT_MS, "2023-11-14 22:13:20", "2023-11-14 22:13:20.123 UTC"),
        (-1, Unit.MOMENT_MS, "-1", "-1 UTC"),
        (2**63 - 1, Unit.MOMENT_MS, str(2**63 - 1), f"{2**63 - 1} UTC"),
        (0.987, Unit.RATIO, "98.7 %", ""),
        (float("nan"), Unit.RATIO, "\u2013", ""),
        (float("inf"), Unit.BYTES, "\u2013", ""),
    ],
)
def test_values(value: Value, unit: Unit, text: str, title: str) -> None:
    assert drawn(value, unit) == text
    assert exact(value, unit).lstrip("-") == title.lstrip("-")


def test_a_payload_keeps_its_lines_and_tabs_and_nothing_else() -> None:
    assert drawn("a\tb\r\nc\x1b[1m\u202e", Unit.PAYLOAD) == "a\tb\\r\nc\\x1b[1m\\u202e"


def test_other_text_is_one_bounded_line() -> None:
    assert drawn("a\nb", Unit.TEXT) == "a\\nb"
    long = drawn("x" * 5_000, Unit.TEXT)
    assert long == "x" * 2_000 + "... (5000 characters)"
    assert len(drawn("x" * 200_000, Unit.PAYLOAD)) < 100_100
