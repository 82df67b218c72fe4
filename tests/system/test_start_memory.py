"""What a broker that has just started keeps resident, however it is started.

What differed was bytecode: a start that must compile its modules (the first one of a checkout, an
installation without .pyc, PYTHONDONTWRITEBYTECODE) left 9 MB of free memory behind, and where the
arguments needed click, 3 MB more. HTTP is imported when somebody connects, and is not part of it.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

import kbroker
from kbroker.testing.plain import PlainBroker as Broker
from tests.system.conftest import MakeBroker
from tests.unit.net.harness import eventually

pytestmark = pytest.mark.timeout(120)

ROOT = Path(kbroker.__file__).parents[1]
RESIDENT_MB_MAX = 45
SETTLED_S = 1.0


def resident_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


def assert_small(broker: Broker) -> None:
    """Once the modules behind the ready line are loaded, and not for a moment."""
    eventually(
        lambda: resident_mb(broker.pid) <= RESIDENT_MB_MAX, f"{resident_mb(broker.pid):.1f} MB"
    )
    time.sleep(SETTLED_S)
    assert resident_mb(broker.pid) <= RESIDENT_MB_MAX


class FromFile(Broker):
    """`kbroker start server.properties`, for which click is imported."""

    def program(self) -> list[str]:
        path = self.scratch_dir / "server.properties"
        path.write_text("num.io.threads=8\n")
        return ["-m", "kbroker", "start", str(path)]


def test_as_tests_start_it_from_a_checkout(make_broker: MakeBroker) -> None:
    assert_small(make_broker(cwd=ROOT).start())


def test_from_elsewhere_by_its_path(make_broker: MakeBroker, tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    assert_small(make_broker(cwd=tmp_path, env={"PYTHONPATH": path}).start())


def no_bytecode(root: Path) -> dict[str, str]:
    return {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(root / "nothing-here")}


def test_without_bytecode(make_broker: MakeBroker, tmp_path: Path) -> None:
    assert_small(make_broker(cwd=ROOT, env=no_bytecode(tmp_path)).start())


def test_from_a_file_without_bytecode(tmp_path: Path) -> None:
    with FromFile(cwd=ROOT, env=no_bytecode(tmp_path)) as broker:
        assert_small(broker)
