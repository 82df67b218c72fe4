"""Our authorizer decides as Apache Kafka's does: 20,000 questions; the command asks more."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.model.acl_decisions import differences


@pytest.mark.parametrize("seed", [1, 2])
def test_decisions_are_those_of_apache_kafka(seed: int) -> None:
    assert not list(islice(differences(seed, rounds=100), 3))
