"""Spark's Kafka connector, at the version of the pyspark that is installed.

The token provider of every Spark version is not to be had from Maven Central; the one that is is
tiny and has worked beside the others, so it is pinned.
"""

from __future__ import annotations

import importlib.metadata

from tests.support import requirements
from tests.support.maven import Jars

SCALA = "2.13"
CONNECTOR = f"spark-sql-kafka-0-10_{SCALA}"
TOKEN_PROVIDER = f"spark-token-provider-kafka-0-10_{SCALA}"
TOKEN_PROVIDER_VERSION = "4.0.0"


def version() -> str | None:
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return None


def connector() -> Jars:
    """Skips the calling test where pyspark is not installed."""
    found = version()
    if found is None:
        requirements.skip_missing("pyspark", "`make setup` installs the extra `spark`")
    return Jars(
        name=f"spark-{found}",
        wanted=(f"org.apache.spark:{CONNECTOR}:{found}",),
        pins=(f"org.apache.spark:{TOKEN_PROVIDER}:{TOKEN_PROVIDER_VERSION}",),
        only=(CONNECTOR, TOKEN_PROVIDER, "kafka-clients", "commons-pool2"),
    )
