"""Prose is in plain words: the documents today, the code room by room."""

from __future__ import annotations

import pytest

from tests.support.plain_words import (
    LEFT,
    NAMES_LEFT,
    ROOT,
    counts,
    found,
    found_names,
    name_counts,
    prose_of,
    text_of,
    without_recorded,
)


def test_no_room_has_more_of_the_words_than_it_is_allowed() -> None:
    more = [
        f"{room}: {count} of {LEFT.get(room, 0)} -> python -m tests.support.plain_words {room}"
        for room, count in counts().items()
        if count > LEFT.get(room, 0)
    ]
    assert not more, "\n".join(more)


def test_a_room_without_such_words_is_not_in_the_list() -> None:
    assert not LEFT.keys() - counts().keys()
    assert not NAMES_LEFT.keys() - name_counts().keys()


def test_no_room_has_more_such_names_of_tests_than_it_is_allowed() -> None:
    more = [
        f"{room}: {count} of {NAMES_LEFT.get(room, 0)}: python -m tests.support.plain_words {room}"
        for room, count in name_counts().items()
        if count > NAMES_LEFT.get(room, 0)
    ]
    assert not more, "\n".join(more)


@pytest.mark.parametrize(
    ("name", "is_found"),
    [
        ("test_what_is_acknowledged_stays", True),
        ("test_the_deadline_answers_who_waits", True),
        ("test_a_fetch_says_what", True),
        ("test_nobody_waits", True),
        ("test_a_whole_request_is_somewhat_large", False),
        ("whatever_is_no_test", False),
    ],
)
def test_names_of_tests(name: str, is_found: bool) -> None:
    assert bool(found_names(f"    def {name}(self) -> None:")) is is_found


@pytest.mark.parametrize(
    ("sentence", "times"),
    [
        ("Whoever leads is told.", 2),
        ("It waits behind the sync.", 1),
        ("Nobody hears of it.", 2),
        ("Those of who leads are sent.", 1),
        ("What is acknowledged stays.", 1),
        ("It is over. Who leads waits.", 1),
        ("What does it cost?", 0),
        ("The page says what a client waits for.", 0),
        ("A threshold, a standstill and a toldable word.", 0),
        ('row["behind"], not behind', 1),
    ],
)
def test_the_words_themselves(sentence: str, times: int) -> None:
    assert len(list(found(sentence))) == times


def test_a_string_of_the_recorded_answers_is_data() -> None:
    code = 'case("nobody")  # nobody'
    assert len(list(found(without_recorded(code, '{"nobody v1": []}')))) == 1
    assert len(list(found(without_recorded(code, "{}")))) == 2


def test_code_and_generated_parts_of_a_document_are_not_prose() -> None:
    page = (
        "Say `told` so.\n\n```\nnobody\n```\n\n    whoever\n\n[x](told.md)\n"
        "<!-- measured by x -->\nbehind\n<!-- end -->\n"
    )
    assert not list(found(prose_of(page)))
    assert not list(found(prose_of("<!-- Written by x -->\nnobody\n")))
    assert len(list(found(prose_of("It is of\nwho leads.\n")))) == 1


def test_a_document_that_was_rewritten_is_read() -> None:
    assert len(text_of(ROOT / "docs" / "architecture.md")) > 10_000
