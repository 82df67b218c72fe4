"""Our expressions against RE2/J: 3,000 random ones; the command does more."""

from __future__ import annotations

import pytest

from tests.model.expressions import compare

pytestmark = pytest.mark.java


def test_expressions_are_those_of_re2j() -> None:
    found, kinds = compare(7, 3_000)
    assert not found
    assert kinds["matched"] > 1_000
    assert kinds["refused by both"] > 500
