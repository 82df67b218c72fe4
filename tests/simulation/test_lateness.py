"""Requests of every kind arrive after their senders have given up."""

from __future__ import annotations

import pytest

from kbroker.types import ApiKey
from tests.simulation import group_members, handlers
from tests.simulation.act import Act
from tests.simulation.broker import Running
from tests.simulation.history import run
from tests.simulation.network import LATE_MS, Exchange, Network, Serve
from tests.simulation.requests import Produces

LATE_PERCENT, SEEDS = 20, 40
# These have every kind between them; when histories change, the others are run too.
ENOUGH = (17, 2, 8)
SCHEDULE = (
    *(Act(at_ms, "stop", (3, 50)) for at_ms in (300, 1_200, 2_100)),
    *(Act(at_ms, "produce", (0, 0)) for at_ms in range(0, 2_500, 200)),
    *(Act(at_ms, "commit", (1,)) for at_ms in range(0, 2_500, 200)),
    *(Act(at_ms, "ask_committed", (1, 1)) for at_ms in range(0, 2_500, 200)),
    *(Act(at_ms, "ask_end", (0,)) for at_ms in range(0, 2_500, 200)),
    *(Act(at_ms, "delete_records", (0, 30)) for at_ms in range(0, 2_500, 200)),
    *(Act(at_ms, "delete_group", (at_ms % 400 // 200,)) for at_ms in range(0, 2_500, 200)),
    *(Act(at_ms, "commit", (0,)) for at_ms in range(0, 2_500, 200)),
    Act(0, "serve_transactions", (1, 0, 1)),
    *(Act(at_ms, "transact", (at_ms % 450 // 150,)) for at_ms in range(0, 2_500, 150)),
)


def test_every_kind_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    arrives: list[Exchange] = []
    late: set[ApiKey] = set()

    def delay_of(network: Network, ways: tuple[int, int]) -> int:
        dice = network._dice
        return dice.randrange(*LATE_MS) if dice.randrange(100) < LATE_PERCENT else 0

    def arrive(exchange: Exchange, serve_: Serve) -> None:
        arrives.append(exchange)
        try:
            arrive_as_ever(exchange, serve_)
        finally:
            arrives.pop()

    def note(api_key: ApiKey) -> None:
        if arrives and arrives[-1].over:
            late.add(api_key)

    def serve(running: Running, api_key: ApiKey, *how: object) -> None:
        note(api_key)
        serve_as_ever(running, api_key, *how)  # type: ignore[arg-type]

    def produce(produces: Produces, *how: object) -> None:
        note(ApiKey.PRODUCE)
        produce_as_ever(produces, *how)  # type: ignore[arg-type]

    arrive_as_ever, serve_as_ever, produce_as_ever = Exchange.arrive, Running.serve, Produces.serve
    monkeypatch.setattr(group_members, "LEAVES", 0.5)
    monkeypatch.setattr(Network, "delay_of", delay_of)
    monkeypatch.setattr(Exchange, "arrive", arrive)
    monkeypatch.setattr(Running, "serve", serve)
    monkeypatch.setattr(Produces, "serve", produce)
    every = {*map(ApiKey, handlers.SERVED), ApiKey.FETCH, ApiKey.PRODUCE}
    every = {each for each in every if "SHARE" not in each.name}  # which this schedule has not
    for seed in dict.fromkeys((*ENOUGH, *range(SEEDS))):
        run(seed, SCHEDULE)  # so much is late that no client need be served in time
        if late == every:
            break
    assert late == every
