"""Apache Kafka's DumpLogSegments over the files of a log: batches, both indexes, snapshots.

The tool recomputes every CRC, unpacks every record, and compares each index entry with the batch
that it points at. What it prints about a file is what Apache Kafka would make of it.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from pathlib import Path

import pytest

from kbroker.log.loader import open_partition_log
from tests.support import jars, requirements
from tests.support.record_batches import CODECS, Record, build_batch

pytestmark = pytest.mark.java

JVM_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
BATCHES = 150


def dump(*arguments: str) -> str:
    ran = subprocess.run(
        [
            requirements.java(), *JVM_FLAGS, "-cp", jars.class_path(),
            "org.apache.kafka.tools.DumpLogSegments", *arguments,
        ],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def log_files(tmp_path: Path) -> Path:
    settings = {"segment_bytes": 15_000, "index_interval_bytes": 500}
    path = tmp_path / "words-0"
    log = open_partition_log(path, "words", 0, uuid.UUID(int=1), settings)
    log.set_leadership(1, True, 3, 1)
    for number in range(BATCHES):
        records = [
            Record(b"x" * 40 * (1 + number % 7), b"key", 1_000 + number * 3 + number * 7 % 50,
                   [(b"header", b"1")])
            for _ in range(1 + number % 4)
        ]  # fmt: skip
        codec = list(CODECS)[number % len(CODECS)]
        log.append(
            build_batch(
                records, codec=codec, producer_id=1_000 + number, producer_epoch=2, base_sequence=7
            )
        )
    log.close()
    return path


def test_segments_indexes_and_snapshots(log_files: Path) -> None:
    names = [
        str(file)
        for suffix in ("log", "index", "timeindex", "snapshot")
        for file in sorted(log_files.glob(f"*.{suffix}"))
    ]
    assert len(list(log_files.glob("*.log"))) >= 3
    printed = dump("--deep-iteration", "--files", ",".join(names))
    assert len(re.findall(r"isvalid: true", printed)) == BATCHES
    assert "isvalid: false" not in printed
    assert not re.search(r"mismatch|corrupt|not found|out of order|exception", printed, re.I)
    assert len(re.findall(r"producerId: 1\d\d\d producerEpoch: 2 ", printed)) >= BATCHES
    assert len(re.findall(r"^\| offset: ", printed, re.M)) == sum(
        1 + number % 4 for number in range(BATCHES)
    )
    assert set(re.findall(r"partitionLeaderEpoch: (\d+)", printed)) == {"3"}
    assert {name.lower() for name in re.findall(r"compresscodec: (\w+)", printed)} == set(CODECS)


def test_the_tools_own_check_of_the_index(log_files: Path) -> None:
    names = ",".join(str(file) for file in sorted(log_files.glob("*.index")))
    printed = dump("--index-sanity-check", "--files", names)
    assert printed.count("passed sanity check") == len(list(log_files.glob("*.index")))
