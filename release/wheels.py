"""The wheels of kbroker and kbroker-perf: `make wheel` and `make wheels`.

    python -m release.wheels                  into dist/, of the modules that `make build` made
    python -m release.wheels --platforms      into dist/release/, for manylinux on two machines

The second compiles everything for each machine, by zig, and has the wheels judged: `auditwheel` for
the C library that they ask for, `abi3audit --strict` for Python's. Wheels of one commit are the
same to the byte.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from release import stage, zig
from release.stage import ReleaseError

TREE: Final = Path(__file__).resolve().parents[1]
_ZIP_BEGINS_S: Final = 315_532_800  # 1980, before which a zip has no time
_FITS: Final = re.compile(r'platform tag:\s*"manylinux_(\d+)_(\d+)_(\w+)"')


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release.wheels", description=__doc__)
    parser.add_argument("--platforms", action="store_true", help="manylinux, by zig, audited")
    parser.add_argument("--machine", action="append", choices=zig.MACHINES, help="of --platforms")
    parser.add_argument("--to", type=Path, help="the folder of the wheels")
    options = parser.parse_args(arguments)
    try:
        if options.platforms:
            made = for_platforms(options.to or TREE / "dist/release", options.machine)
        else:
            made = for_this_machine(options.to or TREE / "dist")
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for wheel in made:
        print(f"{wheel}  {wheel.stat().st_size / 1e6:.2f} MB", flush=True)
    return 0


def for_this_machine(to: Path) -> list[Path]:
    """Both wheels, of what is compiled in place."""
    to.mkdir(parents=True, exist_ok=True)
    return [
        stage.pack(TREE, each, to, epoch_s=epoch_s(), shared=shared_of(each))
        for each in stage.DISTRIBUTIONS
    ]


def for_platforms(to: Path, machines: list[str] | None = None) -> list[Path]:
    """Both wheels for each machine, compiled by zig and audited."""
    to.mkdir(parents=True, exist_ok=True)
    made = []
    for machine in machines or zig.MACHINES:
        copy = zig.compiled(TREE, machine)
        for each in stage.DISTRIBUTIONS:
            wheel = stage.pack(
                copy, each, to, epoch_s=epoch_s(), platform=zig.platform(machine), strip=False,
                shared=shared_of(each),
            )  # fmt: skip
            audit(wheel, machine)
            made.append(wheel)
    return made


def shared_of(distribution: stage.Distribution) -> dict[str, str]:
    """Manual pages and completion, by their paths below share/."""
    if distribution is not stage.CORE:
        return {}
    from kbroker.cli.commands import root
    from kbroker.cli.manual import shared_files

    return dict(shared_files(root()))


def audit(wheel: Path, machine: str) -> None:
    """ReleaseError: the wheel asks for more than its name says."""
    shown = stage.run([sys.executable, "-m", "auditwheel", "show", str(wheel)], cwd=wheel.parent)
    fits = _FITS.search(" ".join(shown.split()))
    if fits is None or fits[3] != machine or (int(fits[1]), int(fits[2])) > zig.GLIBC:
        raise ReleaseError(f"{wheel.name} is not what it says:\n{shown}")
    stage.run([sys.executable, "-m", "abi3audit", "--strict", str(wheel)], cwd=wheel.parent)


def epoch_s() -> int:
    """SOURCE_DATE_EPOCH, by default the time of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        asked = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=TREE, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        given = asked.stdout.strip() or "0"
    return max(int(given), _ZIP_BEGINS_S)


if __name__ == "__main__":
    sys.exit(main())
