"""Faults on real processes, by hand: as many as one likes, from a seed.

    python -m tests.cluster --faults 200 --seed 1
    python -m tests.cluster --faults 20 --nemeses kill,pause,cut
    python -m tests.cluster --fixed kill,pause           these, once, in this order
    python -m tests.cluster --in-flight 200              producers without ids and retries

Three brokers of `kbroker start` and a real ZooKeeper (without Java one in memory) run under load;
one fault comes after the other, each tells a line; at the end come the figures and every violation.
As root, and with Java, each broker has a network and a disk of its own, both gone with this
process; without, the nemeses that need those are left out, and said so. Ctrl-C and SIGTERM leave
nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from tests.cluster import namespaces
from tests.cluster.load import IDEMPOTENT_MAX
from tests.cluster.meeting import java_is_here
from tests.cluster.nemeses import NEMESES
from tests.cluster.run import hold
from tests.cluster.schedule import capped, fixed, schedule


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nemeses", help="only these, with commas", metavar="A,B")
    parser.add_argument("--fixed", help="these, in this order, once", metavar="A,B")
    parser.add_argument("--minutes", type=float, help="no fault begins later")
    parser.add_argument("--hold", type=float, metavar="SECONDS", help="no fault lasts longer")
    parser.add_argument(
        "--in-memory",
        action="store_true",
        help="ZooKeeper in this process, brokers on loopback",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="of every broker"
    )
    parser.add_argument("--in-flight", type=int, default=IDEMPOTENT_MAX, metavar="N",
                        help="of a producer; above 5 without ids and retries")  # fmt: skip
    parser.add_argument("--keep", type=Path, default=Path("build/cluster"),
                        help="where the logs of a run with violations go")  # fmt: skip
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, end)
    in_memory = options.in_memory or not java_is_here()
    isolated = namespaces.are_possible() and not in_memory
    names = (options.nemeses or options.fixed or ",".join(NEMESES)).split(",")
    unknown = {*names} - {*NEMESES}
    if unknown:
        parser.error(f"no such nemesis: {', '.join(sorted(unknown))}; there are {[*NEMESES]}")
    left_out = [name for name in names if NEMESES[name].isolated and not isolated]
    if left_out:
        print(f"left out, they need root and Java: {', '.join(left_out)}", flush=True)
    kinds = {name: NEMESES[name] for name in names if name not in left_out}
    if options.fixed:
        faults = fixed([name for name in names if name in kinds], options.seed, NEMESES)
    else:
        faults = schedule(options.seed, kinds, options.faults)
    if options.hold:
        faults = [capped(fault, options.hold) for fault in faults]
    if isolated:
        namespaces.leave_the_machine()
    until_s = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    keep = options.keep / f"{options.seed}-{os.getpid()}"
    outcome = hold(
        faults,
        seed=options.seed,
        in_memory=in_memory,
        isolated=isolated,
        say=say,
        keep=keep,
        until_s=until_s,
        settings=dict(each.split("=", 1) for each in options.set),
        in_flight=options.in_flight,
    )
    for line in outcome.summary():
        say(line)
    return 1 if outcome.violations else 0


def say(line: str) -> None:
    print(line, flush=True)


def end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
