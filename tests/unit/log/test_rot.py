"""One file of a broker's is damaged somewhere: the cost, and for which logs."""

from __future__ import annotations

import pytest

from tests.unit.log import rot_model


@pytest.mark.parametrize("seed", range(10))
def test_damage_costs_no_more_than_where_it_is(seed: int) -> None:
    assert rot_model.run(seed).total() == rot_model.CASES_PER_HISTORY
