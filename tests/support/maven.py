"""Jars by Maven coordinates, copied once into the cache directory outside the work tree.

A pom is written beside the jars, with the wanted artifacts and, where the newest of a transitive
one is not to be had, a pin for it; `only` leaves out what the program that uses them already has.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from perf.brokers.base import cache_directory
from tests.support import requirements

TIMEOUT_S = 600

_POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kbroker.tests</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencyManagement><dependencies>{pins}</dependencies></dependencyManagement>
  <dependencies>{wanted}</dependencies>
</project>
"""


class Jars(NamedTuple):
    """A set of jars; `name` is its directory in the cache, coordinates group:artifact:version."""

    name: str
    wanted: Sequence[str]
    pins: Sequence[str] = ()
    only: Sequence[str] = ()  # artifact ids

    @property
    def directory(self) -> Path:
        return cache_directory() / self.name

    def paths(self) -> list[Path]:
        """The jars; skips the calling test where they are not in the cache."""
        found = sorted(self.directory.glob("*.jar"))
        if not found:
            requirements.skip_missing(f"the jars of {self.name}", "`make setup` fetches them")
        return found

    def fetch(self) -> Path:
        """OSError or SubprocessError says why not."""
        if any(self.directory.glob("*.jar")):
            return self.directory
        if shutil.which("mvn") is None:
            raise OSError("no mvn on this machine")
        self.directory.mkdir(parents=True, exist_ok=True)
        pom = self.directory / "pom.xml"
        pom.write_text(_POM.format(pins=_listed(self.pins), wanted=_listed(self.wanted)))
        only = [f"-DincludeArtifactIds={','.join(self.only)}"] if self.only else []
        ran = subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies",
             f"-DoutputDirectory={self.directory}", *only],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )  # fmt: skip
        if ran.returncode:
            raise OSError(f"Maven: {ran.stdout[-500:].strip()}")
        return self.directory


def _listed(coordinates: Sequence[str]) -> str:
    return "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in (each.split(":") for each in coordinates)
    )
