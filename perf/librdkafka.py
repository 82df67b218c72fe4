"""librdkafka beside the raw generator: what a user's client sees, with its batching and threads.

confluent-kafka's producer and consumer with their defaults. The client costs more CPU than the
broker here, so only the broker's CPU per GB says something about the broker; records per second say
what a Python user gets on this machine.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from perf.batch import payload
from perf.cells import MEGABYTE, Bench, CellError
from perf.process import cpu_ns

CONSUME_BATCH = 1000
QUEUE_RECORDS = 1_000_000
WAIT_S = 60.0


@dataclass(frozen=True)
class LibrdkafkaResult:
    """One produce-and-consume round of the same records."""

    broker: str
    records: int
    record_bytes: int
    produce_s: float
    consume_s: float
    produce_broker_cpu_s: float
    consume_broker_cpu_s: float

    def to_json(self) -> dict[str, Any]:
        gigabytes = self.records * self.record_bytes / 1e9
        return {
            **self.__dict__,
            "produce_records_per_s": self.records / self.produce_s,
            "produce_megabytes_per_s": gigabytes * 1e9 / MEGABYTE / self.produce_s,
            "produce_broker_cpu_s_per_gigabyte": self.produce_broker_cpu_s / gigabytes,
            "consume_records_per_s": self.records / self.consume_s,
            "consume_megabytes_per_s": gigabytes * 1e9 / MEGABYTE / self.consume_s,
            "consume_broker_cpu_s_per_gigabyte": self.consume_broker_cpu_s / gigabytes,
        }


def measure_librdkafka(bench: Bench, records: int = 200_000, size: int = 1000) -> LibrdkafkaResult:
    """Produce, flush, consume all of it, count."""
    try:
        import confluent_kafka as ck
    except ModuleNotFoundError:
        raise CellError("confluent-kafka is not installed") from None
    broker = bench.broker
    name = f"perf-rdkafka-{os.getpid()}-{time.monotonic_ns()}"
    with broker.client() as client:
        topic = client.create_topic(name, 1)
        value = payload(size)
        failed: list[str] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failed.append(str(error))

        producer = ck.Producer(
            {
                "bootstrap.servers": broker.address,
                "queue.buffering.max.messages": QUEUE_RECORDS,
                "on_delivery": delivered,
            }
        )
        cpu, began = cpu_ns(broker.pid), time.monotonic()
        for number in range(records):
            producer.produce(name, value, partition=0)
            if number % CONSUME_BATCH == 0:
                producer.poll(0)
        left = producer.flush(WAIT_S)
        produce_s, produce_cpu = time.monotonic() - began, cpu_ns(broker.pid) - cpu
        if left or failed or sum(client.offsets(topic)) != records:
            raise CellError(f"librdkafka on {broker.name}: {left} left, failed: {failed[:1]}")
        consumer = ck.Consumer({"bootstrap.servers": broker.address, "group.id": "perf"})
        consumer.assign([ck.TopicPartition(name, 0, 0)])
        cpu, began = cpu_ns(broker.pid), time.monotonic()
        got = 0
        while got < records and time.monotonic() - began < WAIT_S:
            for message in consumer.consume(CONSUME_BATCH, 1.0):
                if message.error():
                    raise CellError(f"librdkafka on {broker.name}: {message.error()}")
                got += 1
        consume_s, consume_cpu = time.monotonic() - began, cpu_ns(broker.pid) - cpu
        consumer.close()
        client.delete_topic(name)
    if got != records:
        raise CellError(f"librdkafka on {broker.name}: {got} of {records} records came back")
    return LibrdkafkaResult(
        broker.name, records, size, produce_s, consume_s, produce_cpu / 1e9, consume_cpu / 1e9
    )
