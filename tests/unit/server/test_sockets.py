"""What the configuration says of the network, in the numbers that the network core gets."""

from __future__ import annotations

import pytest

from kbroker.config import BrokerConfig
from kbroker.errors import UserError
from kbroker.server import sockets


def test_answers_that_wait_may_hold_an_eighth_of_memory_or_what_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "memory_limit", lambda: 1 << 30)
    assert sockets.unsent_bytes_max(BrokerConfig.load()) == 1 << 27
    config = BrokerConfig.load(overrides=["queued.max.response.bytes=1048576"])
    assert sockets.unsent_bytes_max(config) == 1 << 20


@pytest.mark.parametrize("bound", [0, -2, 1_048_575])
def test_a_bound_that_would_cut_off_clients_that_read_is_refused(bound: int) -> None:
    with pytest.raises(UserError, match=r"queued\.max\.response\.bytes"):
        BrokerConfig.load(overrides=[f"queued.max.response.bytes={bound}"])
