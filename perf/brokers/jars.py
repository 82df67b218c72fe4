"""Jars of servers that run beside kbroker: fetched by Maven once, kept in the cache directory."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perf.brokers.base import BrokerError

FETCH_TIMEOUT_S: Final = 600
_DEPENDENCY: Final = (
    "    <dependency><groupId>{0}</groupId><artifactId>{1}</artifactId>"
    "<version>{2}</version></dependency>\n"
)
_POM: Final = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kbroker.perf</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""


def fetch(what: str, directory: Path, wanted: Sequence[str]) -> None:
    """Jars of group:artifact:version, and all they need, into a directory. Raises BrokerError."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise BrokerError(f"{what} needs {tool}, which is not installed")
    directory.mkdir(parents=True, exist_ok=True)
    text = "".join(_DEPENDENCY.format(*each.split(":")) for each in wanted)
    pom = directory / "pom.xml"
    pom.write_text(_POM.format(dependencies=text), encoding="utf-8")
    fetched = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
         f"-DoutputDirectory={directory}"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
    )  # fmt: skip
    if fetched.returncode:
        raise BrokerError(f"Maven could not fetch {what}: {fetched.stdout[-500:].strip()}")
