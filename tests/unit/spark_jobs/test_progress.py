"""What the job says of a batch: the commit's rows, or those that Spark's offsets tell."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.types import ApiKey
from spark_jobs.progress import Noted, PeerPublisher, Progress, figures
from spark_jobs.schema import PROGRESS_TOPIC
from tests.unit.peer.fake_broker import FakeBroker

ENDS = '{"t": {"0": 1030, "1": 7}}'


def reported(start: str | None) -> Any:
    """Of Spark: a batch of 2 s up to ENDS."""
    source = SimpleNamespace(startOffset=start, endOffset=ENDS, latestOffset=ENDS)
    return SimpleNamespace(
        sources=[source], durationMs={"triggerExecution": 2000}, batchId=0,
        inputRowsPerSecond=1.0, stateOperators=[], numInputRows=36,
    )  # fmt: skip


def test_rows_are_those_of_the_commit() -> None:
    """A checkpoint's first batch begins at the table's end, and Spark knows no begin of it."""
    found = figures(reported(None), Noted(rows=30, late=2, aside=1))
    assert (found["input_rows"], found["processed_rows_per_s"]) == (30, 15)
    assert (found["late_rows"], found["quarantined_rows"]) == (2, 1)
    assert (found["lag_records"], found["partitions"]) == (0, 2)


def test_without_a_commit_the_offsets_tell() -> None:
    assert figures(reported('{"t": {"0": 1000}}'), None)["input_rows"] == 37
    first = figures(reported(None), None)
    assert "input_rows" not in first and "processed_rows_per_s" not in first


@pytest.mark.parametrize(("table", "rows"), [("metrics", 3), ("live", 36)])
def test_sums_are_not_counted_as_records(table: str, rows: int) -> None:
    """Table live has one row for each minute and partition, whatever their records are."""
    progress = Progress(Any, Any, Any, print)  # type: ignore[arg-type]
    progress._works = {"q": SimpleNamespace(table=table)}  # type: ignore[dict-item]
    commit = SimpleNamespace(units=[SimpleNamespace(rows=3)], quarantine=(), late=0)
    progress.note("q", 0, commit)  # type: ignore[arg-type]
    found = figures(reported(None), progress._notes["q", 0])
    assert (found["input_rows"], found["processed_rows_per_s"]) == (rows, rows / 2)


def test_a_record_that_cannot_be_written_costs_itself_and_a_line() -> None:
    said: list[str] = []
    sent: list[tuple[bytes, bytes]] = []
    done = threading.Event()

    class Publisher:
        def publish(self, values: Any) -> None:
            sent.extend(values)

        def close(self) -> None:
            done.set()

    progress = Progress(Any, Any, Publisher(), said.append)  # type: ignore[arg-type]
    work = SimpleNamespace(query="metrics-v1", topic="t")
    progress._works = {"q": work}  # type: ignore[dict-item]
    progress._endpoint = SimpleNamespace(kind="kafka")  # type: ignore[assignment]
    progress._put("batch", "q", 1, 2, {"batch_ms": "long"})
    thread = threading.Thread(target=progress._publish)
    thread.start()
    deadline = threading.Event()
    while not said and not deadline.wait(0.01):
        assert thread.is_alive()
    progress._put("batch", "q", 1, 2, {"batch_ms": 5})
    progress._queue.put(None)
    assert done.wait(60)
    assert progress.dropped == 1 and len(said) == 1 and "goes on" in said[0]
    assert len(sent) == 1 and b'"batch_ms":5' in sent[0][1].replace(b" ", b"")


def test_records_after_a_failure_are_not_taken_for_those_that_failed() -> None:
    """Those may have arrived: the next ones under the same numbers would count as sent again."""
    with FakeBroker() as broker:
        publisher = PeerPublisher(broker.bootstrap)
        broker.script(ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE)
        with pytest.raises(KafkaError):
            publisher.publish([(b"k", b"lost")])
        publisher.publish([(b"k", b"next")])
        publisher.close()
        assert len(broker.seen(ApiKey.INIT_PRODUCER_ID)) == 2
        assert [one.value for one in broker.records(PROGRESS_TOPIC)] == [b"next"]
