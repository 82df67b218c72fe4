"""Three brokers are restarted one after the other while copiers of every library are at work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from tests.exactly_once import world
from tests.exactly_once.copiers import COMMANDS
from tests.exactly_once.copying import Lane, Target


def run(
    dice: random.Random,
    say: Callable[[str], None],
    libraries: Sequence[str] = tuple(COMMANDS),
    rounds: int = 2,
) -> list[str]:
    with world.three_brokers() as cluster, ExitStack() as running:
        lanes = []
        for library in libraries:
            lanes.append(Lane(library, cluster.bootstrap, Target(), lambda away_s: None, dice))
            running.callback(lanes[-1].stop)
        for _ in range(rounds):
            for broker_id in cluster.brokers:
                for lane in lanes:
                    lane.goes_on()
                began_s = time.monotonic()
                cluster.restart(broker_id)
                cluster.wait_in_sync()
                say(f"broker {broker_id} restarted and in sync, {time.monotonic() - began_s:.1f} s")
        violations = []
        for lane in lanes:
            lane.goes_on()
            violations += [f"{lane.library}: {line}" for line in lane.finish()]
            say(
                f"{lane.library}: {lane.numbers.sent:,} records in {lane.committed:,} transactions,"
                f" {lane.ended_by_errors} copiers ended by an error"
            )
        return violations
