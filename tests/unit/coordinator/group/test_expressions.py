"""Regular expressions over topics: RE2/J's answers, and what hostile ones cost."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.coordinator.group.expression_parser import (
    DEPTH_MAX,
    LENGTH_MAX,
    STATES_MAX,
    parse,
)
from kbroker.coordinator.group.expressions import (
    NAMES_AT_ONCE,
    ExpressionError,
    NameExpression,
    TextExpression,
)
from tests.model.expressions import NAMES, REFUSED, SAMPLE, is_a_bound, ours

TOPIC: Final = "a" * 249  # the longest


def test_a_sample_of_re2j() -> None:
    sample = json.loads(SAMPLE.read_text())
    assert sample["names"] == list(NAMES)
    wrong, compared, refused = [], 0, 0
    for text, expected in sample["expressions"]:
        answer, reason = ours(text)
        if is_a_bound(reason) and expected != REFUSED:
            continue
        compared += 1
        refused += expected == REFUSED
        if answer != expected:
            wrong.append((text, expected, answer, reason))
    assert not wrong
    assert compared - refused > 300
    assert refused > 10


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("orders-.*", "orders-eu orders-", "orders x-orders-eu"),
        ("", "", "a"),
        ("a|", "a", "b aa"),
        ("(?i)Orders", "orders ORDERS", "order"),
        ("[a-c]{2,3}", "ab abc", "a abcd abd"),
        (r"\d+|[[:upper:]]", "12 A", "a 1a"),
        (r"^a\b.+$", "a-b a.b", "ab a_b a"),
        (r"\Qa.b\E*", "a. a.bb", "axb"),
        (r"(?P<one>a)(?:b)?", "a ab", "b"),
        ("a.?b??", "a ab axb ax", "abbb"),
        (r"(?i)\x{212A}", "k K", "q"),
        (".*", "__consumer_offsets a", ""),
        ("(|a)*", "aa", "b"),
        ("(a*)*b", "aab b", "a"),
        ("a{0}b", "b", "ab"),
    ],
)
def test_the_whole_name_matches(text: str, yes: str, no: str) -> None:
    made = NameExpression(text)
    for name in yes.split():
        assert made.matches(name), name
    for name in no.split():
        assert not made.matches(name), name


def test_a_name_that_is_empty_or_not_ascii() -> None:
    assert NameExpression("a*").matches("")
    assert not NameExpression("a+").matches("")
    assert NameExpression(".*").matches("\u2603")
    assert NameExpression(".").matching(["\u00e9", "a", "??", "\U0001f600", ""]) == [
        "\u00e9", "a", "\U0001f600"
    ]  # fmt: skip
    assert NameExpression("[^a]\\W").matches("\u00e9\u00e9")
    assert NameExpression("[?\\w\\d]").matching(["\u00e9", "?", "\u0100"]) == ["?"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(a", "closing \\) is missing"),
        ("a)", "closes nothing"),
        ("[a", "closing \\] is missing"),
        ("*a", "repetition of nothing"),
        ("(?:|*)", "repetition of nothing"),
        ("a**", "repetition of a repetition"),
        ("a{2}{3}", "repetition of a repetition"),
        ("a{1001}", "not within 1000"),
        ("a{3,2}", "not within 1000"),
        ("(a{100}){100}", "states|more than 1000 times"),
        ("((?:){100}){100}", "more than 1000 times"),
        (r"(a)\1", "references"),
        ("(?=a)", "not supported"),
        ("(?<!a)b", "no name|not supported"),
        ("(?x)a", "not supported"),
        ("(?i", "closing \\) is missing"),
        ("(?P<>a)", "no name"),
        ("(?P<n>a)(?P<n>b)", "the same name"),
        ("[z-a]", "ends before it begins"),
        ("[[:nothing:]]", "no such class"),
        (r"\p{Nothing}", "no such class"),
        (r"\p", "has no name"),
        (r"\p{Lu", "not closed"),
        (r"\x{110000}", "no character"),
        (r"\x{" + "9" * 5_000 + "}", "no character"),
        (r"\x4", "without its number"),
        ("\\", "at the end"),
        (r"\y", "no escape"),
        ("a" * (STATES_MAX + 1), "more than 1000 states"),
        ("(?:" * 201 + "a" + "|bc)" * 201, "deeper than 200"),
        ("[[:]", "no such class"),
        ("a{?", "repetition of a repetition"),
        ("a" + "*(?i)" * 201, "deeper than 200"),
        ("a" * (LENGTH_MAX + 1), "characters"),
    ],
)
def test_refusals_with_their_reasons(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason):
        NameExpression(text)


def test_expressions_just_within_the_bounds() -> None:
    assert NameExpression("a" * STATES_MAX).matches("a" * STATES_MAX)
    assert NameExpression("a{1000}").matches("a" * 1_000)
    depth = DEPTH_MAX - 2
    assert NameExpression("(?:" * depth + "a" + "|bc)" * depth).matches("bc")
    assert NameExpression("(" * 5_000 + "a" + ")" * 5_000).matches("a")


@pytest.mark.parametrize("end", ["", "\\E"])
def test_a_literal_that_is_not_closed_goes_to_the_end(end: str) -> None:
    assert NameExpression(rf"a\Q*(\d{end}").matches(r"a*(\d")


def test_the_states_are_known_before_they_are_made() -> None:
    """A tree of a thousand characters that would have more than 10^300 states."""
    tracemalloc.start()
    try:
        began = time.thread_time()
        with pytest.raises(ExpressionError):
            NameExpression("(" * 150 + "ab" + "){9}" * 150)
        with pytest.raises(ExpressionError):
            NameExpression("(a|b)" * 6_000)
        assert time.thread_time() - began < 2
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|aa)*c", "(.*a){30}", "(a?){60}a{60}", ".*a.{200}", "(a*)*(a*)*x"]
)
def test_time_is_linear_in_the_length(text: str) -> None:
    """What takes a backtracking matcher for ever. Each name is as long as a topic's may be."""
    made = NameExpression(text)
    began = time.thread_time()
    made.matching([TOPIC] * 100)
    assert time.thread_time() - began < 3


