"""Producers of the Python libraries that are under way for long: numbers, in a thread of their own.

Each is idempotent with acks=all, and has its library's defaults else: what they bear is what an
application bears. `written` and `finish` are called by the program's thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

FLUSH_S = 60.0


class Writer:
    """The thread, and what was acknowledged; a subclass writes."""

    def __init__(self, name: str, topic: str, partitions: int, rate: int) -> None:
        self._name, self._topic, self._partitions = name, topic, partitions
        self._pause_s = 1 / rate
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._acknowledged: list[int] = []
        self._errors: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def written(self) -> Mapping[str, object]:
        with self._lock:
            return {"acknowledged": len(self._acknowledged), "errors": [*self._errors]}

    def finish(self) -> Mapping[str, object]:
        self._ends.set()
        self._thread.join(FLUSH_S)
        if self._thread.is_alive():
            raise TimeoutError(f"records of {self._name} are not delivered in {FLUSH_S} s")
        return {"acknowledged": self._acknowledged, "errors": self._errors}

    def _run(self) -> None:
        try:
            self.write()
        except Exception as error:  # whatever a library raises is the answer
            self.note(-1, error)

    def write(self) -> None:
        raise NotImplementedError

    def note(self, number: int, error: object) -> None:
        with self._lock:
            if error is None:
                self._acknowledged.append(number)
            else:
                self._errors.append(f"{number}: {error}")

    def value(self, number: int) -> bytes:
        return f"{self._name} {number}".encode()


class ConfluentWriter(Writer):
    def __init__(self, bootstrap: str, **wanted: Any) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True}
        super().__init__(**wanted)

    def write(self) -> None:
        import confluent_kafka

        producer = confluent_kafka.Producer(self._settings)
        number = 0
        while not self._ends.wait(self._pause_s):
            producer.produce(
                self._topic, self.value(number), partition=number % self._partitions,
                on_delivery=lambda error, _, number=number: self.note(number, error),
            )  # fmt: skip
            producer.poll(0)
            number += 1
        producer.flush(FLUSH_S)


class AioKafkaWriter(Writer):
    def __init__(self, bootstrap: str, **wanted: Any) -> None:
        self._bootstrap = bootstrap
        super().__init__(**wanted)

    def write(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        import aiokafka

        sent: list[asyncio.Future[Any]] = []
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, enable_idempotence=True
        ) as producer:
            while not self._ends.is_set():
                number = len(sent)
                delivery = await producer.send(
                    self._topic, self.value(number), partition=number % self._partitions
                )
                delivery.add_done_callback(self._noting(number))
                sent.append(delivery)
                await asyncio.sleep(self._pause_s)
            await asyncio.wait(sent)

    def _noting(self, number: int) -> Callable[[asyncio.Future[Any]], None]:
        return lambda delivery: self.note(number, delivery.exception())


WRITE: Mapping[str, Callable[..., Writer]] = {
    "confluent-kafka": ConfluentWriter,
    "aiokafka": AioKafkaWriter,
}
