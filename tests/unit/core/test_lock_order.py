"""The lock order of the compiled core: which rank may be waited for while which are held."""

from __future__ import annotations

import itertools

from kbroker.core._lock_order import RANKS, order_allows

ORDER = ["turn", "table", "session", "partition", "queue"]


def test_the_ranks_are_the_order_of_the_documents() -> None:
    assert sorted(RANKS, key=lambda name: RANKS[name]) == ORDER


def test_only_a_later_rank_may_be_waited_for() -> None:
    for count in range(len(ORDER) + 1):
        for held in itertools.combinations(ORDER, count):
            for wanted in ORDER:
                last = max((ORDER.index(name) for name in held), default=-1)
                assert order_allows(list(held), wanted) is (ORDER.index(wanted) > last)
