"""kbroker's image for containers: `make image`. No container engine is used.

    python -m release.image            x86_64 and aarch64, of the wheels below dist/release/
    python -m release.image --here     of this machine, with the modules of `make build`

The image has three layers: a Python and its libraries, which are packages of Debian; what kbroker
depends on, as pinned; kbroker's wheel. There is no shell in it. Below dist/ are the layout of both
machines, for registries, and the archive of each, for `docker load`. The same commit, packages and
zlib make the same bytes. Packages of Debian are kept below build/; `--again` fetches today's.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any, Final

from release import debs, elf, oci, stage, wheels
from release.file_tree import PROGRAM_MODE, Entry, Files, directory, file, of_folder, write
from release.stage import ReleaseError

TREE: Final = wheels.TREE
NAME: Final = "kbroker"
MB_MAX: Final = 30
USER: Final = 1000
DATA: Final = "/var/lib/kbroker"
SETTINGS: Final = ("image.properties", "durable.properties")
_SITE: Final = "usr/local/lib/python3.11/dist-packages"
_EXTRAS: Final = "cluster,console"
# Distributions without a wheel on the index; they are pure Python.
_SOURCE_ONLY: Final = ("pure-sasl",)
_GLIBC_MINORS: Final = range(36, 16, -1)  # of manylinux, that the image's C library serves
_NO_USE: Final = (".pyx", ".pxd", ".pyi", ".c", ".h")
_NO_PARTS: Final = frozenset(("__pycache__", "tests", "_testbase.py", "_trio.py"))
_OF_INSTALLERS: Final = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_START: Final = f"""\
#!/usr/bin/{debs.PYTHON} -I
from kbroker.cli.main import main

raise SystemExit(main())
"""
_ACCOUNTS: Final = f"root:x:0:0:root:/root:/nologin\n{NAME}:x:{USER}:{USER}::{DATA}:/nologin\n"
_GROUPS: Final = f"root:x:0:\n{NAME}:x:{USER}:\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release.image", description=__doc__)
    parser.add_argument("--here", action="store_true", help="of this machine alone")
    parser.add_argument("--again", action="store_true", help="fetch packages of Debian again")
    parser.add_argument("--to", type=Path, default=TREE / "dist", help="the folder of the image")
    options = parser.parse_args(arguments)
    try:
        given = wheel_here() if options.here else _wheels(options.to / "release")
        made = build(given, options.to, again=options.again)
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for machine, size in made.items():
        print(f"{machine}  {size / 1e6:.1f} MB compressed", flush=True)
    return 0


def wheel_here() -> dict[str, Path]:
    to = TREE / "build" / "image" / "wheel"
    to.mkdir(parents=True, exist_ok=True)
    return {platform.machine(): stage.pack(TREE, stage.CORE, to, epoch_s=wheels.epoch_s())}


def _wheels(folder: Path) -> dict[str, Path]:
    found = {
        machine: sorted(folder.glob(f"{NAME}-*manylinux*_{machine}.whl"))
        for machine in oci.PLATFORMS
    }
    missing = [machine for machine, each in found.items() if not each]
    if missing:
        raise ReleaseError(f"{folder} has no wheel for {' and '.join(missing)} -> make wheels")
    return {machine: each[-1] for machine, each in found.items()}


def build(given: dict[str, Path], to: Path, *, again: bool = False) -> dict[str, int]:
    """The image of each machine's wheel, below the folder `to`; their sizes in bytes.

    ReleaseError: something cannot be fetched, or the image is too large.
    """
    epoch_s = wheels.epoch_s()
    to.mkdir(parents=True, exist_ok=True)
    for old in to.glob(f"{NAME}-image*.tar"):
        old.unlink()
    layout = oci.Layout(to / f"{NAME}-image", epoch_s)
    cache = TREE / "build" / "image"
    bases = {
        machine: debs.base_of(debs.fetched(machine, cache, again=again))
        for machine in dict.fromkeys((platform.machine(), *given))
    }
    made = {}
    with tempfile.TemporaryDirectory() as scratch:
        python = _interpreter(bases[platform.machine()], Path(scratch) / "python")
        for machine, wheel in given.items():
            place = Path(scratch) / machine
            base = compiled(bases[machine], python, place / "base")
            needed, own = _split(_installed(wheel, machine, cache, place / "site"))
            layers = [
                oci.Layer(f"packages of Debian {debs.SUITE}", base | _ours_of_the_base()),
                oci.Layer("what kbroker depends on", compiled(needed, python, place / "needed")),
                oci.Layer("kbroker", compiled(own, python, place / "own") | own_files()),
            ]
            made[machine] = layout.image(oci.PLATFORMS[machine], layers, _config(wheel))
    layout.finish(NAME, _version(next(iter(given.values()))))
    large = [machine for machine, size in made.items() if size > MB_MAX * 1_000_000]
    if large:
        raise ReleaseError(f"the image for {large[0]} has {made[large[0]] / 1e6:.1f} MB")
    for machine in made:
        architecture = oci.PLATFORMS[machine].architecture
        layout.archive(oci.PLATFORMS[machine], to / f"{NAME}-image-{architecture}.tar")
    return made


def _version(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def _config(wheel: Path) -> dict[str, Any]:
    """How the image starts. `Healthcheck` is Docker's, other engines do not read it."""
    labels = {
        "title": NAME,
        "description": "A message broker that speaks the Apache Kafka wire protocol",
        "version": _version(wheel),
    }
    if revision := _revision():
        labels["revision"] = revision
    return {
        "User": f"{USER}:{USER}",
        "ExposedPorts": {"9092/tcp": {}},
        "Env": [
            "PATH=/usr/bin",
            "LANG=C.UTF-8",
            f"HOME={DATA}",
            f"KBROKER_CONTAINER=/etc/{NAME}/{SETTINGS[0]}",
        ],
        "Entrypoint": [f"/usr/bin/{NAME}"],
        "Cmd": ["start"],
        "Volumes": {DATA: {}},
        "WorkingDir": DATA,
        "StopSignal": "SIGTERM",
        "Labels": {f"org.opencontainers.image.{name}": text for name, text in labels.items()},
        "Healthcheck": {
            "Test": ["CMD", f"/usr/bin/{NAME}", "health", "--here"],
            "Interval": 30_000_000_000,
            "Timeout": 10_000_000_000,
            "StartPeriod": 60_000_000_000,
            "Retries": 3,
        },
    }


