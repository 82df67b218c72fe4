"""A wheel of one distribution, packed from modules that are compiled already.

The files that belong into it are copied to a folder of their own, without what compilers noted of
their paths, and setuptools packs that folder. Compiled modules are taken as they are beside their
sources: what `make build` made and the tests ran is what is packed. The same files make the same
bytes, wherever the tree is: times are SOURCE_DATE_EPOCH, modes are fixed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

ABI3_SUFFIX: Final = ".abi3.so"
ABI3_SINCE: Final = "cp311"
_SUFFIXES: Final = {".py", ".pyi", ".j2", ".css", ".js", ".json", ".properties", ".typed"}
_SETUP: Final = """
from setuptools import Distribution, setup


class Compiled(Distribution):
    def has_ext_modules(self):
        return True


setup(distclass=Compiled, options={"bdist_wheel": %r}, data_files=%r)
"""


class ReleaseError(Exception):
    """Something is missing, or a check failed; the text is for a person."""


@dataclass(frozen=True)
class Distribution:
    """What one wheel holds: folders and files of a tree, and the tree's file with its metadata."""

    name: str
    folders: tuple[str, ...]
    metadata: str
    files: tuple[str, ...]


CORE: Final = Distribution("kbroker", ("kbroker",), "pyproject.toml", ("README.md",))
PERF: Final = Distribution(
    "kbroker_perf",
    ("lab", "perf", "spark_jobs"),
    "release/kbroker_perf.toml",
    ("perf/README.md",),
)
DISTRIBUTIONS: Final = (CORE, PERF)


def pack(
    tree: Path,
    of: Distribution,
    to: Path,
    *,
    epoch_s: int,
    platform: str = "",
    strip: bool = True,
    shared: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """The wheel, in the folder `to`, of a tree whose modules are compiled.

    `platform` is the wheel's tag of a machine, by default this one's. `shared` are texts by their
    paths below share/ of an installation. ReleaseError: no modules, or modules of two kinds.
    """
    stage = to / f".stage-{of.name}"
    shutil.rmtree(stage, ignore_errors=True)
    modules = _copy(tree, of, stage)
    if strip:
        _strip(modules)
    data_files = _write_shared(stage, shared)
    _set_modes(stage)
    options = {"py_limited_api": ABI3_SINCE} if _is_abi3(modules) else {}
    if platform:
        options["plat_name"] = platform
    (stage / "setup.py").write_text(_SETUP % (options, data_files))
    (stage / "MANIFEST.in").write_text("global-include *.so\n")
    for old in to.glob(f"{of.name}-*.whl"):
        if platform.replace("-", "_") in old.name:
            old.unlink()
    run(
        [sys.executable, "setup.py", "--quiet", "bdist_wheel", "--dist-dir", str(to.resolve())],
        cwd=stage,
        environment={"SOURCE_DATE_EPOCH": str(epoch_s)},
    )
    shutil.rmtree(stage)
    return max(to.glob(f"{of.name}-*.whl"), key=lambda path: path.stat().st_mtime_ns)


def _copy(tree: Path, of: Distribution, stage: Path) -> list[Path]:
    """The compiled modules, where they are now."""
    modules = []
    for folder in of.folders:
        for source in sorted((tree / folder).rglob("*")):
            path = source.relative_to(tree)
            if "__pycache__" in path.parts or not source.is_file():
                continue
            if path.suffix in _SUFFIXES or path.suffix == ".so":
                target = stage / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
                if path.suffix == ".so":
                    modules.append(target)
    for name in of.files:
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / name, stage / name)
    shutil.copyfile(tree / of.metadata, stage / "pyproject.toml")
    _require_whole(tree, of, modules)
    return modules


def _write_shared(stage: Path, shared: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """The files of each folder below share/, as setuptools asks for them."""
    found: dict[str, list[str]] = {}
    for name, text in sorted(shared.items()):
        path = stage / "share" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        found.setdefault(str(path.parent.relative_to(stage)), []).append(f"share/{name}")
    return list(found.items())


def _require_whole(tree: Path, of: Distribution, modules: list[Path]) -> None:
    units = {
        str(path.relative_to(tree).with_suffix(""))
        for folder in of.folders
        for path in (tree / folder).rglob("*.pyx")
    }
    compiled = [str(path).partition(f".stage-{of.name}/")[2].partition(".")[0] for path in modules]
    if sorted(compiled) != sorted(units):
        odd = sorted(units.symmetric_difference(compiled)) or sorted(compiled)
        raise ReleaseError(f"{of.name}: not one module for each unit, such as {odd[0]}: make build")


def _is_abi3(modules: list[Path]) -> bool:
    """Whether the modules keep to the stable ABI. ReleaseError: some do."""
    kinds = {path.name.endswith(ABI3_SUFFIX) for path in modules}
    if len(kinds) != 1:
        raise ReleaseError("modules of the stable ABI beside others: make clean build")
    return kinds.pop()


def _strip(modules: list[Path]) -> None:
    # The id of a build is made from debug information, which has the tree's path.
    words = ["strip", "--strip-unneeded", "--remove-section=.note.gnu.build-id"]
    run([*words, "--remove-section=.comment", *map(str, modules)], cwd=modules[0].parent)


def _set_modes(stage: Path) -> None:
    for path in stage.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.suffix == ".so" else 0o644)


def run(command: list[str], *, cwd: Path, environment: dict[str, str] | None = None) -> str:
    """What a command writes. ReleaseError with its last words where it fails."""
    ran = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if ran.returncode:
        raise ReleaseError(f"{' '.join(command)[:200]} failed:\n{ran.stdout[-4000:]}")
    return ran.stdout


def members(wheel: Path) -> list[str]:
    """Names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()
