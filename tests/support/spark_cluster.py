"""A standalone Spark cluster on loopback: a master and workers, out of pyspark's pip package.

    with Cluster(tmp_path) as cluster:
        driver = cluster.begin(Path("job.py"), "--out", uri, said=file, jars=jars, py_files=[zip])

The pip package has no start-master.sh, but its spark-class runs the same classes. Every process
has a working directory of its own, no PYTHONPATH and an environment without Spark's variables, so
that a job has on the workers only what was shipped to them. The executors belong to their worker's
process group, which ends with the cluster. All of it listens on loopback, on free ports.

A URI, `Cluster.uri(name)`, is below `viewfs://shared/`, a file system of Hadoop's that every
node of this cluster knows and that Python's open() does not. A job that treats a URI as a local
path fails here, as it would on HDFS or S3.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from tests.support import spark_classes

START_WAIT_S: Final = 60.0
STOP_WAIT_S: Final = 10.0
POLL_S: Final = 0.05
DAEMON_MEMORY: Final = "256m"
EXECUTOR_MEMORY: Final = "512m"
_MASTER_URL: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"Successfully registered with master")
_OF_SPARK: Final = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "PYTHONPATH", "JAVA_TOOL_OPTIONS")
_UNDER: Final = "shared"


class ClusterError(Exception):
    """A process of the cluster did not come up, or a job ran too long."""


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def environment() -> dict[str, str]:
    """Of its processes: this one's, without what would change Spark or Python."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_OF_SPARK)}
    return {
        **kept,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",  # the pages of master and workers as well
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        # Of every Java here, the executors' too.
        "JDK_JAVA_OPTIONS": spark_classes.java_options(),
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }


class Cluster:
    """A master and `workers` workers of one core each."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        self.files = directory / "files"  # what viewfs://shared/ shows
        self.master = ""
        self._count = workers
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def uri(self, name: str) -> str:
        """A place that all nodes see; `files / name` is where this test finds it."""
        return f"viewfs://{_UNDER}/{name}"

    def conf(self) -> dict[str, str]:
        """What a job on this cluster is configured with: loopback, and the shared file system."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": EXECUTOR_MEMORY,
            # Or a job begins, and may end, with the executor that is up first.
            "spark.cores.max": str(self._count),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_WAIT_S:.0f}s",
            "spark.pyspark.python": sys.executable,
            "spark.ui.enabled": "false",
            **spark_classes.SHORT_QUERIES,
            **{f"spark.hadoop.{key}": value for key, value in self.hadoop_settings().items()},
        }

    def hadoop_settings(self) -> dict[str, str]:
        """By which any driver knows the shared file system."""
        return {f"fs.viewfs.mounttable.{_UNDER}.linkFallback": self.files.as_uri()}

    def begin(
        self,
        job: Path,
        *arguments: str,
        said: int | IO[str],
        jars: Sequence[Path] = (),
        py_files: Sequence[Path] = (),
        conf: dict[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """`spark-submit` the job from an empty directory; `said` takes its output. The process
        leads a group of its own, which the caller ends."""
        place = self.directory / f"driver-{time.monotonic_ns()}"
        place.mkdir(parents=True)
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self.master]
        for key, value in {**self.conf(), **(conf or {})}.items():
            command += ["--conf", f"{key}={value}"]
        if jars:
            command += ["--jars", ",".join(map(str, jars))]
        if py_files:
            command += ["--py-files", ",".join(map(str, py_files))]
        return subprocess.Popen(
            [*command, str(job), *arguments],
            cwd=place,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            text=True,
            start_new_session=True,
        )

    def executors_used(self) -> list[Path]:
        """The directories of executors that were started, one for each worker and job."""
        return sorted(self.directory.glob("worker-*/*/app-*/*"))

    def stop(self) -> None:
        for process in reversed(self._running):
            signal_group(process.pid, signal.SIGTERM)
        give_up = time.monotonic() + STOP_WAIT_S
        for process in self._running:
            try:
                process.wait(max(0.0, give_up - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass  # killed below, with its children
            signal_group(process.pid, signal.SIGKILL)
            process.wait()
        self._running.clear()

    # --- starting ---

    def _start(self) -> None:
        self.files.mkdir(parents=True)
        log = self._launch("master", "master.Master", "--port", "0")
        self.master = self._wait_for(log, _MASTER_URL).group(1)
        logs = [
            self._launch(
                f"worker-{number}", "worker.Worker", "--port", "0", "--cores", "1",
                "--memory", "1g", "--work-dir", str(self.directory / f"worker-{number}" / "work"),
                self.master,
            )
            for number in range(self._count)
        ]  # fmt: skip
        for log in logs:
            self._wait_for(log, _REGISTERED)

    def _launch(self, name: str, role: str, *arguments: str) -> Path:
        place = self.directory / name
        place.mkdir()
        log = place / "log.txt"
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}",
                   "--host", "127.0.0.1", "--webui-port", "0", *arguments]  # fmt: skip
        with log.open("wb") as file:
            self._running.append(
                subprocess.Popen(
                    command,
                    cwd=place,
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            )
        return log

    def _wait_for(self, log: Path, line: re.Pattern[str]) -> re.Match[str]:
        give_up = time.monotonic() + START_WAIT_S
        while True:
            text = log.read_text(errors="replace")
            if found := line.search(text):
                return found
            if time.monotonic() > give_up or any(p.poll() is not None for p in self._running):
                raise ClusterError(f"{log.parent.name} did not come up: {text[-3000:]}")
            time.sleep(POLL_S)


def signal_group(group: int, number: signal.Signals) -> None:
    """To a process and all that it started: each leads a group of its own."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass  # all of it has ended
