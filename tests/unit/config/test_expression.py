"""What a regular expression is, without compiling it."""

from __future__ import annotations

import re

import pytest

from kbroker.config.expression import is_expression

GOOD = (
    "x", "a.*", "127.*", "a|b", "(a|b)+c", "[a-z]+", "[^]x]*?", "a{2}", "a{2,}b{2,3}?", "a?+",
    "\\d+", "\\(", "(?i)abc", "(?:a)*", "(?<name>a)", "[(*]", "a]", "a}", "()", "[a\\]]", "^$",
)  # fmt: skip
BAD = (
    "(", ")", "a)", "((a)", "[", "[a", "[]", "[^]", "\\", "a\\", "*", "+a", "?", "(*a)", "a|*",
    "a**", "{2}", "a{", "a{x}", "a{,2}", "a{3,2}", "a{2}{3}", "[a\\]",
)  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_expressions(text: str) -> None:
    assert is_expression(text)


@pytest.mark.parametrize("text", BAD)
def test_texts_that_are_no_expression(text: str) -> None:
    assert not is_expression(text)


def test_only_common_syntax_is_looked_for() -> None:
    """Most texts that Python refuses are refused; none for words that Java alone knows."""
    let_through = {text for text in GOOD if _refused_by_python(text)}
    assert let_through == {"(?<name>a)"}
    assert is_expression("[\\p{L}&&[^a-z]]\\h")


def _refused_by_python(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return True
    return False
