"""How long each command of the command line takes, from exec to exit, against a local broker.

    python -m perf.command_times [RUNS]

Starts a broker, gives it topics and a group, and runs every command that asks it something RUNS
times (default 10). Prints wall and CPU time in ms, the least and the median. The bar is 150 ms.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Final, NamedTuple

from kbroker.testing import Broker

TOPICS: Final = 10
RUNS_DEFAULT: Final = 10
COMMANDS: Final = (
    "version", "topic list", "topic describe t0", "topic create new --dry-run", "offsets",
    "offsets t0 --at 1000", "logdirs", "logdirs t0", "config get -t t0 --all",
    "config get --broker 1 --all", "config get --logger 1", "config explain num.io.threads",
    "config explain retention.ms -t t0", "config set -t t0 retention.ms=5 --dry-run",
    "group list", "group describe g", "group describe g --members",
    "group reset g -t t0 --to-earliest", "group reset g --all-topics --by-duration 1h",
    "group delete g", "consume t0 -e", "consume t0 -G g -e", "health", "doctor", "top -n 1",
    "topic list -o json",
)  # fmt: skip
# An installed command has its bytecode.
ENVIRONMENT: Final = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
LOCAL: Final = frozenset({"version", "config explain num.io.threads"})


class Times(NamedTuple):
    """Milliseconds of one run."""

    wall: float
    cpu: float
    status: int


def run(words: list[str], stdin: bytes = b"") -> Times:
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "kbroker", *words],
        input=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    wall_ms = (time.perf_counter() - begin) * 1000
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Times(wall_ms, cpu_s * 1000, done.returncode)


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS_DEFAULT
    with Broker() as broker:
        at = ["-b", broker.bootstrap]
        run(["topic", "create", *[f"t{n}" for n in range(TOPICS)], "-p", "3", *at])
        run(["produce", "t0", *at], b"a\nb\nc\n")
        run(["consume", "t0", "-G", "g", "-e", *at])
        print("| command | status | wall, least | wall, median | CPU, median |")
        print("|---|---:|---:|---:|---:|")
        for command in COMMANDS:
            words = [*command.split(), *([] if command in LOCAL else at)]
            times = [run(words) for _ in range(runs)]
            wall = [each.wall for each in times]
            cpu = statistics.median(each.cpu for each in times)
            print(
                f"| `{command}` | {times[-1].status} | {min(wall):.0f} |"
                f" {statistics.median(wall):.0f} | {cpu:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
