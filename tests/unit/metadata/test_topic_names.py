from __future__ import annotations

import pytest

from kbroker.metadata.topic_names import collision_key, has_collision_chars, invalid_topic_name


@pytest.mark.parametrize("name", ["a", "A-9_.z", "...", "-", "x" * 249, "__consumer_offsets"])
def test_names_that_are_allowed(name: str) -> None:
    assert invalid_topic_name(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "250 characters"),
        ("a/b", "other than"),
        ("a b", "other than"),
        ("a\n", "other than"),
        ("a\x00", "other than"),
        ("tëst", "other than"),
        ("a\u0661", "other than"),  # a digit, but not an ASCII one
        ("\udcff", "other than"),
    ],
)
def test_names_that_are_not_allowed_and_why(name: str, reason: str) -> None:
    message = invalid_topic_name(name)
    assert message is not None and reason in message
    message.encode()  # can be sent


def test_dots_and_underscores_collide_and_nothing_else() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a-b") != collision_key("a_b")
    assert has_collision_chars("a.b") and has_collision_chars("a_b")
    assert not has_collision_chars("a-b")
