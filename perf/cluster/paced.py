"""A producer at a fixed rate that runs beside other work, until it is stopped."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from perf import batch, requests
from perf.brokers.base import Broker
from perf.cells import PLAIN_PRODUCE, CellError
from perf.histogram import Histogram
from perf.load_thread import LoadThread
from perf.requests import Topic
from perf.spec import Partition, Run, Stream

RECORD_BYTES: Final = 1000
WINDOW_S_MAX: Final = 600.0
IN_FLIGHT: Final = 5


@dataclass(frozen=True)
class Latency:
    """From when each request was meant to be sent to its answer."""

    requests: int
    p50_us: float
    p99_us: float


class PacedProducer:
    """Records of 1 KB to a topic's only partition, acks=1, from `start` to `end`."""

    def __init__(self, broker: Broker, topic: Topic, rate: float) -> None:
        body = batch.of_records(RECORD_BYTES, timestamp_ms=time.time_ns() // 1_000_000)
        one = requests.produce(PLAIN_PRODUCE, topic, [(Partition(0), body)], acks=1)
        stream = Stream("produce", PLAIN_PRODUCE, (one,), in_flight=IN_FLIGHT, rate=rate)
        self._load = LoadThread(
            Run(broker.host, broker.port, (stream,), warm_s=0, window_s=WINDOW_S_MAX)
        )

    def start(self) -> None:
        self._load.start()

    def end(self) -> Latency:
        """Ends the load, if it was started. CellError where an answer carried an error."""
        self._load.stop()
        stream = self._load.join()["streams"][0]
        if stream["errors"] or not stream["requests"]:
            raise CellError(f"beside it: error code {stream['first_error']}")
        latency = Histogram.from_native(stream["latency"])
        p50_us, p99_us = (latency.percentile(percent) / 1e3 for percent in (50, 99))
        return Latency(stream["requests"], p50_us, p99_us)
