"""Jars by Maven coordinates, copied once into the cache directory outside the work tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from perf.brokers.base import cache_directory
from spark_jobs import maven
from tests.support import requirements


class Jars(NamedTuple):
    """A set of jars; `name` is its directory in the cache, coordinates group:artifact:version."""

    name: str
    wanted: Sequence[str]

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
        if not any(self.directory.glob("*.jar")):
            maven.fetch(self.directory, self.wanted)
        return self.directory