def _revision() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=TREE, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip()


def _ours_of_the_base() -> Files:
    return {
        "etc/passwd": file(_ACCOUNTS),
        "etc/group": file(_GROUPS),
        "etc/nsswitch.conf": file("passwd: files\ngroup: files\nhosts: files dns\n"),
        "etc/kafka/secrets": directory(),
        "mnt/shared/config": directory(),
        "tmp": directory(0o1777),
        **{each: directory() for each in ("dev", "proc", "sys", "run", "root")},
    }


def own_files() -> Files:
    return {
        f"usr/bin/{NAME}": file(_START, PROGRAM_MODE),
        # Of the user, and of group 0, to which every user of OpenShift belongs.
        DATA.lstrip("/"): directory(0o770, USER, 0),
        "var/lib/kafka/data": directory(0o770, USER, 0),  # the volume of Apache Kafka's image
        f"etc/{NAME}/secure": directory(0o770, USER, 0),  # for `kbroker secure init`
        **{f"etc/{NAME}/{each}": file((TREE / "deploy" / each).read_bytes()) for each in SETTINGS},
    }


# --- Python's packages ----------------------------------------------------------------------------


def _installed(wheel: Path, machine: str, cache: Path, site: Path) -> Path:
    """kbroker's wheel with its dependencies for that machine, in a folder."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    pins = ["-c", str(TREE / "constraints.txt")]
    pure = cache / "pure"
    pure.mkdir(parents=True, exist_ok=True)
    stage.run(
        [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(pure), *pins,
         *_SOURCE_ONLY],
        cwd=cache,
    )  # fmt: skip
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC_MINORS]
    platforms += [f"manylinux2014_{machine}", f"linux_{machine}"]
    stage.run(
        [*pip, "install", "-q", "--no-compile", "--target", str(site), "--find-links", str(pure),
         "--only-binary=:all:", "--implementation", "cp", "--python-version", "3.11",
         "--abi", "cp311", "--abi", "abi3", "--abi", "none",
         *(word for each in platforms for word in ("--platform", each)),
         *pins, f"{wheel.resolve()}[{_EXTRAS}]"],
        cwd=cache,
    )  # fmt: skip
    return site


def _split(site: Path) -> tuple[Files, Files]:
    """The files of the dependencies, and kbroker's own."""

    def is_wanted(name: PurePosixPath) -> bool:
        first = name.parts[0]
        if first in ("bin", "share") or name.suffix in _NO_USE:
            return False
        if not _NO_PARTS.isdisjoint(name.parts):
            return False
        return not (first.endswith(".dist-info") and name.name in _OF_INSTALLERS)

    files = of_folder(site, _SITE, is_wanted)
    own, needed = Files(), Files()
    for name, entry in files.items():
        parts = name.removeprefix(f"{_SITE}/").split("/")
        if parts[0].partition("-")[0] != NAME:
            needed[name] = _without_debug_information(name, entry)
        elif parts[:2] != [NAME, "testing"]:  # no test runs in there
            own[name] = entry
    return needed, own


def _without_debug_information(name: str, entry: Entry) -> Entry:
    """Of uvloop it is nine tenths."""
    if entry.data is None or not name.endswith(".so"):
        return entry
    return entry._replace(data=elf.loaded_part(entry.data))


# --- bytecode -------------------------------------------------------------------------------------


def _interpreter(base: Files, root: Path) -> list[str]:
    """The image's Python for this machine, run from a folder, with its own C library."""
    write({name: entry for name, entry in base.items() if name.startswith("usr/lib")}, root)
    python = root / "usr/bin" / debs.PYTHON
    python.parent.mkdir(parents=True)
    python.write_bytes(base[f"usr/bin/{debs.PYTHON}"].data or b"")
    libraries = root / "usr/lib" / f"{platform.machine()}-linux-gnu"
    (loader,) = libraries.glob("ld-linux-*.so.*")
    loader.chmod(0o755)
    # Not `-I`: the standard library is found by the program's place.
    return [str(loader), "--library-path", str(libraries), str(python), "-E", "-s", "-S", "-B"]


def compiled(files: Files, python: list[str], root: Path) -> Files:
    """The files with their bytecode, which is the same for every machine: a read-only image could
    not keep it, and each start would compile everything."""
    sources = {name: entry for name, entry in files.items() if name.endswith(".py")}
    if not sources:
        return files
    shutil.rmtree(root, ignore_errors=True)
    write(sources, root)
    stage.run(
        [*python, "-m", "compileall", "-q", "-f", "-j", "1", "--invalidation-mode",
         "unchecked-hash", "-s", str(root), "-p", "/", str(root)],
        cwd=root,
        environment={"PYTHONHASHSEED": "0"},
    )  # fmt: skip
    made = {f"{path.relative_to(root)}": file(path.read_bytes()) for path in root.rglob("*.pyc")}
    return files | made


if __name__ == "__main__":
    sys.exit(main())
