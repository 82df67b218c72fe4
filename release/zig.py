"""The sources compiled for a manylinux platform, on whatever Linux this is, by the zig toolchain.

Zig's compiler is clang, with the headers of each version of glibc, and comes from the package
index. A copy of the tree below `build/` is compiled, so the tree itself keeps what `make build`
made. Cython's C is the tree's own where it is up to date.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from release import stage

GLIBC: Final = (2, 28)  # of Debian 10, RHEL 8 and Ubuntu 18.10; below it preadv2 and others miss
MACHINES: Final = ("x86_64", "aarch64")
_FOLDERS: Final = ("kbroker", "lab", "perf", "spark_jobs")
_FILES: Final = ("setup.py", "pyproject.toml", "README.md", "release/kbroker_perf.toml")
# Headers that neither Python nor zig brings, and that only declare things.
_HEADERS: Final = ("zlib.h", "zconf.h")
_HEADERS_FROM: Final = ("/usr/include", "/usr/include/x86_64-linux-gnu")
_BOUNDS: Final = Path("kbroker/core/native/bounds.h")  # made by setup.py, for each tree


def platform(machine: str) -> str:
    """The tag of wheels for it."""
    return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"


def compiled(tree: Path, machine: str) -> Path:
    """A copy of the tree with its modules for that machine; quick when little has changed.

    ReleaseError: the compiler is missing, or refuses.
    """
    copy = tree / "build" / f"wheel-{machine}"
    _mirror(tree, copy)
    include = copy / "include"
    include.mkdir(exist_ok=True)
    for name in _HEADERS:
        shutil.copy2(_header(name), include / name)
    compiler = f"{shlex.quote(sys.executable)} -m ziglang cc -target {machine}-linux-gnu.2.28"
    stage.run([sys.executable, "-m", "ziglang", "version"], cwd=copy)
    stage.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace",
         "-j", str(os.cpu_count() or 1)],
        cwd=copy,
        environment={
            "CC": compiler,
            "LDSHARED": f"{compiler} -shared -s",
            "CFLAGS": f"-I{include} -ffile-prefix-map={copy}=. -Wno-unused-command-line-argument",
            "ZIG_GLOBAL_CACHE_DIR": str(tree / "build" / "zig"),
            "KBROKER_ABI3": "1",
        },
    )  # fmt: skip
    return copy


def _header(name: str) -> Path:
    for folder in _HEADERS_FROM:
        if (path := Path(folder, name)).is_file():
            return path
    raise stage.ReleaseError(f"there is no {name}: on Debian, apt-get install zlib1g-dev")


def _mirror(tree: Path, copy: Path) -> None:
    """Times are kept, so that what has not changed is not compiled again."""
    wanted = {
        path.relative_to(tree)
        for folder in _FOLDERS
        for path in (tree / folder).rglob("*")
        if path.is_file() and path.suffix not in (".so", ".pyc", ".html")
    }
    wanted = (wanted | {Path(name) for name in _FILES}) - {_BOUNDS}
    for path in sorted(wanted):
        source, target = tree / path, copy / path
        if not target.exists() or target.stat().st_mtime != source.stat().st_mtime:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    units = {path.with_suffix("") for path in wanted if path.suffix == ".pyx"}
    for folder in _FOLDERS:
        for target in list((copy / folder).rglob("*")):
            path = target.relative_to(copy)
            if target.suffix == ".so":
                gone = path.with_name(path.name.partition(".")[0]) not in units
            else:
                gone = path not in wanted and path != _BOUNDS
            if target.is_file() and gone:
                target.unlink()
