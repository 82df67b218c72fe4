"""The answers of each API to clients without a right, with one, or with several."""

from __future__ import annotations

from collections.abc import Iterator

from tests.parity.book import Case
from tests.parity.cases import (
    _rights_to_cluster,
    _rights_to_groups,
    _rights_to_records,
    _rights_to_topics,
    _rights_to_transactions,
)


def cases() -> Iterator[Case]:
    for each in (
        _rights_to_records,
        _rights_to_topics,
        _rights_to_groups,
        _rights_to_transactions,
        _rights_to_cluster,
    ):
        yield from each.book.cases()
