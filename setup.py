"""The compiled core. Metadata lives in pyproject.toml.

Every .pyx below kbroker/ and perf/ is one extension; a new unit needs no line here.
Modules keep to the limited API of Python 3.11, whose ABI is stable (PEP 384): one file runs on
every later version (ADR 56). KBROKER_ABI3=0 builds for this version alone, and so does a debug
build, which asks whether a thread holds the GIL.
KBROKER_DEBUG=1 builds with bounds checks, lock-order asserts and without optimisation tricks.
KBROKER_SANITIZE=address|thread adds a sanitizer. KBROKER_SANITIZE_LEVEL is how much gcc optimises
then, by default -O1; -Og takes two thirds of its time.
KBROKER_UNITS, patterns like kbroker/net/*.pyx, builds no other units. Where limits.py has changed
that is refused, since units with other bounds may have other structs; but for a sanitizer's copy,
which has the modules of its tree.
"""

import os
import re
import runpy
import sys
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
DEBUG = os.environ.get("KBROKER_DEBUG") == "1"
# A free-threaded Python has no stable ABI before 3.15.
ABI3 = (
    os.environ.get("KBROKER_ABI3", "1") == "1"
    and not DEBUG
    and not sysconfig.get_config_var("Py_GIL_DISABLED")
)
LIMITED_API = [("Py_LIMITED_API", "0x030B0000"), ("CYTHON_LIMITED_API", "1")]
SANITIZE = os.environ.get("KBROKER_SANITIZE", "")
ALL_UNITS = "kbroker/**/*.pyx perf/**/*.pyx"
UNITS = os.environ.get("KBROKER_UNITS", ALL_UNITS)
SANITIZE_LEVEL = os.environ.get("KBROKER_SANITIZE_LEVEL", "-O1")

compile_args = [
    *("-std=gnu11", "-pthread", "-Wall", "-Wno-unreachable-code"),
    # A macro that the limited API lacks would be a function that no library has.
    "-Werror=implicit-function-declaration",
]
link_args = ["-pthread", "-ldl"]
if DEBUG:
    compile_args += ["-O1", "-g", "-DKBROKER_DEBUG=1"]
else:
    compile_args += ["-O2", "-g1", "-fno-plt"]
if SANITIZE:
    compile_args += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer", "-g1", SANITIZE_LEVEL]
    link_args += [f"-fsanitize={SANITIZE}"]


def extension(path: Path) -> Extension:
    relative = path.relative_to(ROOT)
    # The broker includes nothing of the harness, and is not built anew for it.
    folders = ["kbroker/core/native", *(["perf/native"] if relative.parts[0] == "perf" else [])]
    return Extension(
        ".".join(relative.with_suffix("").parts),
        [str(relative)],
        include_dirs=[str(ROOT / folder) for folder in folders],
        depends=[
            str(header.relative_to(ROOT))
            for folder in folders
            for header in (ROOT / folder).glob("*.h")
        ],
        define_macros=LIMITED_API if ABI3 else [],
        py_limited_api=ABI3,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )


class BuildExt(build_ext):
    """In place everything is built; a wheel or an installation is the broker alone.

    Python prefers a module for its own version to one of the stable ABI, so a module of the other
    kind goes before a build in place.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        if not self.inplace:
            self.extensions = [one for one in self.extensions if one.name.startswith("kbroker.")]

    def run(self) -> None:
        for one in self.extensions if self.inplace else ():
            module = Path(self.get_ext_fullpath(one.name))
            for other in module.parent.glob(f"{one.name.rpartition('.')[2]}.*.so"):
                if other.name != module.name:
                    other.unlink()
        super().run()


def write_limits(core: Path) -> None:
    """Writes the bounds that _limits.pxd names, with their values in limits.py, to C's header."""
    bounds = runpy.run_path(str(core.parent / "limits.py"))
    names = re.findall(r"^ +([A-Z]\w+)$", (core / "_limits.pxd").read_text(), re.MULTILINE)
    lines = [f"    {name} = {bounds[name]}," for name in names]
    text = "\n".join(["/* Of kbroker/limits.py, by setup.py. */", "enum {", *lines, "};", ""])
    header = core / "native" / "bounds.h"
    if header.exists() and header.read_text() == text:  # else all units would be built again
        return
    if not SANITIZE and any(is_built(unit) for unit in units_of(ALL_UNITS) - units_of(UNITS)):
        sys.exit("limits.py has changed: build all units, without KBROKER_UNITS")
    # Put in place as a whole: a header that was cut would not compile, and would be newer than all.
    fresh = header.with_suffix(".h.tmp")
    fresh.write_text(text)
    fresh.replace(header)


def units_of(patterns: str) -> set[Path]:
    return {path for pattern in patterns.split() for path in ROOT.glob(pattern)}


def is_built(unit: Path) -> bool:
    return any(unit.parent.glob(f"{unit.stem}.*.so"))


units = sorted(units_of(UNITS))
write_limits(ROOT / "kbroker" / "core")
setup(
    ext_modules=cythonize(
        [extension(path) for path in units],
        nthreads=os.cpu_count() or 1,
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": DEBUG,
            "cdivision": True,
            "initializedcheck": DEBUG,
            "embedsignature": True,
            # No unit is pickled: without this each class of state brings functions that are.
            "auto_pickle": False,
            "legacy_implicit_noexcept": False,
        },
    ),
    cmdclass={"build_ext": BuildExt},
    options={
        "build_ext": {"parallel": os.cpu_count() or 1},  # pip has no -j
        "bdist_wheel": {"py_limited_api": "cp311"} if ABI3 else {},
    },
)
