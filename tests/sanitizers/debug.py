"""The debug build under a scheduler that decides which thread runs: `make test-debug`.

    python -m tests.sanitizers.debug             all of it, 12 minutes at most
    python -m tests.sanitizers.debug --short     histories alone

A copy of the sources is built with KBROKER_DEBUG=1 (build/debug; the tree itself is untouched): its
locks hold their order, and broken invariants end a process. In it run the unit tests of modules
with locks and files, histories of simulated brokers with threads
(`tests/simulation/scheduler.py`), and faults of three real brokers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import Final

from tests.sanitizers import tree

SUITES: Final = (
    "tests/unit/core/test_lock_order.py",
    *(
        f"tests/unit/{part}"
        for part in ("log", "replica", "coordinator", "net", "engine", "server")
    ),
)
THREADS: Final = "tests/simulation/test_threads.py"
SEEDS, SHORT_SEEDS = "0..600", "0..40"
FAULTS: Final = ("--faults", "6", "--in-memory", "--nemeses", "kill,pause,hang-disk")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sanitizers.debug", description=__doc__)
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    copy = tree.debug_copy()
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not java", "-n", "2")
    histories = ("-m", "tests.simulation", "--threads", "--progress", "build/threads.json")
    runs = [(*pytest, THREADS), (*histories, "--seeds", SHORT_SEEDS if options.short else SEEDS)]
    if not options.short:
        runs += [(*pytest, *SUITES), ("-m", "tests.cluster", *FAULTS)]
    (copy / "build/threads.json").unlink(missing_ok=True)
    failed = []
    for run in runs:
        began_s = time.monotonic()
        status = subprocess.run(
            [sys.executable, *run], cwd=copy, env=environment, check=False
        ).returncode
        took_s = time.monotonic() - began_s
        print(f"{' '.join(run)}: status {status} after {took_s:.0f} s", flush=True)
        if status:
            failed.append(run)
    print(f"debug: {'FAILED' if failed else 'clean'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
