"""The jobs on a standalone master and two workers, by spark-submit: equal to what they do alone.

Output and checkpoint are URIs that only Hadoop's file systems resolve (support/spark_cluster.py),
the workers have of our sources what --py-files ships, and of the connector what --jars ships.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import requirements, spark
from tests.support.spark_cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(400)]

# What a worker has: where its tasks run, and whether a module that was not shipped is there.
PROBE = """
import json, os, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()

def look(rows):
    import importlib.util, shipped
    yield [os.getcwd(), shipped.NAME, importlib.util.find_spec("kbroker") is not None]

found = spark.sparkContext.parallelize(range(8), 8).mapPartitions(look).collect()
spark.range(1000).write.parquet(sys.argv[1])
print(json.dumps({"found": found, "rows": spark.read.parquet(sys.argv[1]).count()}))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    requirements.java()
    if spark.version() is None:
        requirements.skip_missing("pyspark", "`make setup` installs the extra `spark`")
    with Cluster(tmp_path_factory.mktemp("cluster") / "spark") as running:
        yield running


def test_a_worker_has_what_was_shipped(cluster: Cluster, tmp_path: Path) -> None:
    """Or the tests below would show nothing."""
    job, shipped = tmp_path / "probe.py", tmp_path / "shipped.zip"
    job.write_text(PROBE)
    with zipfile.ZipFile(shipped, "w") as archive:
        archive.writestr("shipped.py", "NAME = 'by --py-files'")
    done = cluster.submit(job, cluster.uri("probe"), py_files=[shipped])
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["rows"] == 1000
    assert {Path(place).parents[2].name for place, _, _ in told["found"]} <= {
        "worker-0",
        "worker-1",
    }
    assert {(name, kbroker) for _, name, kbroker in told["found"]} == {("by --py-files", False)}
    assert len(cluster.executors_used()) == 2
    assert list((cluster.files / "probe").glob("*.parquet"))
