"""Memory, disks and limits, as this machine and as files of another would tell them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbroker.clock import SystemClock
from kbroker.observe import resources
from kbroker.observe.garbage import GarbageWatch, histogram_of_us
from tests.support import requirements
from tests.support.own_things import collected_by_hand


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_process() -> None:
    found = resources.process(SystemClock().wall_ms() / 1000)
    assert found.resident_bytes > 1 << 20
    assert 0 < found.open_fds < found.max_fds
    assert found.threads >= 1
    assert found.cpu_s > 0


def test_when_a_process_began() -> None:
    """One that begins now: over a long life the machine's clock may have been set."""
    look = (
        "from kbroker.clock import SystemClock; from kbroker.observe import resources;"
        "print(resources.process(SystemClock().wall_ms() / 1000).start_wall_s)"
    )
    before_s = time.time()
    looked = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, check=True, text=True
    )
    assert before_s - 1 <= float(looked.stdout) <= time.time() + 1


def test_bytes_to_the_disk_are_seen(tmp_path: Path) -> None:
    before = resources.process_disk_bytes()
    if before is None:
        requirements.skip_on_this_machine("it does not tell a process's own disk bytes")
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
    after = resources.process_disk_bytes()
    assert after is not None
    if tmp_path.stat().st_dev >> 8:  # on a block device
        assert after.written >= before.written


def test_an_unknown_figure_is_left_out(tmp_path: Path) -> None:
    assert resources.process_disk_bytes(tmp_path) is None
    assert resources.disks_of(["/proc", "/not there"]) == {}
    assert resources.space_of("/not there") is None


def test_disks_by_name(tmp_path: Path) -> None:
    device = os.stat(tmp_path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    written(tmp_path, {"devices/vda1/stat": "  10 0 200 5 20 0 4000 9 0 0 0\n"})
    (tmp_path / "dev/block").mkdir(parents=True)
    (tmp_path / "dev/block" / number).symlink_to(tmp_path / "devices/vda1")
    found = resources.disks_of([str(tmp_path), str(tmp_path)], tmp_path)
    assert found == {"vda1": (200 * 512, 4000 * 512)}


def test_space(tmp_path: Path) -> None:
    found = resources.space_of(str(tmp_path))
    assert found is not None
    assert 0 < found.free <= found.total


MEMINFO = {"proc/meminfo": "MemTotal:       1000 kB\nMemFree: 5 kB\n"}


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, 1_024_000),
        ({"proc/self/cgroup": "0::/a/b\n", "cg/a/memory.max": "max\n"}, 1_024_000),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "cg/a/memory.max": "300000\n",
                "cg/a/b/memory.max": "500000\n",
            },
            300_000,
        ),
        # In a container the group's path is not there; its own limit is the mount's.
        ({"proc/self/cgroup": "0::/\n", "cg/memory.max": "200000\n"}, 200_000),
        (
            {
                "proc/self/cgroup": "4:cpu,memory:/x\n",
                "cg/memory/x/memory.limit_in_bytes": "400000\n",
                "cg/memory/memory.limit_in_bytes": f"{(1 << 63) - 4096}\n",
            },
            400_000,
        ),
    ],
)
def test_the_least_memory_limit_holds(tmp_path: Path, files: dict[str, str], limit: int) -> None:
    written(tmp_path, MEMINFO | files)
    assert resources.memory_limit(tmp_path / "proc", tmp_path / "cg") == limit


def test_garbage_collections_are_counted() -> None:
    watch = GarbageWatch()
    with collected_by_hand():
        watch.start()
        try:
            gc.collect(0)
            gc.collect()
            gc.collect()
        finally:
            watch.stop()
    gc.collect()
    assert (watch.collections(0), watch.collections(2)) == (1, 2)
    pauses = watch.pauses(2)
    assert pauses.total == 2
    assert pauses.sum > 0
    assert pauses.buckets[-1] == (float("inf"), 2)
    assert watch._note not in gc.callbacks


def test_powers_of_two_become_cumulative() -> None:
    found = histogram_of_us([1, 0, 3, 2], 5_000)
    assert found.buckets == ((1e-6, 1), (2e-6, 1), (4e-6, 4), (float("inf"), 6))
    assert (found.total, found.sum) == (6, 5e-6)
