"""Wheels of the modules that this run tests work in an empty environment away from the work tree.

`make wheel` packs the modules of `make build`: the machine code that all other tests ran. These
tests find what is missing around it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

import kbroker
from kbroker.testing.plain import PlainBroker as Broker
from release import stage
from release.wheels import shared_of
from tests.clients.adapters import CODECS, Confluent, Record
from tests.support import requirements
from tests.system import process_facts

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(kbroker.__file__).parents[1]
STEP_TIMEOUT_S = 600
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
EPOCH_S = 1_700_000_000
WHEEL_MB_MAX = 6
DISTRIBUTIONS_MAX = 12
UNIT_TESTS = (
    "tests/unit/protocol/test_wire.py",
    "tests/unit/core",
    "tests/unit/engine/test_produce.py",
)
_NO_INDEX = re.compile(r"Could not find a version|Connection|Temporary failure|Network is unreach")


def run(*command: str | Path, cwd: Path) -> str:
    ran = subprocess.run(
        command, cwd=cwd, env=_environment(), capture_output=True, text=True, timeout=STEP_TIMEOUT_S
    )
    if ran.returncode and "pip" in command and _NO_INDEX.search(ran.stderr):
        requirements.skip_missing("a package index", "pip must reach one for the empty environment")
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    return ran.stdout


def install(python: Path, *packages: str | Path, cwd: Path) -> None:
    """Into the environment of that interpreter, by this one's pip: one of its own takes longer than
    the packages. A module is compiled when it is used."""
    run(
        sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile",
        "--disable-pip-version-check", "-c", ROOT / "constraints.txt", *packages, cwd=cwd,
    )  # fmt: skip


def _environment() -> dict[str, str]:
    ours = {"PYTHONPATH", "VIRTUAL_ENV", "KBROKER_DEBUG", "KBROKER_SANITIZE"}
    return {name: value for name, value in os.environ.items() if name not in ours}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kbroker's, as `make wheel` packs it."""
    return stage.pack(
        ROOT, stage.CORE, tmp_path_factory.mktemp("wheel"), epoch_s=EPOCH_S,
        shared=shared_of(stage.CORE),
    )  # fmt: skip


@pytest.fixture(scope="module")
def perf_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kbroker-perf's."""
    return stage.pack(ROOT, stage.PERF, tmp_path_factory.mktemp("perf"), epoch_s=EPOCH_S)


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and what it depends on."""
    home = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", home / "venv", cwd=home)
    interpreter = home / "venv" / "bin" / "python"
    install(interpreter, wheel, cwd=home)
    return interpreter


def test_the_wheel_holds_the_compiled_core_and_no_more(wheel: Path) -> None:
    names = stage.members(wheel)
    units = {str(path.relative_to(ROOT).with_suffix("")) for path in ROOT.glob("kbroker/**/*.pyx")}
    assert {name.removesuffix(stage.ABI3_SUFFIX) for name in names if name.endswith(".so")} == units
    assert "kbroker/py.typed" in names and "kbroker/config/effects.json" in names
    folders = {"kbroker", f"kbroker-{VERSION}.dist-info", f"kbroker-{VERSION}.data"}
    assert {name.partition("/")[0] for name in names} == folders
    assert not [name for name in names if name.endswith((".pyx", ".pxd", ".c", ".h"))]
    assert wheel.name.startswith(f"kbroker-{VERSION}-cp311-abi3-")
    assert wheel.stat().st_size < WHEEL_MB_MAX * 1e6


def test_an_installation_is_few_distributions(python: Path, tmp_path: Path) -> None:
    count = "import importlib.metadata as m; print(len(list(m.distributions())))"
    assert int(run(python, "-c", count, cwd=tmp_path)) <= DISTRIBUTIONS_MAX


def test_perf_is_a_wheel_of_its_own(python: Path, perf_wheel: Path, tmp_path: Path) -> None:
    command = python.with_name("kbroker")
    ended = subprocess.run(
        [command, "perf", "--help"], cwd=tmp_path, env=_environment(), capture_output=True,
        text=True, check=False, timeout=STEP_TIMEOUT_S,
    )  # fmt: skip
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 1 and "pip install 'kbroker[perf]'" in line
    install(python, "--no-deps", perf_wheel, cwd=tmp_path)
    assert "compare" in run(command, "perf", "--help", cwd=tmp_path)


def test_unit_tests_of_installed_modules(python: Path, perf_wheel: Path, tmp_path: Path) -> None:
    """The tests are the work tree's, which comes after everything else on the path."""
    install(python, "--no-deps", perf_wheel, cwd=tmp_path)
    where = "import kbroker._net; print(kbroker._net.__file__)"
    tests = sysconfig.get_path("purelib")  # pytest and what else tests need; kbroker is not there
    environment = {**_environment(), "PYTHONSAFEPATH": "1", "PYTHONPATH": tests}
    options = ("-q", "-p", "no:cacheprovider", "--import-mode=append")
    asked = (("-c", where), ("-m", "pytest", *options, *UNIT_TESTS))
    for words in asked:
        ended = subprocess.run(
            [python, *words], cwd=ROOT, env=environment, capture_output=True, text=True,
            check=False, timeout=STEP_TIMEOUT_S,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
        if words[0] == "-c":
            assert str(python.parents[1]) in ended.stdout


def test_the_command_is_installed(python: Path, tmp_path: Path) -> None:
    share = python.parents[1] / "share"
    assert (share / "man/man1/kbroker-topic-create.1").is_file()
    assert (share / "bash-completion/completions/kbroker").is_file()
    assert VERSION in run(python.with_name("kbroker"), "version", cwd=tmp_path)
    assert VERSION in run(python, "-m", "kbroker", "version", cwd=tmp_path)


def test_the_command_of_the_work_tree_works_from_any_folder(tmp_path: Path) -> None:
    """`make build` leaves it in the environment that it builds for."""
    assert VERSION in run(Path(sys.executable).with_name("kbroker"), "version", cwd=tmp_path)


def test_the_sample_project_as_a_new_user_would(python: Path, tmp_path: Path) -> None:
    """Its fixtures come with the package; two workers have a broker each."""
    shutil.copytree(ROOT / "tests" / "sample_project", tmp_path / "sample")
    install(python, "pytest", "pytest-xdist", "confluent-kafka", cwd=tmp_path)
    output = run(python, "-m", "pytest", "-q", "-n", "2", cwd=tmp_path / "sample")
    assert re.search(r"^6 passed", output, re.MULTILINE), output


def test_the_installed_broker_serves(python: Path, tmp_path: Path) -> None:
    with Broker(python=python, cwd=tmp_path) as broker:
        process_facts.assert_small(broker.pid)
        mapped = process_facts.mapped_files(broker.pid)
        compiled = {path for path in mapped if "/kbroker/_net." in path}
        assert compiled and all(path.startswith(str(python.parents[1])) for path in compiled)
        client = Confluent(broker.bootstrap)
        for codec in CODECS:
            client.produce("t", [Record(b"%d" % n) for n in range(100)], codec=codec)
        received = [record.value for record in client.consume("t", 500)]
        assert received == [b"%d" % n for n in range(100)] * 5
