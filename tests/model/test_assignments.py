"""Our assignors against Apache Kafka's: 60 groups in six steps; the command does more."""

from __future__ import annotations

import pytest

from tests.model.assignments import compare

pytestmark = pytest.mark.java


def test_assignments_are_as_good_as_those_of_apache_kafka() -> None:
    found, sums = compare(3, 60)
    assert not found
    assert sums["our squares"] <= sums["their squares"]
