"""Jars by their Maven coordinates, into a directory.

A pom is written for the run, with the wanted artifacts and, where the newest of a transitive one is
not to be had, a pin for it; `only` leaves out what the program that uses them has already. Jars
come into the directory whole: Maven copies beside it, then each is renamed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 600
_TOLD_CHARS_MAX: Final = 300
_ERROR: Final = "[ERROR]"
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")  # Maven resets it even where it uses none

_POM: Final = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kbroker</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencyManagement><dependencies>{pins}</dependencies></dependencyManagement>
  <dependencies>{wanted}</dependencies>
</project>
"""


def fetch(
    directory: Path,
    wanted: Sequence[str],
    *,
    pins: Sequence[str] = (),
    only: Sequence[str] = (),
) -> None:
    """Coordinates are group:artifact:version. OSError or SubprocessError says why not."""
    if shutil.which("mvn") is None:
        raise OSError("no mvn on this machine")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=directory) as name:
        work = Path(name)
        pom = _POM.format(pins=_listed(pins), wanted=_listed(wanted))
        (work / "pom.xml").write_text(pom, encoding="utf-8")
        filtered = [f"-DincludeArtifactIds={','.join(only)}"] if only else []
        ran = subprocess.run(
            ["mvn", "-q", "-B", "-Dstyle.color=never", "dependency:copy-dependencies",
             f"-DoutputDirectory={work}", *filtered],
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )  # fmt: skip
        if ran.returncode:
            raise OSError(f"Maven: {first_error(ran.stdout)}")
        for jar in work.glob("*.jar"):
            jar.replace(directory / jar.name)


def first_error(said: str) -> str:
    """The line of Maven's that says what is wrong: the first error; the others are advice."""
    plain = (line.strip() for line in _COLOUR.sub("", said).splitlines())
    lines = [line for line in plain if line and line != _ERROR]
    errors = [line for line in lines if line.startswith(_ERROR)]
    chosen = (errors or lines or ["it failed without a word"])[0]
    return chosen.removeprefix(_ERROR).partition(" -> [Help")[0].strip()[:_TOLD_CHARS_MAX]


def _listed(coordinates: Sequence[str]) -> str:
    return "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in (each.split(":") for each in coordinates)
    )
