"""The address sanitizer in every test run: hostile frames, and the units that hold their bytes.

    python -m tests.sanitizers.frames [FRAMES]

A build of everything takes minutes (`make test-asan`); this one compiles what parses frames, owns
them while they wait and answers them, and takes the other modules as they are. A broker of it is
sent hostile frames beside clients that leave in the midst of waiting. Only a report counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from kbroker.testing.plain import PlainBroker
from tests.fuzz.target import OVERRIDES
from tests.sanitizers import tree

FRAMES: Final = 10_000
SEED: Final = 12
TIMEOUT_S: Final = 240
UNITS: Final = (
    *("kbroker/_net.pyx", "kbroker/net/_frames.pyx", "kbroker/net/_request.pyx"),
    *("kbroker/net/_channel.pyx", "kbroker/net/_send.pyx", "kbroker/replica/_fetch_session.pyx"),
    *("kbroker/engine/apis/_fetch*.pyx", "kbroker/engine/apis/_produce*.pyx"),
    *("kbroker/engine/waiting/_parked.pyx", "kbroker/engine/waiting/_long_polls.pyx"),
    *("kbroker/engine/apis/_heartbeat.pyx", "kbroker/replica/_partition.pyx"),
    *("kbroker/engine/apis/_offset_commit.pyx", "kbroker/engine/apis/_metadata*.pyx"),
    *("kbroker/log/engine/_records.pyx", "kbroker/log/engine/_producer_state.pyx"),
    *("kbroker/coordinator/group/_members.pyx", "kbroker/coordinator/group/_offsets.pyx"),
    *("kbroker/coordinator/group/_fetching.pyx", "kbroker/protocol/_wire.pyx"),
)


class SanitizedBroker(PlainBroker):
    start_timeout_s = 120.0

    def __init__(self, copy: Path, environment: dict[str, str]) -> None:
        wanted = {k: v for k, v in environment.items() if os.environ.get(k) != v}
        super().__init__(OVERRIDES, env=wanted, cwd=copy, python=sys.executable)


def main(frames: int = FRAMES) -> int:
    began = time.monotonic()
    copy = tree.sanitized_copy("address", UNITS)
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)
    folder = tree.fresh_reports(copy)
    options = f"detect_leaks=0:allocator_may_return_null=1:abort_on_error=1:log_path={folder}/asan"
    environment = tree.environment(copy, ["libasan.so"], {"ASAN_OPTIONS": options})
    problems: list[str] = []
    broker = SanitizedBroker(copy, environment)
    try:
        broker.start()
        problems += _fuzz(broker, frames)
        status = broker.stop(timeout_s=60)
        if status:
            problems.append(f"the broker ended with status {status}")
    except Exception as error:
        problems.append(f"{error!r}\n{broker.log_text()[-2000:]}")
    finally:
        broker.close()
    print(f"took {time.monotonic() - began:.0f} s")
    found = tree.reports(folder, ("ERROR: AddressSanitizer",))
    return tree.verdict("address, hostile frames", found, problems)


def _fuzz(broker: PlainBroker, frames: int) -> list[str]:
    """Its bars of memory and time are for a plain build; that it comes to its end is asked here."""
    command = [
        sys.executable, "-m", "tests.fuzz.frames", "--frames", str(frames), "--seed", str(SEED),
        "--workers", "1", "--bootstrap", broker.bootstrap, "--pid", str(broker.pid), "--unjudged",
    ]  # fmt: skip
    fuzzed = subprocess.run(
        command, cwd=tree.ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    print(f"{fuzzed.stdout[-3000:]}{fuzzed.stderr[-1500:]}")
    if "neighbour:" not in fuzzed.stdout:
        return [f"the fuzzer did not end: {fuzzed.stdout[-500:]} {fuzzed.stderr[-1500:]}"]
    return []


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
