"""Document 000's diagnosis: what the leader says of itself under a load that its producer feels.

The document looked at the broker's own percentiles, found 99 of 100 produces done within a
millisecond, and at the follower, which kept up; so neither was slow. The waiting requests were in
the socket, which no broker's clock sees. Here both clocks are beside each other, with the
follower's fetches and, of kbroker, the time that the producers' channels were in each state.

A cluster of its own for each cell, since a broker's percentiles are of its last minutes. The same
load runs twice: once to get warm, which is in the broker's percentiles as well, and once to be
measured.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from perf.brokers.own_figures import OwnFigures
from perf.cells import MEGABYTE, CellError
from perf.cluster.brokers import Make
from perf.pipelining.bench import FOLLOWER, LEADER, Bench
from perf.pipelining.failures import void_on_failure
from perf.pipelining.plan import Condition
from perf.pipelining.two_networks import TwoNetworks
from perf.studies.measured import Measured

WARM_S, WINDOW_S = 3.0, 25.0
BROKER: Final = "broker_"  # before a percentile in us, by the broker's clock
LEG: Final = "leg_"  # before a part of a produce's time: its median in us, by the same clock
STATE: Final = "state_"  # before a state's name: the share of the producers' channels' time


def measure(condition: Condition, make: Make, networks: TwoNetworks, root: Path) -> Measured:
    """One load. CellError as of any block, and where the broker does not tell."""
    cluster = make(root, FOLLOWER, settings={})
    leader = cluster.nodes[LEADER]
    leader.tell_figures()
    with void_on_failure(condition.key), cluster:
        bench = Bench(cluster, networks, WINDOW_S)
        bench.run(condition, seconds=WARM_S)
        before = leader.own_figures()
        found = bench.run(condition)
        figures = figures_between(before, leader.own_figures(), found)
        return replace(found, figures={**found.figures, **figures})


def figures_between(before: OwnFigures, after: OwnFigures, found: Measured) -> dict[str, float]:
    """Figures of a block between two looks. CellError where the broker counted nothing."""
    produces = after.produces - before.produces
    fetches = after.follower_fetches - before.follower_fetches
    produced_bytes = after.produced_bytes - before.produced_bytes
    replicated_bytes = after.replicated_bytes - before.replicated_bytes
    if not (produces > 0 and produced_bytes > 0):
        raise CellError("the leader says that no client produced")
    made = {f"{BROKER}{name}_us": us for name, us in after.produce_us.items()}
    made |= {f"{LEG}{name}_us": us for name, us in after.legs_us.items()}
    # The follower has had the time of its lag as well.
    share = found.wall_s / (found.wall_s + found.figures.get("behind_s", 0.0))
    made["fetches_per_s"] = found.requests_per_s * share * fetches / produces
    made["fetch_bytes"] = replicated_bytes / fetches if fetches else 0.0
    made["fetched_mb_per_s"] = found.requests_per_s * share * replicated_bytes / produces / MEGABYTE
    grown = {name: s - before.state_s.get(name, 0.0) for name, s in after.state_s.items()}
    every = sum(grown.values())
    for name, seconds in grown.items():
        made[f"{STATE}{name}"] = seconds / every if every else 0.0
    return made
