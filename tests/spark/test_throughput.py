"""The throughput command on a small topic: its figures are of every record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import requirements, spark, spark_classes
from tests.support.source_tree import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

RECORDS = 20_000


def test_figures_cover_every_record(tmp_path: Path) -> None:
    requirements.java()
    spark.jars()  # or a skip
    figures = tmp_path / "figures.json"
    ran = subprocess.run(
        [sys.executable, "-m", "perf.spark_throughput", "--records", str(RECORDS), "--brokers",
         "kbroker", "--directory", str(tmp_path), "--json", str(figures)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        env=spark_classes.environment(),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    (found,) = json.loads(figures.read_text())
    assert found["records"] >= RECORDS  # whole requests
    assert found["table_bytes"] > 1_000_000  # batches that were all one would make a third of it
    assert found["covered"]  # by the consumers' own figures and by the connector's lines
    assert 0 < found["wait_s"] < found["poll_s"] < found["task_s"]
    assert found["broker_cpu_s"] > 0 and found["job_cpu_s"] > found["broker_cpu_s"]
