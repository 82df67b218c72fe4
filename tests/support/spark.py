"""Spark's Kafka connector for tests: the jars that `spark_jobs.connector` names, or a skip."""

from __future__ import annotations

from pathlib import Path

from spark_jobs import connector
from tests.support import requirements


def version() -> str | None:
    return connector.spark_version()


def jars() -> list[Path]:
    """Skips the calling test where pyspark or a jar is missing."""
    if connector.spark_version() is None:
        requirements.skip_missing("pyspark", "`make setup` installs the extra `report`")
    found = connector.find()
    if not found:
        requirements.skip_missing("Spark's Kafka connector", "`make setup` fetches it")
    return found