def test_many_names_are_matched_in_pieces() -> None:
    names = [f"orders-{number}" for number in range(2 * NAMES_AT_ONCE + 7)]
    assert NameExpression("orders-[0-9]*7").matching(names) == [n for n in names if n[-1] == "7"]


@given(st.text(st.sampled_from("ab()[]{}*+?|\\^$.-:,P<>?idwQE12[:alph:]"), max_size=30))
@settings(deadline=None, max_examples=500)
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    try:
        made = NameExpression(text)
    except ExpressionError as error:
        assert str(error)
        return
    made.matching(["a", "ab", ""])
    # As many states as were counted, and the one that accepts.
    assert parse(text).states <= STATES_MAX


@pytest.mark.parametrize(
    "text", ["(?:){1000}" * 3_200, "(?:){1000,}" * 2_900, "(a{0}){999}" * 2_900]
)
def test_nothing_is_not_repeated(text: str) -> None:
    """It needs no states, so their number bounds no work."""
    began = time.thread_time()
    assert NameExpression(text).matches("")
    assert time.thread_time() - began < 0.3


def test_repetitions_of_nothing_are_as_text_without_it() -> None:
    made = NameExpression("a(?:){3}(b{0})*c(|){2}")
    assert made.matching(["ac", "a", "abc"]) == ["ac"]


def test_classes_that_are_not_closed_are_looked_for_once() -> None:
    began = time.thread_time()
    with pytest.raises(ExpressionError):
        NameExpression("[" + "[:" * 16_000)
    assert time.thread_time() - began < 0.2


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("b", ["b", "abc"], ["", "ac"]),
        ("^b", ["bc"], ["ab"]),
        ("b$", ["ab"], ["bc"]),
        ("^$", [""], ["a"]),
        ("", ["", "a"], []),
        ("b|^d", ["abc", "dx"], ["xd"]),
        (r"\bb\b", ["a b c"], ["abc"]),
        ("a.c", ["aéc", "a c"], ["ac", "a\nc"]),
        ("[^a]", ["é"], ["a", "aa"]),
        (r"\w", ["x"], ["é", " "]),
        (r"\Qa.b", ["xa.bx"], ["axb"]),
        ("(?i)B{2}", ["abBa"], ["b b"]),
    ],
)
def test_a_part_of_a_text(text: str, yes: list[str], no: list[str]) -> None:
    """Letters beyond ASCII have two bytes and more: `.` takes one of them."""
    expression = TextExpression(text.replace("a.c", "a.+c"))
    assert [expression.found_in(each.encode()) for each in yes] == [True] * len(yes)
    assert [expression.found_in(each.encode()) for each in no] == [False] * len(no)


def test_any_bytes_are_a_text() -> None:
    assert TextExpression("a+.b").found_in(bytes(range(256)) + b"aa\xffb")
    assert not TextExpression("a").found_in(bytes(range(97)) + bytes(range(98, 256)))


def test_an_expression_beyond_ascii_is_not_searched_for() -> None:
    with pytest.raises(ExpressionError, match="beyond ASCII"):
        TextExpression("é")


def test_a_search_takes_no_more_than_its_steps() -> None:
    """What takes exponential time by trying, and a text of a megabyte."""
    expression = TextExpression("(a|aa)+$|(a?){50}a{50}")
    assert expression.states < 1_000
    began_s = time.perf_counter()
    assert not expression.found_in(b"a" * 49 + b"b")
    assert not TextExpression("(x+x+)+y").found_in(b"x" * 1_000_000)
    assert time.perf_counter() - began_s < 5
