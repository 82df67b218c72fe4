"""Spark's own Kafka connector: which jars, where they are, how to get them.

    python -m spark_jobs.connector            # brings them; prints their paths, joined by commas
    spark-submit --jars "$(python -m spark_jobs.connector)" ...
    python -m spark_jobs.connector --list     # names only: what to carry to a machine without Maven

The connector must be of Spark's own version, so its coordinate is read off the pyspark that is
installed and written nowhere. Four jars are needed; what they depend on besides is in pyspark. The
token provider of every Spark version is not to be had from Maven Central; the one that is is tiny
and has worked beside the others, so it is pinned.

Jars lie in `$KBROKER_CACHE/spark-VERSION` (~/.cache/kbroker/spark-VERSION), or in a directory that
is named. Nothing here starts Java.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from kbroker.errors import UserError

GROUP: Final = "org.apache.spark"
TOKEN_PROVIDER_VERSION: Final = "4.0.0"
# Of pyspark: its connector is to be had, and all of this runs with it (constraints.txt has it too).
TRIED_VERSION: Final = "4.2.0"
_CORE: Final = re.compile(r"spark-core_(\d+\.\d+)-")


def spark_version() -> str | None:
    """Of the pyspark that is installed; None without one."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return None


def scala_version() -> str:
    """What that pyspark was built with: artifacts carry it in their names."""
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        for jar in Path(place).glob("jars/spark-core_*.jar"):
            if found := _CORE.match(jar.name):
                return found[1]
    return "2.13"


def artifacts() -> tuple[str, ...]:
    """Artifact ids of the four jars, the connector first."""
    scala = scala_version()
    return (
        f"spark-sql-kafka-0-10_{scala}",
        f"spark-token-provider-kafka-0-10_{scala}",
        "kafka-clients",
        "commons-pool2",
    )


def coordinate(version: str) -> str:
    """The connector of a Spark version, as Maven and `--packages` want it."""
    return f"{GROUP}:{artifacts()[0]}:{version}"


def directory(version: str) -> Path:
    chosen = os.environ.get("KBROKER_CACHE")
    cache = Path(chosen) if chosen else Path.home() / ".cache" / "kbroker"
    return cache / f"spark-{version}"


def find(place: Path | None = None) -> list[Path]:
    """The four jars; empty unless all are there, so a half is never taken for the whole."""
    version = spark_version()
    if version is None:
        return []
    where = place if place is not None else directory(version)
    found = [sorted(where.glob(f"{artifact}-[0-9]*.jar")) for artifact in artifacts()]
    return [jars[-1] for jars in found] if all(found) else []


def jars(place: Path | None = None) -> list[Path]:
    """The four jars, or UserError: one line that says how to get them."""
    found = find(place)
    if found:
        return found
    version = spark_version()
    if version is None:
        raise UserError("pyspark is not installed", "pip install 'kbroker[report]'")
    raise UserError(
        f"Spark {version}'s Kafka connector is not in {place or directory(version)}",
        "`python -m spark_jobs.connector` brings it (Maven); without it: --source kbroker",
    )


def fetch(place: Path | None = None) -> list[Path]:
    """The jars, brought by Maven unless they are there. UserError says why not."""
    found = find(place)
    if found:
        return found
    version = spark_version()
    if version is None:
        return jars(place)  # which says so
    where = place if place is not None else directory(version)
    pin = f"{GROUP}:{artifacts()[1]}:{TOKEN_PROVIDER_VERSION}"
    from lab import maven  # not among what executors get

    try:
        maven.fetch(where, [coordinate(version)], pins=[pin], only=artifacts())
    except (subprocess.SubprocessError, OSError) as error:
        raise UserError(
            f"Spark {version}'s Kafka connector could not be fetched: {error}",
            f"bring four jars to {where} (`python -m spark_jobs.connector --list`),"
            f" {_another(version)}or use --source kbroker",
        ) from None
    return jars(where)


def _another(version: str) -> str:
    """A connector may come later than its Spark, or not at all."""
    return "" if version == TRIED_VERSION else f"pip install pyspark=={TRIED_VERSION}, "


def wanted(version: str) -> str:
    """What to bring to a machine that cannot fetch."""
    connector, provider, *others = artifacts()
    lines = [
        f"{connector}-{version}.jar        {coordinate(version)}",
        f"{provider}-{TOKEN_PROVIDER_VERSION}.jar        "
        f"{GROUP}:{provider}:{TOKEN_PROVIDER_VERSION}",
        *(f"{name}-*.jar        as that connector's pom names it" for name in others),
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """0, or 1 with one line on standard error; standard output is for the paths alone."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.connector",
        description="Bring the jars of Spark's Kafka connector; print their paths.",
    )
    parser.add_argument("--directory", type=Path, help="instead of the cache")
    parser.add_argument("--list", action="store_true", help="which jars, without fetching")
    given = parser.parse_args(arguments)
    try:
        if given.list:
            version = spark_version()
            if version is None:
                raise UserError("pyspark is not installed", "pip install 'kbroker[report]'")
            print(f"{wanted(version)}\nto {given.directory or directory(version)}")
        else:
            print(",".join(map(str, fetch(given.directory))))
    except UserError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
