"""Patterns of transactional ids: as Python's `re` matches a whole text, but in linear time."""

from __future__ import annotations

import random
import re
from typing import Final

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.id_pattern import STEPS_MAX, compiled

PATTERNS: Final = (
    "a", "ab*", "(ab|b)*a?", "a{2,3}b", "a{2,}", "[a-c]+", "[^a]b", r"\w+-\d{1,3}", "a|", "(a|b|)c",
    "^a.b$", "(?:a+b?)*", "a*?b", "a??", r"\Sa\s?", "", ".*", "((a))", "b{0}a", r"a\.b",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_matches_the_texts_that_re_matches(pattern: str) -> None:
    dice = random.Random(pattern)
    matches = compiled(pattern)
    texts = ["".join(dice.choices("ab-c1. ", k=dice.randrange(7))) for _ in range(400)]
    for text in ("", "a", "b", *texts):
        assert matches(text) is (re.fullmatch(pattern, text) is not None), text


def test_patterns_that_keep_re_busy_for_ever() -> None:
    assert not compiled("(a+)+b")("a" * 5_000)
    assert compiled("(a|aa)*")("a" * 5_000)


@pytest.mark.parametrize(
    "pattern",
    ["(", "a**", "[z-a]", r"(a)\1", "(?=a)b", "(?<!a)b", "(?i)a(?-i:b)", "x{2000}", "a" * 1_001],
)
def test_texts_that_are_no_pattern_or_need_more(pattern: str) -> None:
    with pytest.raises(KafkaError) as raised:
        compiled(pattern)
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_has_so_many_steps_at_most() -> None:
    assert compiled("a" * STEPS_MAX)("a" * STEPS_MAX)
