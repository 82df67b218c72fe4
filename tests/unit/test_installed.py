"""The packages that documents name for a fresh machine, and those that a target installs,
suffice."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT, source_files

# A header that Python, the C library and the compiler do not bring, and Debian's package of it.
PACKAGES = {"zlib.h": "zlib1g-dev"}
OF_THE_SYSTEM = re.compile(r"(sys|netinet|arpa|linux|net)/\w+\.h")
BROUGHT = frozenset(
    ("Python.h", "arm_acle.h", "cpuid.h", "dirent.h", "dlfcn.h", "emmintrin.h", "errno.h",
     "fcntl.h", "immintrin.h", "inttypes.h", "limits.h", "malloc.h", "math.h", "nmmintrin.h",
     "poll.h", "pthread.h", "sched.h", "signal.h", "smmintrin.h", "stdarg.h", "stdatomic.h",
     "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "time.h", "unistd.h",
     "wmmintrin.h", "x86intrin.h")
)  # fmt: skip
INCLUDE = re.compile(r'^\s*#\s*include\s*<([^>]+)>|extern from "<([^>]+)>"', re.MULTILINE)


def included(folder: str) -> set[str]:
    files = [*source_files(folder, suffixes=(".pyx", ".pxd")), *(ROOT / folder).rglob("*.h")]
    found = (INCLUDE.findall(path.read_text(encoding="utf-8")) for path in files)
    return {one or other for each in found for one, other in each}


def test_the_readme_names_every_header_that_has_to_be_installed() -> None:
    names = included("kbroker") | included("perf")
    others = {name for name in names if name not in BROUGHT and not OF_THE_SYSTEM.fullmatch(name)}
    assert others == {*PACKAGES}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for package in PACKAGES.values():
        assert f"`{package}`" in readme


@pytest.mark.parametrize(
    ("target", "extras"),
    [
        ("run", []),
        ("cluster", ["cluster"]),
        ("unit", ["test perf"]),
        ("report", ["perf report"]),
    ],
)
def test_a_target_installs_these_extras(target: str, extras: list[str], tmp_path: Path) -> None:
    """Nothing is run: the commands of make in a tree without a virtual environment."""
    dry_run = subprocess.run(
        ["make", "-n", target, f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    asked = re.findall(r"installing into \S+ kbroker's dependencies ?(.*?)\"", dry_run.stdout)
    assert asked == ["setuptools wheel cython", *extras], dry_run.stdout
