"""A short fixed set of faults on real processes; as many as one likes: `make soak`.

Each test is a run of its own as people start it, so that a network and mounts of its own are no
other test's. The first one needs neither Java nor root.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from tests.cluster import clock, namespaces
from tests.support import requirements, zookeeper
from tests.support.source_tree import ROOT

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(400)]

SEED: Final = "7"
LONGEST_S: Final = "1.5"
RUN_S: Final = 360.0
PROCESSES: Final = (
    "kill", "pause", "hang-disk", "hang-leader", "controller-create", "zookeeper", "restart",
    "hang-coordinator", "expiry", "kill-all",
)  # fmt: skip
MACHINES: Final = ("cut", "disk-full", "one-way-cut", "delay", "reassign", "controller-elect")


def nothing_is_violated(names: tuple[str, ...], *arguments: str) -> None:
    command = [
        sys.executable, "-m", "tests.cluster", "--fixed", ",".join(names), "--seed", SEED,
        "--hold", LONGEST_S, *arguments,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert f"seed {SEED}: {len(names)} faults in " in output, output
    assert "left out" not in output, output


def test_processes_and_sessions() -> None:
    clocks = ("clock",) if clock.is_possible() else ()
    nothing_is_violated(PROCESSES + clocks, "--in-memory")


@pytest.mark.java
def test_networks_and_disks() -> None:
    zookeeper.required()
    if not namespaces.are_possible():
        requirements.skip_on_this_machine("networks and disks for each broker need root and tun")
    nothing_is_violated(MACHINES)
