"""kill -9 of maintenance at seeded steps, every other time with a second one at the same tables.

    nice python -m tests.spark.maintain_kills --kills 20 --seed 7

As tests/spark/deaths.py within a process, here with processes: a maintenance of its
own, Python and JVM, ends itself at a step. After each the tables are compared, row for row, with
what has landed, and more is landed; in the end a maintenance finishes what is left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from spark_jobs import maintain as job
from spark_jobs.maintain import Plan, maintain
from spark_jobs.schema import TABLES
from spark_jobs.session import session
from tests.spark.deaths import FIRST, STEPS, World, stepping
from tests.spark.kill_driver import CONF
from tests.spark.things import THINGS

PROCESS_S_MAX: Final = 300.0
DAYS_EACH: Final = 1.1  # what is of no use after one maintenance is removed by the next
SURVIVES: Final = "none"


def child(root: str, clock_ms: str, raw_days: str, step: str, nth: str) -> None:
    """One maintenance that ends itself, and its JVM, when it is at the step for the nth time."""
    left = int(nth)

    def at(name: str) -> None:
        nonlocal left
        left -= name == step
        if left == 0:
            os.killpg(0, signal.SIGKILL)

    set_up()
    spark = session("local[1]", "kbroker-maintain-kills", source="kbroker", conf=CONF)
    with stepping(at):
        maintain(spark, root, Plan(int(raw_days)), say=print, clock_ms=lambda: int(clock_ms))
    spark.stop()


def set_up() -> None:
    TABLES["things"] = THINGS
    job.FOLD_AFTER = 3  # type: ignore[misc]


def started(world: World, step: str, nth: int, log: Path) -> subprocess.Popen[bytes]:
    with open(log, "ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.maintain_kills", "--child", world.root,
             str(world.clock_ms), str(world.raw_days), step, str(nth)],
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def ended(process: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether it was killed; AssertionError if it failed."""
    try:
        status = process.wait(PROCESS_S_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert status in (0, -signal.SIGKILL), log.read_text(errors="replace")[-3000:]
    return status != 0


def run(place: Path, kills: int, seed: int) -> Counter[str]:
    """How often a step was the last one of a process."""
    draw, done, turn = random.Random(seed), Counter[str](), 0
    set_up()
    spark = session("local[1]", "kbroker-maintain-kills", source="kbroker", conf=CONF)
    world, log = World(spark, place), place.with_suffix(".log")
    world.land_things(0, 1, unreadable=1)
    world.land_samples(0, 1)
    while done.total() < kills:
        assert turn < 5 * kills, done
        turn += 1
        world.land_things(1, unreadable=1)
        world.land_samples(1)
        steps = [draw.choice(sorted(STEPS))]
        if turn % 2:
            steps.append(draw.choice((SURVIVES, *sorted(STEPS))))
        began_s = time.monotonic()
        both = [(step, started(world, step, draw.choice((1, 1, 2)), log)) for step in steps]
        killed = [step for step, process in both if ended(process, log)]
        world.check(FIRST)
        world.days += DAYS_EACH
        done.update(killed)
        print(f"{turn:3} {time.monotonic() - began_s:5.1f} s  of {', '.join(steps)}"
              f" killed: {', '.join(killed) or 'none'}", flush=True)  # fmt: skip
    world.finish()
    world.check(FIRST)
    world.check_done()
    spark.stop()
    lines = Counter(line.split(":")[0] for line in log.read_text(errors="replace").splitlines()
                    if "not maintained" in line or "try again" in line)  # fmt: skip
    print(f"{turn} rounds, {done.total()} kills: no row lost, doubled or changed; lines of jobs"
          f" that gave way: {dict(lines)}")  # fmt: skip
    return done


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.spark.maintain_kills")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as place:
        for step, count in sorted(run(Path(place, "tables"), options.kills, options.seed).items()):
            print(f"{count:4} {step}")


if __name__ == "__main__":
    main()
