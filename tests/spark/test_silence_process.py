"""Silence of real processes: a broker that is killed, a landing job that is killed, samples off.

Two brokers write samples; those of the second are copied to the first, as mirroring does it, and it
is killed. A landing job reads them until it is killed as well; then the first broker is started
again without samples. Each is an alarm in the next report, named at the head of its page.

Time is real here, so the silence that a report puts up with is seconds, not minutes; and of its
chapters only that about silence is made, because the others say nothing of it and are dear.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kbroker.metrics import samples
from kbroker.peer.client import Client
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from kbroker.testing.plain import PlainBroker
from lab.ports import free_port
from spark_jobs import report, tables
from spark_jobs.errors import EXIT_ALARM
from spark_jobs.files import LocalFiles
from spark_jobs.ledger import Ledger
from spark_jobs.sections import Made, overview, silence
from spark_jobs.sections.inputs import Inputs
from tests.spark.kills import Driver
from tests.support.read_topic import read_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SILENT_MS = 10_000  # more than a batch takes, or a round of samples, on a busy machine
WAIT_S = 120.0
SAMPLED = {"metrics.topic.enable": True, "metrics.topic.interval.ms": 1_000}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def mirrored(source: str, target: str) -> None:
    """What there is of samples, once there are some."""
    deadline_s = time.monotonic() + WAIT_S
    with Client(source) as client:
        while samples.TOPIC not in client.metadata(None).topics:
            assert time.monotonic() < deadline_s
    while not (found := read_topic(source, samples.TOPIC)):
        assert time.monotonic() < deadline_s
    with Client(target) as client:
        records = [Record(one.key, one.value, timestamp_ms=now_ms()) for one in found]
        Producer(client, samples.TOPIC).send(records)


def made(spark: Any, root: Path, *more: str) -> tuple[int, list[str], str]:
    """A report: its exit code, its alarms, the head of its page."""
    said: list[str] = []
    words = ["--tables", str(root / "tables"), "--out", str(root / "report.html"),
             "--no-rollup", *more]  # fmt: skip
    code = report.make(spark, report.arguments(words), now_ms(), said.append)
    head = (root / "report.html").read_text("utf-8").partition("<main>")[0]
    alarms = [line.removeprefix("alarm: ") for line in said if line.startswith("alarm: ")]
    return code, alarms, head


def silence_alone(inputs: Inputs, *_: object, **__: object) -> Made:
    section = silence.section(inputs, silence.listen(inputs))
    return Made((overview.section(inputs, [section]), section), ())


def test_each_is_an_alarm_in_the_next_report(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "SILENT_MS", SILENT_MS)
    monkeypatch.setattr(report, "everything", silence_alone)
    with (
        PlainBroker(SAMPLED, port=free_port()) as first,
        PlainBroker({**SAMPLED, "node.id": 2}) as second,
    ):
        mirrored(second.bootstrap, first.bootstrap)
        second.kill9()
        silent_ms = now_ms() + SILENT_MS + 1_000
        job = Driver(tmp_path, first.bootstrap, topic=samples.TOPIC)
        try:
            job.go()
            ledger = Ledger(LocalFiles(), tables.table_uri(str(tmp_path / "tables"), "metrics"))
            job.wait_for(lambda: (ledger.newest_ms() or 0) > silent_ms, "sample that landed")
            assert job.alive, job.said()
        finally:
            job.kill()
            job.end()
        first.stop()
        first.overrides["metrics.topic.enable"] = "false"
        first.start()
        stopped_ms = now_ms()

        code, alarms, head = made(spark, tmp_path, "--until", ahead(20))
        assert code == EXIT_ALARM
        nothing, broker_2 = alarms
        assert nothing.startswith("Nothing has landed for")
        assert broker_2.startswith("No samples of broker 2 for")
        assert "Nothing has landed for" in head and "No samples of broker 2 for" in head

        while now_ms() < stopped_ms + SILENT_MS:
            time.sleep(0.1)
        code, alarms, head = made(spark, tmp_path, "--bootstrap-server", first.bootstrap)
        assert code == EXIT_ALARM
        (line,) = alarms
        assert line.startswith("No samples of any of 2 brokers (1, 2) for")
        assert "No samples of any of 2 brokers (1, 2) for" in head


def ahead(minutes: int) -> str:
    at = time.gmtime(now_ms() / 1000 + 60 * minutes)
    return time.strftime("%Y-%m-%dT%H:%M:%S", at)
