"""The Spark session of a job, the same by `python -m` and under spark-submit.

Under spark-submit the master, the jars and the memory are the submitter's; here are the settings
that the tables depend on: UTC, and Parquet's times in the usual form. A local session binds to
loopback, runs its workers with this Python, and has no web page unless asked.

Owner: the main thread; there is one session in a process.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.errors import UserError
from spark_jobs import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER: Final = "local[2]"
# Shuffles here are of one batch or one day; Spark's 200 partitions would be 200 empty tasks.
SHUFFLE_PARTITIONS: Final = 2
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A record's stamp may be anything: one of the year 1000 must not stop the writer.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
    # What Spark remembers of its past, for its web page; by default a thousand plans of 50 KB each.
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.maxPlanStringLength": "20000",
    # Each call that builds a query would tell Java from which line of Python it came, in several
    # round trips: most of the time in which a small batch is prepared.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A query whose thread is stuck does not keep the job from ending.
    "spark.sql.streaming.stopTimeout": "5s",
}


def submitted() -> bool:
    """Whether spark-submit started this Python."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def need_java() -> None:
    """UserError where there is none: Spark itself would end in a traceback."""
    home = os.environ.get("JAVA_HOME")
    if home and not Path(home, "bin", "java").exists():  # Spark looks nowhere else then
        raise UserError(f"there is no Java in JAVA_HOME, {home}", "mend it, or unset it")
    if not home and shutil.which("java") is None:
        raise UserError(
            "Spark needs Java 17 and there is none",
            "on Debian: apt-get install openjdk-17-jre-headless",
        )


def session(
    master: str | None,
    app: str,
    *,
    source: str = "auto",
    ui: bool = False,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """`master` None: the submitter's, or LOCAL_MASTER. `source` kafka: with the connector's jars.

    UserError where pyspark, Java, or what the source needs is missing.
    """
    if connector.spark_version() is None:
        connector.jars()  # which says how to get it
    settings = dict(_SETTINGS)
    if not submitted():
        need_java()
        master = master or LOCAL_MASTER
        settings["spark.ui.enabled"] = str(ui).lower()
        settings["spark.ui.showConsoleProgress"] = "false"
        quiet = Path(__file__).with_name("log4j2.properties")
        if quiet.exists():  # not in an archive
            settings[JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={quiet}"
        found = _jars(source)
        if found:
            settings["spark.jars"] = ",".join(map(str, found))
    if master is not None and master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable  # or its workers would be the system's Python
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.sql.warehouse.dir"] = os.path.join(tempfile.gettempdir(), "spark-warehouse")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    more = dict(conf or {})
    if JAVA_OPTIONS in settings and JAVA_OPTIONS in more:
        more[JAVA_OPTIONS] = f"{settings[JAVA_OPTIONS]} {more[JAVA_OPTIONS]}"
    for name, value in (settings | more).items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def _jars(source: str) -> list[Path]:
    """The connector's: must they be there (kafka), may they (auto), or are they not needed?"""
    if source == "kbroker":
        return []
    return connector.jars() if source == "kafka" else connector.find()
