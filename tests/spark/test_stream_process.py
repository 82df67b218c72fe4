"""The job as people run it: a process with options, lines, signals and an exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbroker.testing.plain import PlainBroker
from spark_jobs import stream
from spark_jobs.files import LocalFiles
from spark_jobs.ledger import Ledger
from spark_jobs.schema import PROGRESS_TOPIC
from tests.spark.conftest import Send
from tests.support import requirements, spark, spark_classes
from tests.support.source_tree import ROOT

START_WAIT_S = 120
END_WAIT_S = 60
# Of the JVM itself, before any other output.
FROM_JAVA = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "NOTE: Picked up JDK_JAVA_OPTIONS:",
)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_process_that_is_asked_to_stop(
    shared_broker: PlainBroker, send: Send, tmp_path: Path
) -> None:
    requirements.java()
    spark.jars()
    send("served", [b"a", b"b"])
    where = ["--bootstrap-server", shared_broker.bootstrap, "--tables", "tables"]
    command = [sys.executable, str(ROOT / "spark_jobs" / "stream.py"), *where,
               "--topic", "served", "--trigger", "0.5", "--master", "local[1]"]  # fmt: skip
    job = subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=spark_classes.environment(),
    )  # fmt: skip
    try:
        ledger = Ledger(LocalFiles(), str(tmp_path / "tables" / "plain"))
        deadline_s = time.monotonic() + START_WAIT_S
        while not ledger.ends():
            assert job.poll() is None and time.monotonic() < deadline_s, job.communicate()
            time.sleep(0.1)
        job.send_signal(signal.SIGTERM)
        out, err = job.communicate(timeout=END_WAIT_S)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    assert job.returncode == 0
    assert out == ""
    assert [line for line in err.splitlines() if not line.startswith(FROM_JAVA)] == []
    assert dict(ledger.ends()["served"][1]) == {0: 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tables"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "required: --bootstrap-server, --tables"),
        (["--trigger", "soon"], "available-now, or seconds from 0.1 to 86400"),
        (["--trigger", "0"], "available-now, or seconds"),
        (["--trigger", "nan"], "available-now, or seconds"),
        (["--max-records", "0"], "a number from 1 on"),
        (["--source", "files"], "invalid choice"),
    ],
)
def test_a_wrong_option(options: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    needed = ["--bootstrap-server", "127.0.0.1:1", "--tables", "t"] if options else []
    assert stream.main([*needed, *options]) == 2
    assert line in capsys.readouterr().err


def test_each_topic_lands_in_its_table() -> None:
    found = stream.works([*stream.DEFAULT_TOPICS, "orders", "orders"], 3)
    assert [(work.topic, work.table, work.query) for work in found] == [
        ("__kbroker_metrics", "metrics", "metrics-v3"),
        ("kbroker.perf.results", "results", "results-v3"),
        (PROGRESS_TOPIC, "progress", "progress-v3"),
        ("orders", "plain", "plain-v3"),
    ]
