"""Apache Kafka's own jars: its command-line tools as clients, its broker as the reference.

The jars come from Maven by `ensure()`, once, into a cache directory outside the work tree
(KBROKER_CACHE, by default ~/.cache/kbroker). A half-finished download is never seen: Maven writes
into a temporary directory that is renamed when complete. Tests only read the cache (`class_path`)
and skip where it is empty; `python -m tests.support.setup`, which `make test` runs, fills it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support import requirements

KAFKA_VERSION = "4.3.0"
DOWNLOAD_TIMEOUT_S = 600

_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-streams", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),  # the tools' log on stderr, without settings files
)


def cache_dir() -> Path:
    named = os.environ.get("KBROKER_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "kbroker"


def jar_dir() -> Path:
    return cache_dir() / f"kafka-{KAFKA_VERSION}"


def present() -> bool:
    return jar_dir().is_dir()


def class_path() -> str:
    """For `java -cp`; skips the calling test where the jars are not in the cache."""
    if not present():
        requirements.skip_missing(
            f"Apache Kafka {KAFKA_VERSION}'s jars", f"`make test` fetches them into {jar_dir()}"
        )
    return f"{jar_dir()}/*"


def ensure() -> None:
    """Fetch the jars unless they are there. Raises OSError or CalledProcessError."""
    if present():
        return
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="fetching-") as scratch:
        project = Path(scratch) / "pom.xml"
        project.write_text(_pom(), encoding="utf-8")
        jars = Path(scratch) / "jars"
        subprocess.run(
            [
                "mvn", "--batch-mode", "--quiet", "-Dstyle.color=never", "--file", str(project),
                "dependency:copy-dependencies", f"-DoutputDirectory={jars}",
            ],
            check=True,
            timeout=DOWNLOAD_TIMEOUT_S,
        )  # fmt: skip
        try:
            jars.rename(jar_dir())
        except OSError:  # another run was faster; its jars are the same
            if not present():
                raise
            shutil.rmtree(jars)


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in _ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>kbroker.tests</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
