"""Questions to the admin port, as its queries have them."""

from __future__ import annotations

import pytest

from kbroker.observe.why.facts import About, Question
from kbroker.observe.why.question import parse


@pytest.mark.parametrize(
    ("query", "question"),
    [
        ({"consumer": "a/b"}, Question(About.CONSUMER, "a/b")),
        ({"produce": "orders"}, Question(About.PRODUCE, "orders")),
        ({"partition": "orders/7"}, Question(About.PARTITION, "orders", 7)),
        ({"slow": ""}, Question(About.SLOW)),
        (
            {"produce": "o", "principal": "User:a", "host": "::1", "client-id": "c"},
            Question(About.PRODUCE, "o", -1, "User:a", "::1", "c"),
        ),
        (
            {"produce": "o", "client-id": "", "batch-bytes": "9"},
            Question(About.PRODUCE, "o", client_id="", batch_bytes=9),
        ),
    ],
)  # fmt: skip
def test_questions(query: dict[str, str], question: Question) -> None:
    assert parse(query) == question


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"consumer": ""},
        {"consumer": "a", "produce": "b"},
        {"consumer": "a", "more": "b"},
        {"partition": "orders"},
        {"partition": "orders/"},
        {"partition": "/1"},
        {"partition": "orders/-1"},
        {"partition": "orders/" + "9" * 5_000},
        {"produce": "orders", "principal": "anna"},
        {"produce": "orders", "batch-bytes": "٣"},
    ],
)
def test_other_queries_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(query)
