"""A second copy of the sources under build/, with a sanitizer: the tree itself is untouched.

    copy = sanitized_copy("address,undefined")   -> build/asan, built; quick when little has changed

Reports go to files (`log_path`), one for each process that had something to say, so that brokers
which tests start are covered, and a test that survives a report does not hide it. What counts is a
report that names a file of ours.

A build may take KBROKER_SANITIZER_BUILD_S seconds, by default 560: more on a machine that has
other work.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("kbroker", "lab", "perf", "spark_jobs", "tests", "docs")
FILES: Final = ("setup.py", "pyproject.toml", "Makefile", "README.md", "constraints.txt")
SUFFIXES: Final = {
    ".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".json", ".typed", ".toml", ".md", ".properties",
    ".gz",
}  # fmt: skip
# Made by setup.py: the copy makes its own, whose time says when to compile again.
MADE: Final = {Path("kbroker/core/native/bounds.h")}
NAMES: Final = {"address,undefined": "asan", "address": "asan", "thread": "tsan"}
OURS: Final = ("kbroker/", "perf/native", "kb_")
BUILD_TIMEOUT_S: Final = float(os.environ.get("KBROKER_SANITIZER_BUILD_S", "560"))


def sanitized_copy(sanitizer: str, units: tuple[str, ...] = ()) -> Path:
    """The copy for this sanitizer, with compiled modules that are up to date.

    With `units` only these have the sanitizer, and the other modules are the tree's own: a short
    run, of which the build is half.
    """
    copy = ROOT / "build" / (NAMES[sanitizer] + ("-units" if units else ""))
    _mirror(copy)
    environment = {"KBROKER_SANITIZE": sanitizer}
    if units:
        environment |= {"KBROKER_UNITS": " ".join(units), "KBROKER_SANITIZE_LEVEL": "-Og"}
        _borrow_modules(copy, units)
    _build(copy, environment, f"-fsanitize={sanitizer}")
    return copy


def debug_copy() -> Path:
    """One that is a debug build, without a sanitizer."""
    copy = ROOT / "build" / "debug"
    _mirror(copy)
    (copy / "build").mkdir(exist_ok=True)
    _build(copy, {"KBROKER_DEBUG": "1"}, "KBROKER_DEBUG=1")
    return copy


def _build(copy: Path, settings: Mapping[str, str], how: str) -> None:
    print(f"building {copy.relative_to(ROOT)} with {how}", flush=True)
    built = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "-j", _jobs()],
        cwd=copy,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if built.returncode:
        raise SystemExit(f"the build with {how} failed:\n{built.stdout[-4000:]}")


def _borrow_modules(copy: Path, units: tuple[str, ...]) -> None:
    """What is not built with the sanitizer comes from the tree, as it was built there."""
    built = {path.with_suffix("") for pattern in units for path in ROOT.glob(pattern)}
    for module in (ROOT / "kbroker").rglob("*.so"):
        if module.with_name(module.name.partition(".")[0]) not in built:
            shutil.copy2(module, copy / module.relative_to(ROOT))


def _jobs() -> str:
    return str(os.cpu_count() or 1)


def _mirror(copy: Path) -> None:
    # Times are kept, so that what has not changed is not compiled again.
    wanted: set[Path] = set()
    for folder in FOLDERS:
        for source in (ROOT / folder).rglob("*"):
            hidden = any(part.startswith((".", "__pycache__")) for part in source.parts)
            path = source.relative_to(ROOT)
            if source.is_file() and path.suffix in SUFFIXES and path not in MADE and not hidden:
                wanted.add(path)
    wanted |= {Path(name) for name in FILES if (ROOT / name).exists()}
    for path in wanted:
        source, target = ROOT / path, copy / path
        stat = source.stat()
        if target.exists() and target.stat().st_mtime == stat.st_mtime:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    for folder in FOLDERS:
        for target in list((copy / folder).rglob("*")):
            path = target.relative_to(copy)
            if target.is_file() and path.suffix in SUFFIXES and path not in wanted | MADE:
                target.unlink()


def library(name: str) -> str:
    """gcc's run-time library of a sanitizer, to be loaded before Python."""
    compiler = sysconfig.get_config_var("CC").split()[0]
    found = subprocess.run(
        [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(found).is_absolute():
        raise SystemExit(f"{compiler} has no {name}: install its sanitizers")
    return found


def environment(copy: Path, libraries: list[str], options: Mapping[str, str]) -> dict[str, str]:
    """For programs that load the copy's modules."""
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(library(name) for name in libraries),
        "PYTHONMALLOC": "malloc",  # every object its own block, or ends are not seen
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        **options,
    }


def fresh_reports(copy: Path) -> Path:
    folder = copy / "reports"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def reports(folder: Path, marks: tuple[str, ...]) -> list[str]:
    """What the sanitizer wrote, report by report: those that name code of ours."""
    found = []
    for path in sorted(folder.iterdir()):
        text = path.read_text(errors="replace")
        for report in _split(text, marks):
            if any(name in report for name in OURS):
                found.append(f"{path.name}: {report}")
    return found


def _split(text: str, marks: tuple[str, ...]) -> list[str]:
    out: list[list[str]] = []
    for line in text.splitlines():
        if any(mark in line for mark in marks):
            out.append([])
        if out:
            out[-1].append(line)
    return ["\n".join(lines) for lines in out]


def verdict(what: str, found: list[str], problems: list[str]) -> int:
    """Prints the end of a run; the exit status."""
    for report in found[:10]:
        print(f"\n{report[:4000]}")
    for problem in problems:
        print(problem)
    if found or problems:
        print(f"{what}: FAILED, {len(found)} reports, {len(problems)} other problems")
        return 1
    print(f"{what}: clean")
    return 0
