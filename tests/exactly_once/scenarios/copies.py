"""Consume, transform, produce: numbers are copied in transactions, by each library, while the
broker and the copiers are killed at each step; each arrives once, in its partition's order.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from tests.exactly_once import world
from tests.exactly_once.copying import GOES_ON_S, Kill, Lane, Target, plan


def run(
    library: str,
    dice: random.Random,
    say: Callable[[str], None],
    rounds: int = 1,
    kills: Sequence[Kill] | None = None,
) -> list[str]:
    """Violations. `kills` instead of every one, `rounds` times."""
    chosen = plan(library, rounds, dice) if kills is None else kills
    with world.one_broker() as server, ExitStack() as running:

        def kill_broker(away_s: float) -> None:
            server.kill9()
            time.sleep(away_s)
            server.start()

        target = Target()
        lane = Lane(library, server.bootstrap, target, kill_broker, dice)
        running.callback(lane.stop)
        for kill in chosen:
            began_s = time.monotonic()
            lane.goes_on()
            target.aim(kill)
            if not target.happened.wait(GOES_ON_S):
                raise TimeoutError(f"{library} does not come to {kill}")
            say(f"{library}: {kill}, after {time.monotonic() - began_s:.1f} s")
        lane.goes_on()
        violations = lane.finish()
        say(
            f"{library}: {len(chosen)} kills, {lane.numbers.sent:,} records in {lane.committed:,}"
            f" transactions that were reported; {lane.ended_by_errors} copiers ended by an error"
        )
        return violations
