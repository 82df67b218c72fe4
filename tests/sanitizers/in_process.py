"""ThreadSanitizer over parts of the compiled core in one process, without a broker around them.

What a lone broker is not asked to do: follow a leader, be cut, count followers, lead in a new
epoch; fetches in moments so quiet that a Processor serves them; crowds of produces that wait for a
follower, which a test moves; transactional ids that C and Python serve at once; and connections
over TLS beside new certificates. Each is a test that every run has, a function of a folder; here
it runs a few times with the sanitizer loaded, and what counts is a report. `make test-tsan` begins
with it.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.sanitizers import races, tree

ROUNDS: Final = 3
DONE: Final = ": done"
TESTS: Final = (
    "tests.unit.replica.test_threads:test_leading_and_following_beside_readers",
    "tests.unit.engine.test_threads:test_fetches_at_once_beside_all_that_changes",
    "tests.unit.engine.test_waiting_produces_threads:test_produces_beside_all_that_ends_them",
    "tests.unit.engine.test_transactions_threads:test_producers_in_c_and_in_python",
    "tests.unit.net.test_tls_threads:test_connections_beside_new_certificates",
)


def run(copy: Path, timeout_s: float) -> int:
    """The exit status; the tests run with the modules in `copy`."""
    folder = tree.fresh_reports(copy)
    problems = []
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.sanitizers.in_process"], stdout=subprocess.PIPE,
            cwd=copy, env=races.environment(copy, folder), timeout=timeout_s, check=False,
        )  # fmt: skip
        done = ended.stdout.decode()
        print(done, end="", flush=True)
        # A sanitizer that cannot begin ends with status 0, too.
        if ended.returncode or done.count(DONE) != len(TESTS) * ROUNDS:
            problems.append(f"the tests ended with status {ended.returncode} after {done!r}")
    except subprocess.TimeoutExpired:
        problems.append(f"the tests took longer than {timeout_s:.0f} s")
    return tree.verdict("thread, in one process", tree.reports(folder, races.MARKS), problems)


def main() -> None:
    for name in TESTS * ROUNDS:
        module, _, function = name.partition(":")
        with tempfile.TemporaryDirectory(prefix="kbroker-test-") as directory:
            getattr(importlib.import_module(module), function)(Path(directory))
        print(f"{function}{DONE}", flush=True)


if __name__ == "__main__":
    main()
