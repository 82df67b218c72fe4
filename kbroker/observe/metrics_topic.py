"""metrics.topic.enable=true: a thread that writes the broker's figures to `__kbroker_metrics`.

    every metrics.topic.interval.ms: sample -> queue -> our own client -> our own listener

It goes the way of any client, so what holds for records holds for these: the leader may be another
broker, acks=all, an idempotent producer. The thread is its own because our client blocks, and so
that neither the control loop nor the scheduler waits for it (docs/adr/0014).

When the topic cannot take records (its leader is away, a disk is full), they wait in a queue of
bounded length; the oldest are dropped and counted, and nothing else notices. After a failed attempt
the producer is made anew, so a round may be written twice; `run_ms` and `sequence` tell.

The main thread starts and stops it; `stop` has one last round written, so that counts over the
topic add up for a run that ended in order. Lock: one, for the thread's sleep.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.clock import NS_PER_MS, Clock, let_go_of_gil
from kbroker.errors import KafkaError, UserError
from kbroker.limits import (
    METRICS_SAMPLES_WAITING_MAX,
    METRICS_WRITE_TIMEOUT_MS,
)
from kbroker.metrics.samples import OFTEN_S, SELDOM_S, TOPIC, TOPIC_CONFIGS
from kbroker.observe.metrics_sampler import Sample, Sampler, Source
from kbroker.own_thread import OwnThread
from kbroker.peer.own_login import own_login

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.security.client_login import ClientLogin

logger: Final = logging.getLogger("kbroker.metrics")

THREAD_NAME: Final = "kbroker-metrics"
_ROUNDS_PER_SLOW_ONE: Final = SELDOM_S // OFTEN_S
_CLIENT_ID: Final = "kbroker-metrics"


class Writer(Protocol):
    """Where samples go; whatever fails is a KafkaError, a UserError or an OSError."""

    def write(self, samples: Sequence[Sample]) -> None: ...
    def close(self) -> None: ...


class MetricsTopic:
    """`start` and `stop`, each once."""

    def __init__(
        self,
        sampler: Sampler,
        connect: Callable[[], Writer],
        clock: Clock,
        interval_ms: int = OFTEN_S * 1000,
    ) -> None:
        self._interval_ns = interval_ms * NS_PER_MS
        self._sampler = sampler
        self._connect = connect
        self._clock = clock
        self._waiting: deque[Sample] = deque()
        self._writer: Writer | None = None
        self._ending = False
        self._changed = threading.Condition()
        self.thread: Final = OwnThread(THREAD_NAME, self._work)
        self.written = 0
        self.dropped = 0
        self.failures = 0
        self._failing = False

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify()
        self.thread.await_end()

    def _work(self) -> None:
        rounds = 0
        due_ns = self._clock.monotonic_ns()
        ending = False
        while not ending:
            due_ns += self._interval_ns
            now_ns = self._clock.monotonic_ns()
            if due_ns < now_ns:  # a write took longer: the rounds that were missed stay so
                due_ns = now_ns + self._interval_ns
            ending = not self._sleep_until(due_ns)
            rounds += 1
            try:
                self._sample(seldom=ending or rounds % _ROUNDS_PER_SLOW_ONE == 0)
                self._write()
            except Exception as error:
                self.thread.failures.note("a round of metrics", error)
        self._close()

    def _sleep_until(self, due_ns: int) -> bool:
        """False once the end was asked for."""
        with self._changed:
            while not self._ending and self._clock.monotonic_ns() < due_ns:
                self._clock.wait_until(self._changed, due_ns)
            return not self._ending

    def _sample(self, *, seldom: bool) -> None:
        for sample in self._sampler.round(seldom=seldom, dropped=self.dropped):
            if len(self._waiting) >= METRICS_SAMPLES_WAITING_MAX:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append(sample)
            let_go_of_gil()

    def _write(self) -> None:
        try:
            if self._writer is None:
                self._writer = self._connect()
            self._writer.write(self._waiting)
        except (KafkaError, UserError, OSError) as error:
            self.failures += 1
            self._close()
            if not self._failing:
                logger.warning("metrics cannot be written to %s: %s", TOPIC, error)
            self._failing = True
            return
        if self._failing:
            logger.info("metrics are written to %s again, %d were dropped", TOPIC, self.dropped)
        self._failing = False
        self.written += len(self._waiting)
        self._waiting.clear()

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class PeerWriter:
    """Our own client, on this thread: makes the topic if it is missing, then produces."""

    def __init__(self, bootstrap: str, login: ClientLogin | None = None) -> None:
        from kbroker.compression import Codec
        from kbroker.peer.messages import NewTopic
        from kbroker.peer.publisher import Publisher

        # gzip: every consumer can read it without another library.
        self._publisher = Publisher(
            bootstrap, NewTopic(TOPIC, partitions=1, configs=TOPIC_CONFIGS), client_id=_CLIENT_ID,
            timeout_ms=METRICS_WRITE_TIMEOUT_MS, codec=Codec.GZIP, login=login,
        )  # fmt: skip

    def write(self, samples: Sequence[Sample]) -> None:
        from kbroker.protocol.record_batch import Record

        self._publisher.send(
            Record(sample.key, sample.value, timestamp_ms=sample.event_time_ms)
            for sample in samples
        )

    def close(self) -> None:
        self._publisher.close()


def metrics_topic_of(
    source: Source, config: BrokerConfig, clock: Clock, address: str
) -> MetricsTopic:
    """Of a broker with these figures and this listener, by its settings."""
    sampler = Sampler(source, config.node_id, clock)
    interval_ms: int = config["metrics.topic.interval.ms"]
    return MetricsTopic(sampler, lambda: PeerWriter(address, own_login(config)), clock, interval_ms)
