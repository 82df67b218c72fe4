"""The one Spark session of a test run: four seconds to start, and a process has only one.

It is what the jobs make (spark_jobs/session.py), smaller. Tests that need a job in a process of its
own, to kill it, start that themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import requirements, spark, spark_classes


@pytest.fixture(scope="session", name="spark")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Skips the calling test where pyspark, its connector or Java is missing."""
    requirements.java()
    jars = spark.jars()
    from spark_jobs.session import session

    made = session(
        "local[1]",
        "kbroker-tests",
        conf={
            **spark_classes.SHORT_QUERIES,
            "spark.jars": ",".join(map(str, jars)),
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": spark_classes.java_options(),
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield made
    made.stop()
