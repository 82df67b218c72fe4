"""The Java producer with its defaults, as Apache Kafka's own ProducerPerformance runs it.

Idempotent, acks=all, five in flight, linger 5 ms, batches of 16 KB: with records of 10 KB one to a
batch. The records that its runtime needs to get warm are not counted.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from typing import Final

from lab import child
from lab.jars import KAFKA
from perf.cells import CellError
from perf.pipelining.plan import RECORD_BYTES

RECORDS, WARM_RECORDS = 12_000, 4_000
HEAP: Final = "256m"
_LAST: Final = re.compile(
    r"(\d+)(?: steady state)? records sent[^,]*, ([\d.]+) records/sec "
    r".*?, (\d+) ms 99th, (\d+) ms 99\.9th"
)


@dataclass(frozen=True)
class JavaRun:
    """Its figures for the records after the warm ones; `records` and `cpu_s` are of all."""

    records: int
    records_per_s: float
    p99_ms: float
    cpu_s: float

    @property
    def seconds(self) -> float:
        """For all records at that rate."""
        return self.records / self.records_per_s


def run(bootstrap: str, topic: str) -> JavaRun:
    """One run to its end. CellError where it fails, or says what is not understood."""
    command = [
        "java",
        f"-Xmx{HEAP}",
        "-cp",
        KAFKA.fetch(),
        "org.apache.kafka.tools.ProducerPerformance",
    ]
    command += ["--bootstrap-server", bootstrap, "--topic", topic]
    command += ["--num-records", str(RECORDS), "--warmup-records", str(WARM_RECORDS)]
    command += ["--record-size", str(RECORD_BYTES), "--throughput", "-1"]
    process = child.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with process:
        said = process.stdout.read().decode(errors="replace") if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    found = _LAST.findall(said)
    if process.returncode or not found:
        raise CellError(f"the Java producer ended with {process.returncode}: {said[-500:].strip()}")
    _, rate, p99_ms, _ = found[-1]
    if not float(rate) > 0:
        raise CellError(f"the Java producer had no record acknowledged: {said[-500:].strip()}")
    return JavaRun(RECORDS, float(rate), float(p99_ms), used.ru_utime + used.ru_stime)
