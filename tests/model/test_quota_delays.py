"""Our quotas have clients wait as long as Apache Kafka's: 12,000 charges; the command does more."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.model.quota_delays import differences

pytestmark = pytest.mark.java


@pytest.mark.parametrize("seed", [1, 2])
def test_delays_are_those_of_apache_kafka(seed: int) -> None:
    assert not list(islice(differences(seed, rounds=50), 3))
