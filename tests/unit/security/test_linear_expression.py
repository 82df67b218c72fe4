"""Expressions in linear time, beside Python's own."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest

from kbroker.security.linear_expression import (
    INSTRUCTIONS_MAX,
    STEPS_MAX,
    LinearExpression,
    TooManySteps,
)

ATOMS = (
    "a",
    "b",
    "c",
    ".",
    "[ab]",
    "[^a]",
    r"\w",
    r"\d",
    r"\b",
    "^",
    "$",
    "(a)",
    "(b|ab)",
    "(?:a|)",
)
REPEATS = ("", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}?", "{2,}")


def drawn(dice: random.Random, depth: int = 0) -> str:
    parts: list[str] = []
    for _ in range(dice.randrange(1, 4)):
        atom = dice.choice(ATOMS)
        if depth < 2 and dice.random() < 0.3:
            inner = drawn(dice, depth + 1)
            atom = dice.choice((f"({inner})", f"(?:{inner})", f"(?:{inner}|{drawn(dice, 2)})"))
        parts.append(atom + dice.choice(REPEATS))
    return "".join(parts)


def written(groups: Sequence[str | None]) -> str:
    return f"<{groups[0]}>"


def only_linear(pattern: str) -> LinearExpression:
    made = LinearExpression(pattern)
    made._nested = True
    return made


@pytest.mark.parametrize("seed", range(10))
def test_results_are_those_of_re(seed: int) -> None:
    dice = random.Random(seed)
    compared = 0
    while compared < 300:
        pattern = drawn(dice)
        try:
            expected, found = re.compile(pattern, re.ASCII), only_linear(pattern)
        except (re.error, ValueError):
            continue
        for _ in range(10):
            text = "".join(dice.choice("aabbc1\n") for _ in range(dice.randrange(9)))
            assert found.fits(text) is (expected.fullmatch(text) is not None), (pattern, text)
            replaced = expected.sub(lambda match: written((match[0],)), text)
            assert found.replaced(text, written) == replaced, (pattern, text)
        compared += 1


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^CN=(.*?),OU=(.*?),O=(.*?)$", "CN=a,OU=b,OU=c,O=d"),
        (r"CN=([^,]+)(,OU=(x|y))?.*", "CN=kafka,OU=y,O=z"),
        (r"CN=([^,]+)(,OU=(x|y))?.*", "CN=kafka"),
        (r"(a|ab)(c|bcd)(d*)", "abcd"),
        (r"(?i)cn=(\w+)", "CN=É"),
        (r"(?i)cn=([k-m]+)", "Cn=KLm"),
        (r"(?s)(.)(.*)", "\n\n"),
        (r"(?m)^(a|b)$", "a\nb"),
        (r"\A(\d{2,3}?)(\d*)\Z", "12345"),
        (r"((a+)b?)+", "aabab"),
        (r"(?:(a)|b)*", "ab"),
    ],
)
def test_groups_are_those_of_re(pattern: str, text: str) -> None:
    def listed(groups: Sequence[str | None]) -> str:
        return repr(list(groups))

    expected = re.compile(pattern, re.ASCII).sub(
        lambda match: listed((match[0], *match.groups())), text
    )
    assert only_linear(pattern).replaced(text, listed) == expected
    assert LinearExpression(pattern).replaced(text, listed) == expected


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(a+)+$", "a" * 4_095 + "!"),
        (r"(a|a)*b", "a" * 4_096),
        (r"(a|aa)+$", "a" * 4_000 + "!"),
        (r"^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$", "CN=" + ",OU=,O=,L=,ST=" * 280),
        (r".*.*.*.*.*=x", "=" * 4_096),
        (r"(x{1,2}){50}y", "x" * 99),
    ],
)
def test_texts_that_were_made_for_a_pattern_are_quick(pattern: str, text: str) -> None:
    expression = LinearExpression(pattern)
    assert not expression._is_quick(text)
    left = [STEPS_MAX]
    assert expression._run(text, 0, True, left) is None
    assert STEPS_MAX - left[0] <= len(expression._code) * (len(text) + 1)


def test_steps_have_a_bound() -> None:
    expression = LinearExpression(".*.{400}x")
    with pytest.raises(TooManySteps):
        expression.fits("=" * 4_096)
    with pytest.raises(TooManySteps):  # each place is looked at as far as the end
        LinearExpression("(?:a*b|a)(?:a*b|a)c?").replaced("a" * 4_096, written)


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(a)\1", "(?=a)a", "(?!a)b", "(?<=a)b", "a*+", "(?>a)", "(a)?(?(1)b|c)"),
        *("(a*)*", "(a?b?)+", "(^){2}", "(?:a{100}){100}"),
    ],
)
def test_expressions_that_need_to_go_back_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"go back|may be empty|repeats too much"):
        LinearExpression(pattern)
    assert INSTRUCTIONS_MAX < 100 * 100
