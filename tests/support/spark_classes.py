"""Spark's classes as Java maps them: half the processor time of a short session.

A session of the tests reads and checks ten thousand classes before it does anything, and a test run
starts dozens of them. The archive holds for one class path, so it is in the virtual
environment. Made by `make setup`, about half a minute; where there is none, sessions begin without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.support import class_archive

ARCHIVE: Final = Path(sys.prefix, "spark-classes.jsa")
# Short jobs: the first compiler is enough, and one thread collects. The room for compiled code is
# that of a whole session: by default it is full after some minutes, and Java removes and compiles
# the same methods again and again. A file of Hadoop's costs a `chmod`: one program for each,
# without a helper that starts it.
SHORT_LIVED: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=192m"
    " -Djdk.lang.Process.launchMechanism=VFORK"
)
# Each query is another one, and of a few rows: it is done before it would be compiled, or planned
# again by its findings.
SHORT_QUERIES: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_TIMEOUT_S: Final = 240


def java_options() -> str:
    """For a short-lived session of Spark."""
    return " ".join((SHORT_LIVED, *class_archive.mapped_from(ARCHIVE)))


def environment() -> dict[str, str]:
    """For a process that starts short-lived sessions of its own."""
    settings = " ".join(f"-D{name}={value}" for name, value in SHORT_QUERIES.items())
    return {**os.environ, "JDK_JAVA_OPTIONS": f"{java_options()} {settings}"}


def make() -> Path:
    """The archive, made from one session unless it is there; subprocess.SubprocessError."""
    if not ARCHIVE.exists():
        made = ARCHIVE.with_suffix(".new")
        made.unlink(missing_ok=True)
        subprocess.run(
            [sys.executable, "-m", "tests.support.spark_classes", str(made)],
            check=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
        made.rename(ARCHIVE)
    return ARCHIVE


def _session(archive: str) -> None:
    """What the tests do most: Parquet, a sum, JSON, a stream of one batch."""
    from spark_jobs.session import JAVA_OPTIONS, session

    options = " ".join((SHORT_LIVED, *class_archive.written_to(Path(archive))))
    spark = session(
        "local[1]",
        "kbroker-classes",
        conf={JAVA_OPTIONS: options, "spark.driver.memory": "512m"},
    )
    with tempfile.TemporaryDirectory() as scratch:
        rows = spark.range(100).selectExpr("id", "id % 7 AS k", "cast(id AS string) AS text")
        rows.write.parquet(f"{scratch}/rows")
        read = spark.read.parquet(f"{scratch}/rows").where("k > 2")
        read.groupBy("k").agg({"id": "sum", "text": "max"}).orderBy("k").collect()
        read.selectExpr("to_json(struct(*)) AS line").write.text(f"{scratch}/lines")
        query = (
            spark.readStream.text(f"{scratch}/lines")
            .writeStream.foreachBatch(_counted)
            .option("checkpointLocation", f"{scratch}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()


def _counted(rows: Any, batch_id: int) -> None:
    rows.count()


if __name__ == "__main__":
    _session(sys.argv[1])
