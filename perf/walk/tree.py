"""The sources once more, under build/walk, compiled so that each call of a function is noted.

Nothing is inlined there, or a unit whose functions all were would not be seen. The tree itself is
untouched. The first build takes some minutes; later ones compile what has changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from perf.brokers.base import BrokerError
from perf.brokers.kbroker import ROOT

COPY: Final = ROOT / "build" / "walk"
FILES: Final = ("setup.py", "pyproject.toml", "README.md")
SUFFIXES: Final = (".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".json", ".typed")
# Cython's own helpers are no functions of ours.
CFLAGS: Final = (
    "-fno-inline", "-fno-ipa-icf", "-finstrument-functions",
    "-finstrument-functions-exclude-function-list=__Pyx",
)  # fmt: skip
TRACER: Final = ROOT / "perf" / "native" / "walk_tracer.c"


def build() -> Path:
    """The copy, up to date. BrokerError where it cannot be built."""
    _mirror()
    variables = {"CFLAGS": " ".join(CFLAGS), "KBROKER_UNITS": "kbroker/**/*.pyx"}
    _run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace",
         "-j", str(os.cpu_count() or 1)],
        COPY, variables,
    )  # fmt: skip
    return COPY


def tracer(folder: Path) -> Path:
    """The library that is preloaded, compiled into this folder."""
    library = folder / "walk_tracer.so"
    _run([compiler(), "-O2", "-shared", "-fPIC", "-o", str(library), str(TRACER)], folder, {})
    return library


def compiler() -> str:
    return str(sysconfig.get_config_var("CC")).split()[0]


def _mirror() -> None:
    """Times are kept, so that what has not changed is not compiled again."""
    wanted = {
        path.relative_to(ROOT)
        for path in (ROOT / "kbroker").rglob("*")
        if path.suffix in SUFFIXES and path.is_file() and "__pycache__" not in path.parts
    }
    wanted |= {Path(name) for name in FILES}
    for path in wanted:
        source, target = ROOT / path, COPY / path
        if not target.exists() or target.stat().st_mtime != source.stat().st_mtime:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    for target in list((COPY / "kbroker").rglob("*")):
        path = target.relative_to(COPY)
        source = path.with_name(f"{path.name.partition('.')[0]}.pyx")
        gone = source if target.suffix == ".so" else path
        if target.suffix in (*SUFFIXES, ".so") and gone not in wanted:
            target.unlink()


def _run(command: list[str], folder: Path, variables: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise BrokerError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
