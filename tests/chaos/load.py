"""The producer: `python -m tests.chaos.load BOOTSTRAP TOPIC PARTITIONS RATE JOURNAL`.

It goes on until SIGTERM.

Idempotent, acks=all, retries for as long as it takes. Each record's offset is written down when the
broker has answered. RATE is records a second, over all partitions in turn.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from tests.chaos.journal import ENDED, PRODUCED, Journal

STEP_S: Final = 0.05
GIVE_UP_MS: Final = 120_000
VALUE: Final = b"x" * 100


def main() -> int:
    bootstrap, topic, partitions, rate, path = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    journal = Journal(Path(path))
    failed: list[str] = []
    answered: list[tuple[object, ...]] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            answered.append((PRODUCED, message.partition(), message.offset()))
        else:
            failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "chaos-load",
            "enable.idempotence": True,
            "linger.ms": 20,
            "message.timeout.ms": GIVE_UP_MS,
            "reconnect.backoff.max.ms": 500,
        }
    )
    started, sent = time.monotonic(), 0
    while not stop.is_set():
        due = int((time.monotonic() - started) * float(rate))
        for number in range(sent, due):
            while True:
                try:
                    producer.produce(
                        topic, VALUE, partition=number % int(partitions), on_delivery=delivered
                    )
                    break
                except BufferError:
                    producer.poll(STEP_S)
        sent = max(sent, due)
        producer.poll(STEP_S)
        _write(journal, answered)
    left = producer.flush(GIVE_UP_MS / 1000)
    _write(journal, answered)
    if left or failed:
        print(f"{left} records without an answer, {len(failed)} failed: {failed[:3]}")
        return 1
    journal.write(ENDED)
    return 0


def _write(journal: Journal, answered: list[tuple[object, ...]]) -> None:
    if answered:
        journal.write_many(answered)
        answered.clear()


if __name__ == "__main__":
    sys.exit(main())
