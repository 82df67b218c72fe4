"""Our reader and writer of properties files beside a library's."""

from __future__ import annotations

import javaproperties
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbroker.config.properties import dumped, loads

SIGNIFICANT = st.sampled_from(
    ["\\", "\n", "\r", "\r\n", " ", "\t", "\f", "=", ":", "#", "!", "u0041", "ud83d", "ude00",
     "n", "t", "a", "b", "é", "\u2028", "\x0b", "\x85", "\0", '"']
)  # fmt: skip
TEXTS = st.lists(SIGNIFICANT, max_size=30).map("".join)


def of_the_library(text: str) -> dict[str, str] | None:
    try:
        found: dict[str, str] = javaproperties.loads(text)
    except ValueError:
        return None
    return found


def of_ours(text: str) -> dict[str, str] | None:
    try:
        return loads(text)
    except ValueError:
        return None


@given(TEXTS)
@example("a=b\\")
@example("a\\\n#b=c")
@example("a=\\\n\n b")
@example("a\\\\\nb")
@example("\\\n# x")
@example("k=\\ud83d\\ude00 \\ude00\\ud83d")
@example("k=\\u12")
def test_a_text_is_read_as_by_the_library(text: str) -> None:
    assert of_ours(text) == of_the_library(text)


@given(TEXTS, TEXTS)
@example("", "")
@example("a b", "  c d ")
def test_a_line_is_written_as_by_the_library_and_read_again(key: str, value: str) -> None:
    line = dumped(key, value)
    assert line == javaproperties.join_key_value(key, value)
    assert loads(line) == {key: value}


def test_an_escape_that_is_cut_is_an_error() -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        loads("listeners=\\u00")


def test_a_megabyte_of_backslashes_and_joined_lines() -> None:
    """The time is linear: with another it would not end."""
    assert loads("\\" * 1_000_001) == {"\\" * 500_000: ""}
    assert loads("a\\\n" * 300_000) == {"a" * 300_000: ""}
