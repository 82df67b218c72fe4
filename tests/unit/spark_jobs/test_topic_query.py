"""A topic's query without Spark: how it stops, what it does with trouble of the disk."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import stream
from spark_jobs import topic_query as module
from spark_jobs.errors import JobError
from spark_jobs.files import Entry, LocalFiles
from spark_jobs.ledger import Commit, Ledger
from spark_jobs.schema import PLAIN
from spark_jobs.source import TopicState
from spark_jobs.topic_query import Setting, TopicQuery

WORK = stream.works(["orders"], 1)[0]


class Inspector:
    def describe(self, topic: str) -> TopicState:
        return TopicState("id-1", {0: (0, 5)})

    def close(self) -> None:
        pass


class FullDisk(LocalFiles):
    def entries(self, uri: str) -> list[Entry]:
        raise OSError(errno.ENOSPC, "No space left on device", uri)


class Running:
    """Spark's query: `busy` with a batch, or `stuck` for good."""

    isActive = True

    def __init__(self, *, busy: bool = False, stuck: bool = False) -> None:
        self.status = {"isTriggerActive": busy}
        self.stops = 0
        self._stuck = stuck

    def stop(self) -> None:
        self.stops += 1
        if self._stuck:
            raise TimeoutError("Stream Execution thread failed to stop\n\tat org.apache...")


class Clock:
    """As much of `time` as stopping needs."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def query(place: Path, said: list[str], files: LocalFiles | None = None) -> TopicQuery:
    unused: Any = None
    setting = Setting(
        unused, unused, Inspector(), files or LocalFiles(), str(place), str(place / "c"), 1.0,
        False, 10, 60.0, said.append, lambda name, batch_id: None,
        lambda name, batch_id, commit: None,
    )  # fmt: skip
    return TopicQuery(setting, WORK, PLAIN)


def test_a_full_disk_is_a_line_then_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.0)
    said: list[str] = []
    job = query(tmp_path, said, FullDisk())
    job.turn()
    job.turn()
    assert [line.split("; ")[0] for line in said] == [
        f"orders: file://{tmp_path}/plain/_ledger: No space left on device"
    ] * 2
    with pytest.raises(JobError, match=r"No space left on device \(3 tries in a row\)"):
        job.turn()


def test_all_queries_stop_within_one_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those between two batches at once; the others are waited for together, then stopped."""
    clock = Clock()
    monkeypatch.setattr(stream, "time", clock)
    said: list[str] = []
    running = [Running(), Running(busy=True), Running(busy=True), Running(busy=True, stuck=True)]
    queries = [query(tmp_path, said) for _ in running]
    for job, one in zip(queries, running, strict=True):
        job._query = one
    stream._stop(queries)
    assert stream.STOP_WAIT_S <= clock.now_s < 1.1 * stream.STOP_WAIT_S
    assert [one.stops for one in running] == [1, 1, 1, 1]
    assert said == ["orders: Stream Execution thread failed to stop"]


class Batches:
    """As much of a DataFrame's writer as a query needs; keeps what Spark would call."""

    def __init__(self) -> None:
        self.call: Any = None

    @property
    def writeStream(self) -> Batches:
        return self

    def foreachBatch(self, call: Any) -> Batches:
        self.call = call
        return self

    def _chained(self, *_: object, **__: object) -> Batches:
        return self

    queryName = outputMode = option = trigger = start = _chained


class Sink:
    def __init__(self, place: Path, parts: list[int] | None = None) -> None:
        self.ledger = Ledger(LocalFiles(), str(place))
        self._parts = parts
        if parts is not None:
            self.ledger.parts = lambda: parts.pop(0)  # type: ignore[method-assign]

    def write(self, batch: Any, batch_id: int, /) -> Commit | None:
        if self._parts is None:
            raise OSError(
                "\n".join(["no way", *("\tat java.base/x.y(Z.java:1)" for _ in range(9000))])
            )
        return Commit("k", "batch", 1)


def test_spark_s_message_of_a_failure_is_short(tmp_path: Path) -> None:
    """Spark puts a long text through a pattern that overflows the stack of its thread."""
    batches = Batches()
    query(tmp_path, [])._started(batches, "c", Sink(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError) as raised:
        batches.call(None, 0)
    assert str(raised.value) == "no way"
    assert raised.value.__suppress_context__


def test_maintenance_that_is_not_run_is_reminded_of(tmp_path: Path) -> None:
    said: list[str] = []
    batches = Batches()
    many = module.PARTS_MANY
    counts = [1, many - 1, many, many + 1, 2 * many - 1, 2 * many]
    query(tmp_path, said)._started(batches, "c", Sink(tmp_path, counts))  # type: ignore[arg-type]
    for number in range(6):
        batches.call(None, number)
    assert [line.split(" small")[0] for line in said] == [f"plain: {many}", f"plain: {2 * many}"]
    assert f"python -m spark_jobs.maintain --tables {tmp_path}" in said[0]
