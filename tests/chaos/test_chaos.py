"""A short chaos run of each kind; the long ones are `python -m tests.chaos`."""

from __future__ import annotations

import pytest

from tests.chaos.run import Chaos, Settings
from tests.clients.agents.driver import AgentError
from tests.clients.conftest import a_clients_own


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.flaky(reruns=1, condition=a_clients_own)
@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
def test_nothing_is_lost(protocol: str) -> None:
    seed = 2312
    settings = Settings(seconds=20, consumers=8, partitions=24, protocol=protocol, seed=seed)
    outcome = Chaos(settings).run()
    report = "\n".join([f"seed {seed}", *outcome.violations, *outcome.clients_own])
    assert not outcome.violations, report
    if outcome.clients_own:
        print(report)  # whole; what each end says of itself decides, not the code that it passed
        raise AgentError("\n".join(end.rpartition("\n")[2] for end in outcome.clients_own))
    assert outcome.figures["records"]
    assert outcome.figures["commits answered"]
