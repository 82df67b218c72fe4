"""Histories by hand: one seed with all it did, or as many as one likes.

    python -m tests.simulation --seed 17             the acts, and the rule that was violated
    python -m tests.simulation --seeds 0..100000     one after the other; goes on where it stopped
    python -m tests.simulation --seed 17 --shrink    the shortest schedule that fails the same way

`--plant NAME` switches one of the planted faults on (`planted.py`, `planted_threads.py` and so
on). `--seeds` writes its progress to the file that `--progress` names.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from tests.simulation.act import Act
from tests.simulation.history import Outcome, run
from tests.simulation.planted import PLANTED
from tests.simulation.planted_shares import PLANTED_IN_SHARES
from tests.simulation.planted_threads import PLANTED_IN_THREADS
from tests.simulation.planted_transactions import PLANTED_IN_TRANSACTIONS
from tests.simulation.shrink import shrink

SAVED_EVERY = 20
ALL_PLANTED = {
    **PLANTED_IN_THREADS,
    **PLANTED,
    **PLANTED_IN_TRANSACTIONS,
    **PLANTED_IN_SHARES,
}
ONLY_IN_THREADS = PLANTED_IN_THREADS.keys() - PLANTED.keys()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", help="FIRST..LAST, without the last")
    parser.add_argument("--progress", type=Path, default=Path("build/simulation.json"))
    parser.add_argument("--pipelined", action="store_true", help="producers do not wait")
    parser.add_argument(
        "--threads", action="store_true", help="brokers have threads, and disks hang; a debug build"
    )
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument(
        "--transactions",
        choices=("some", "all", "none"),
        default="some",
        help="which histories have transactions; some: as their seeds say",
    )
    parser.add_argument("--shares", action="store_true", help="histories have share groups")
    parser.add_argument("--plant", choices=sorted(ALL_PLANTED))
    parser.add_argument("--stop-at-first", action="store_true")
    options = parser.parse_args(arguments)
    if options.plant in ONLY_IN_THREADS and not options.threads:
        parser.error(f"only brokers with --threads, in a debug build, can find {options.plant}")
    with planted(options.plant):
        if options.seeds is not None:
            return many(options)
        return one(options)


def planted(name: str | None) -> AbstractContextManager[Any]:
    return nullcontext() if name is None else ALL_PLANTED[name].switched_on()


def how_of(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that select a history, beside its seed."""
    return {
        "pipelined": options.pipelined,
        "threads": options.threads,
        "transactions": {"some": None, "all": True, "none": False}[options.transactions],
        "shares": options.shares,
    }


def one(options: argparse.Namespace) -> int:
    how = how_of(options)
    outcome = run(options.seed or 0, **how)
    schedule = outcome.schedule
    if outcome.violation is not None and options.shrink:
        schedule = shrunk(outcome, how)
        outcome = run(outcome.seed, schedule, **how)
    for act in schedule:
        print(act)
    print(summary(outcome))
    return int(outcome.violation is not None)


def shrunk(outcome: Outcome, how: dict[str, Any]) -> list[Act]:
    assert outcome.violation is not None

    def fails(schedule: Any) -> str | None:
        violation = run(outcome.seed, schedule, **how).violation
        return None if violation is None else violation.rule

    return shrink(outcome.schedule, outcome.violation.rule, fails)


def summary(outcome: Outcome) -> str:
    figures = (
        f"{outcome.steps} steps, {outcome.requests} requests, {outcome.acknowledged} batches"
        f" acknowledged, {outcome.consumed} records consumed, {outcome.commits} commits"
        f" acknowledged, {outcome.answered} offsets answered in {outcome.virtual_ms} virtual ms"
    )
    if outcome.committed or outcome.aborted:
        figures += (
            f"; transactions: {outcome.committed} ends committed, {outcome.aborted} aborted,"
            f" {outcome.left_out} records left out"
        )
    if outcome.delivered:
        figures += (
            f"; share groups: {outcome.delivered} deliveries, {outcome.shared} acknowledged,"
            f" {outcome.archived} used up"
        )
    return f"seed {outcome.seed}: {outcome.violation or 'all held'}; {figures}"


def many(options: argparse.Namespace) -> int:
    first, _, last = options.seeds.partition("..")
    state = {"seeds": options.seeds, "next": int(first), "core_s": 0.0, "steps": 0, "failed": []}
    if options.progress.exists():
        known = json.loads(options.progress.read_text())
        if known["seeds"] == options.seeds:
            state = known
    began, began_cpu = time.monotonic(), time.process_time()
    begun_at, core_s = state["next"], state["core_s"]
    for seed in range(state["next"], int(last)):
        try:
            outcome = run(seed, **how_of(options))
        except Exception:  # of a simulated person, or client: that history has no result
            violation, line = True, f"seed {seed}: {traceback.format_exc()}"
        else:
            state["steps"] += outcome.steps
            violation, line = outcome.violation is not None, summary(outcome)
        state["next"] = seed + 1
        if violation:
            state["failed"].append(seed)
            print(line, flush=True)
            if options.stop_at_first:
                break
        if seed % SAVED_EVERY == 0:
            state["core_s"] = core_s + time.process_time() - began_cpu
            save(options.progress, state)
    state["core_s"] = core_s + time.process_time() - began_cpu
    save(options.progress, state)
    done = state["next"] - begun_at
    print(
        f"{state['next'] - int(first)} histories, {len(state['failed'])} failed,"
        f" {state['steps']} steps, {state['core_s']:.0f} core-seconds; in this run"
        f" {done / max(0.001, time.monotonic() - began):.1f} histories/s"
    )
    return int(bool(state["failed"]))


def save(path: Path, state: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(state))
    os.replace(temporary, path)


if __name__ == "__main__":
    sys.exit(main())
