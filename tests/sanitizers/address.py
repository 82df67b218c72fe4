"""AddressSanitizer and UBSan over the compiled core: `make test-asan`.

The suites that drive C code run against the sanitized copy, brokers that they start included. The
first wrong byte ends a process; undefined behaviour is written down and goes on. Leaks are not
looked for: Python keeps too much until the end (the tests count what must be given back). The
suites may take KBROKER_SANITIZER_TESTS_S seconds, by default 540.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Final

from tests.sanitizers import tree

TIMEOUT_S: Final = float(os.environ.get("KBROKER_SANITIZER_TESTS_S", "540"))
# Tests that drive compiled code; tests of Python parts alone say nothing about memory.
SUITES: Final = (
    *("tests/fuzz", "tests/system/test_hostile.py", "tests/system/test_rude_peers.py"),
    "tests/system/test_long_polls.py",
    *(f"tests/unit/{part}" for part in ("net", "engine", "log", "replica", "state")),
    *("tests/unit/coordinator", "tests/unit/server"),
    "tests/unit/protocol/test_record_batch.py",
    *("tests/unit/test_compression.py", "tests/unit/core/test_lock_order.py", "tests/model/log"),
    "--ignore=tests/fuzz/test_codecs.py",
)
FUZZ_FRAMES: Final = 15_000


def main() -> int:
    copy = tree.sanitized_copy("address,undefined")
    folder = tree.fresh_reports(copy)
    environment = tree.environment(
        copy,
        ["libasan.so", "libubsan.so"],
        {
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:abort_on_error=1"
            f":handle_abort=1:log_path={folder}/asan",
            "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={folder}/ubsan",
            "KBROKER_FUZZ_FRAMES": str(FUZZ_FRAMES),
            "KBROKER_SANITIZED": "address",
        },
    )
    command = [
        sys.executable, "-m", "pytest", "-q", "--maxfail=10", "-p", "no:cacheprovider",
        "--timeout", "300", "-m", "not java", *SUITES, *sys.argv[1:],
    ]  # fmt: skip
    problems = []
    # A session of its own: what takes too long is ended with the brokers that it has started.
    tests = subprocess.Popen(command, cwd=copy, env=environment, start_new_session=True)
    try:
        status = tests.wait(TIMEOUT_S)
        if status:
            problems.append(f"the tests ended with status {status}")
    except subprocess.TimeoutExpired:
        problems.append(f"the tests took longer than {TIMEOUT_S:.0f} s")
        os.killpg(tests.pid, signal.SIGKILL)
        tests.wait()
    marks = ("ERROR: AddressSanitizer", "runtime error:")
    return tree.verdict("address and undefined", tree.reports(folder, marks), problems)


if __name__ == "__main__":
    sys.exit(main())
