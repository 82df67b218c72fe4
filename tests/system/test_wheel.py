"""A wheel, made from the tracked files, works in an empty environment away from the work tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import kbroker
from kbroker.testing.plain import PlainBroker as Broker
from tests.clients.adapters import CODECS, Confluent, Record
from tests.support import requirements
from tests.system import process_facts

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(kbroker.__file__).parents[1]
STEP_TIMEOUT_S = 600
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
BOUNDS = "kbroker/core/native/bounds.h"
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
    """Built by pip from a copy of the tracked files, and of those about to be.

    What is compiled is taken as it is, younger than its sources: that the tracked files compile is
    seen where they were checked out.
    """
    git = requirements.program("git", "the wheel is made from the files that git knows")
    source = tmp_path_factory.mktemp("source")
    listed = run(git, "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    compiled = source / f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for unit in list(source.rglob("*.pyx")):
        here = ROOT / unit.relative_to(source)
        (module,) = here.parent.glob(f"{here.stem}.*.so")
        target = compiled / module.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(module, target)
        shutil.copy2(here.with_suffix(".c"), unit.with_suffix(".c"))
    shutil.copy2(ROOT / BOUNDS, source / BOUNDS)  # made anew, it would be younger than all of it
    made = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--wheel-dir", made, source, cwd=source,
    )  # fmt: skip
    (wheel,) = made.glob("kbroker-*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and what it depends on."""
    home = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", home / "venv", cwd=home)
    interpreter = home / "venv" / "bin" / "python"
    install(interpreter, wheel, cwd=home)
    return interpreter


def test_the_wheel_holds_the_compiled_core_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for unit in ("_net", "_log", "_state", "engine/_hot"):
        assert any(re.fullmatch(rf"kbroker/{unit}\.[^/]*\.so", name) for name in names), unit
    assert "kbroker/py.typed" in names
    assert not [name for name in names if name.startswith("tests/")]


def test_the_command_is_installed(python: Path, tmp_path: Path) -> None:
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
