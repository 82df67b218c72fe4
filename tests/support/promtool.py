"""Prometheus' own checker of rules and configurations, for the tests of generated files.

It is one program of the Debian package `prometheus`; `python -m tests.support.setup` takes it out
of the package, into the cache directory outside the work tree, without installing a server. A
promtool on the PATH is as good. Tests skip where there is none.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from lab.jars import cache_directory
from tests.support import requirements

PACKAGE = "prometheus"
TIMEOUT_S = 300


def cached() -> Path:
    return cache_directory() / "promtool"


def find() -> str | None:
    return shutil.which("promtool") or (str(cached()) if cached().exists() else None)


def path() -> str:
    """The program, or a skip of the calling test."""
    found = find()
    if found is None:
        requirements.skip_missing("promtool", f"`make setup` fetches it to {cached()}")
    return found


def fetch() -> None:
    """From the distribution's package; OSError or SubprocessError says what is missing."""
    cached().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        _run(["apt-get", "-qq", "download", PACKAGE], place)
        (package,) = Path(place).glob("*.deb")
        _run(["dpkg-deb", "-x", str(package), "unpacked"], place)
        shutil.copy2(Path(place) / "unpacked" / "usr" / "bin" / "promtool", cached())


def _run(command: list[str], place: str) -> None:
    subprocess.run(
        command,
        cwd=place,
        check=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
