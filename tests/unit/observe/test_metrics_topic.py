"""The metrics topic's thread: rounds by the clock, a bounded queue, a last round at the end."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kbroker import limits
from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.observe import metrics_topic
from kbroker.observe.metrics_sampler import Sample
from kbroker.observe.metrics_topic import MetricsTopic


class FakeSampler:
    def __init__(self) -> None:
        self.rounds: list[bool] = []
        self.samples_a_round = 2

    def round(self, *, seldom: bool, dropped: int = 0) -> Iterator[Sample]:
        self.rounds.append(seldom)
        for number in range(self.samples_a_round):
            yield Sample(b"1", f"{len(self.rounds)}.{number}".encode(), 0)


class FakeWriter:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.error: Exception | None = None
        self.connected = 0
        self.closed = 0

    def connect(self) -> FakeWriter:
        self.connected += 1
        return self

    def write(self, samples: Sequence[Sample]) -> None:
        if self.error is not None:
            raise self.error
        self.written += [sample.value for sample in samples]

    def close(self) -> None:
        self.closed += 1


class Feed:
    def __init__(self, interval_ms: int = 15_000) -> None:
        self.sampler = FakeSampler()
        self.writer = FakeWriter()
        self.clock = ManualClock()
        sampler: Any = self.sampler
        self.topic = MetricsTopic(sampler, self.writer.connect, self.clock, interval_ms)
        self.topic.start()
        assert self.clock.wait_for_sleepers(1)

    def pass_s(self, seconds: int) -> None:
        self.clock.advance(seconds * 1000)
        assert self.clock.wait_for_sleepers(1)


@pytest.fixture
def feed() -> Iterator[Feed]:
    feed = Feed()
    yield feed
    feed.topic.stop()
    assert feed.writer.connected == feed.writer.closed


def test_every_second_round_is_a_slow_one(feed: Feed) -> None:
    feed.pass_s(14)
    assert feed.sampler.rounds == []
    feed.pass_s(1)
    assert feed.sampler.rounds == [False]
    feed.pass_s(15)
    feed.pass_s(15)
    assert feed.sampler.rounds == [False, True, False]
    assert feed.writer.written == [b"1.0", b"1.1", b"2.0", b"2.1", b"3.0", b"3.1"]
    assert feed.writer.connected == 1


def test_rounds_that_were_missed_are_not_made_up_for() -> None:
    """A write that takes longer than the period, which may be a second."""
    feed = Feed(interval_ms=1_000)
    feed.pass_s(1)
    feed.pass_s(10)
    feed.pass_s(1)
    assert feed.sampler.rounds == [False, True, False]
    feed.topic.stop()


def test_the_end_writes_a_last_round_of_everything(feed: Feed) -> None:
    feed.topic.stop()
    assert feed.sampler.rounds == [True]
    assert feed.writer.written == [b"1.0", b"1.1"]


def test_samples_that_cannot_be_written_wait(feed: Feed, caplog: pytest.LogCaptureFixture) -> None:
    feed.writer.error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with caplog.at_level(logging.INFO, "kbroker.metrics"):
        feed.pass_s(15)
        feed.pass_s(15)
        feed.writer.error = None
        feed.pass_s(15)
    assert feed.writer.written == [b"1.0", b"1.1", b"2.0", b"2.1", b"3.0", b"3.1"]
    assert feed.writer.connected == 3  # a new producer after each failure
    assert (feed.topic.failures, feed.topic.dropped, feed.topic.written) == (2, 0, 6)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_the_queue_is_bounded_and_the_oldest_give_way(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_topic, "METRICS_SAMPLES_WAITING_MAX", 3)
    assert limits.METRICS_SAMPLES_WAITING_MAX > 3
    feed.writer.error = OSError("no route")
    feed.pass_s(15)
    feed.pass_s(15)
    feed.writer.error = None
    feed.pass_s(15)
    assert feed.writer.written == [b"2.1", b"3.0", b"3.1"]
    assert feed.topic.dropped == 3


def test_a_round_that_breaks_is_not_the_last(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feed.sampler, "samples_a_round", None)
    feed.pass_s(15)
    assert "a round of metrics failed" in caplog.text
    monkeypatch.setattr(feed.sampler, "samples_a_round", 1)
    feed.pass_s(15)
    assert feed.writer.written == [b"2.0"]
