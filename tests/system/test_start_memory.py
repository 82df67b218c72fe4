"""The memory that a broker keeps resident right after its start, however it is started.

The difference was bytecode: a start that must compile its modules (the first one of a checkout, an
installation without .pyc, PYTHONDONTWRITEBYTECODE) left 9 MB of free memory, and where the
arguments needed click, 3 MB more. HTTP is imported with the first connection, and is not part of
it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kbroker
from kbroker.testing import Broker as TestBroker
from kbroker.testing.plain import PlainBroker as Broker
from tests.system.conftest import MakeBroker
from tests.system.process_facts import assert_small

pytestmark = pytest.mark.timeout(120)

ROOT = Path(kbroker.__file__).parents[1]


class FromFile(Broker):
    """`kbroker start server.properties`, for which click is imported."""

    def program(self) -> list[str]:
        path = self.scratch_dir / "server.properties"
        path.write_text("num.io.threads=8\n")
        return ["-m", "kbroker", "start", str(path)]


def test_as_tests_start_it_from_a_checkout(make_broker: MakeBroker) -> None:
    assert_small(make_broker(cwd=ROOT).start().pid)


def test_from_elsewhere_by_its_path(make_broker: MakeBroker, tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    assert_small(make_broker(cwd=tmp_path, env={"PYTHONPATH": path}).start().pid)


def no_bytecode(root: Path) -> dict[str, str]:
    return {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(root / "nothing-here")}


def test_without_bytecode(make_broker: MakeBroker, tmp_path: Path) -> None:
    assert_small(make_broker(cwd=ROOT, env=no_bytecode(tmp_path)).start().pid)


def test_from_a_file_without_bytecode(tmp_path: Path) -> None:
    with FromFile(cwd=ROOT, env=no_bytecode(tmp_path)) as broker:
        assert_small(broker.pid)


@pytest.mark.parametrize("bytecode", [True, False])
def test_as_an_application_s_tests_start_it(tmp_path: Path, bytecode: bool) -> None:
    with TestBroker(env={} if bytecode else no_bytecode(tmp_path)) as broker:
        assert_small(broker.pid)
