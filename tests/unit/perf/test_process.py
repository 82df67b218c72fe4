"""What ran beside a block: shares of the box from two readings of /proc/stat."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from perf import process
from perf.process import Beside, BoxTime, Guard, Watch, box_time, box_time_of

TICKS = process.CLOCK_TICKS_PER_S


def stat(*, idle_s: float, iowait_s: float = 0, steal_s: float = 0, user_s: float = 0) -> str:
    """The line for all CPUs; guest times last, which user time holds already."""
    fields = [user_s, 7, 8, idle_s, iowait_s, 9, 10, steal_s, 99, 99]
    return "cpu  " + " ".join(str(int(field * TICKS)) for field in fields)


def test_busy_is_the_time_that_was_not_idle() -> None:
    """Whatever the sampled columns say: user time jumps by 50 s here."""
    before = box_time_of(stat(idle_s=100, user_s=0), 1000.0, 2)
    after = box_time_of(stat(idle_s=101, iowait_s=0.5, steal_s=0.25, user_s=50), 1001.0, 2)
    assert after.busy_s - before.busy_s == pytest.approx(2.0 - 1.75)
    assert after.steal_s - before.steal_s == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("idle_s", "steal_s", "own_s", "kernel_s", "other_s", "others", "steal", "quiet"),
    [
        (1.9, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, True),
        (1.4, 0.0, 0.6, 0.0, 0.0, 0.0, 0.0, True),
        (1.2, 0.0, 0.6, 0.0, 0.0, 0.0, 0.0, True),  # interrupts of the block's own
        (1.0, 0.0, 0.6, 0.0, 0.0, 0.05, 0.0, False),  # something that came and went
        (1.0, 0.0, 0.6, 0.1, 0.0, 0.0, 0.0, True),  # the kernel's threads: the block's own fsyncs
        (1.3, 0.0, 0.6, 0.0, 0.1, 0.05, 0.0, False),
        (1.3, 0.1, 0.6, 0.0, 0.0, 0.0, 0.05, False),
        (1.5, 0.0, 0.6, 0.0, 0.0, 0.0, 0.0, True),  # rounding to ticks: never below nothing
    ],
)
def test_guard(
    monkeypatch: pytest.MonkeyPatch,
    idle_s: float,
    steal_s: float,
    own_s: float,
    kernel_s: float,
    other_s: float,
    others: float,
    steal: float,
    quiet: bool,
) -> None:
    readings = iter(
        [
            box_time_of(stat(idle_s=50), 10.0, 2),
            box_time_of(stat(idle_s=50 + idle_s, steal_s=steal_s), 11.0, 2),
        ]
    )
    own = iter([5_000_000_000, 5_000_000_000 + int(own_s * 1e9)])
    monkeypatch.setattr(process, "box_time", lambda: next(readings))
    monkeypatch.setattr(process, "cpu_ns", lambda pid: next(own))
    beside = iter([
        Beside({7: 10, 8: 10}, {2: 30}),
        Beside({7: 10 + int(other_s * 1e9), 9: 0}, {2: 30 + int(kernel_s * 1e9), 3: 0}),
    ])  # fmt: skip
    monkeypatch.setattr(process, "cpu_ns_beside", lambda own: next(beside))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    found = Watch([1234]).guard()
    assert found.others == pytest.approx(others, abs=1e-6)
    assert found.steal == pytest.approx(steal, abs=1e-6)
    assert found.quiet is quiet


def test_this_box() -> None:
    before, after = box_time(), box_time()
    assert isinstance(after, BoxTime) and after.wall_s >= before.wall_s
    assert Watch([os.getpid(), 0]).guard().others >= 0
    assert Guard(0.02, 0.01).quiet and not Guard(0.021, 0).quiet


def test_others_are_processes_that_run_beside() -> None:
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:  # fmt: skip
        assert other.stdout is not None
        other.stdout.readline()
        found = process.cpu_ns_beside([os.getpid()])
        assert found.others[other.pid] > 0 and os.getpid() not in found.others
        assert other.pid not in process.cpu_ns_beside([os.getpid(), other.pid]).others
        assert not found.kernel.keys() & found.others.keys()
        other.communicate(b"\n")
