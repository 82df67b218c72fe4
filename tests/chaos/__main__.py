"""`python -m tests.chaos`: see README.md. Exit status 0 if nothing was violated, and no client
ended by an error of its own."""

from __future__ import annotations

import argparse
import random
import signal
import sys
from pathlib import Path

from tests.chaos.consumers import OF_PROTOCOL, RUN
from tests.chaos.run import Chaos, Settings

SHOWN_MAX = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Consumers by dice.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--consumers", type=int, default=30, help="at most")
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--rate", type=int, default=1_000, help="records a second")
    parser.add_argument("--protocol", choices=sorted(OF_PROTOCOL), default="eager")
    parser.add_argument("--broker", choices=("kbroker", "kafka"), default="kbroker")
    parser.add_argument("--kills", type=int, default=1, help="SIGKILLs of the broker")
    parser.add_argument("--every", type=float, default=1.5, help="seconds between events")
    parser.add_argument("--clients", nargs="*", choices=sorted(RUN), default=())
    parser.add_argument("--seed", type=int, default=None, help="the dice; printed")
    parser.add_argument("--keep", action="store_true", help="the journals")
    given = parser.parse_args()
    seed = random.randrange(1 << 31) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or the workers would stay
    settings = Settings(
        seconds=given.seconds,
        consumers=given.consumers,
        partitions=given.partitions,
        rate=given.rate,
        protocol=given.protocol,
        seed=seed,
        broker=given.broker,
        kills=given.kills,
        every_s=given.every,
        clients=tuple(given.clients),
        keep=Path() if given.keep else None,
    )
    outcome = Chaos(settings).run()
    for name, figure in outcome.figures.items():
        print(f"{name:>24}  {figure}")
    for violation in outcome.violations[:SHOWN_MAX]:
        print(f"violated: {violation}")
    for end in outcome.clients_own:
        print(f"the client's own: {end}")
    print(f"{len(outcome.violations)} violations")
    return 1 if outcome.violations or outcome.clients_own else 0


if __name__ == "__main__":
    sys.exit(main())
