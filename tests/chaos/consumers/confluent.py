"""confluent-kafka (librdkafka)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.chaos import job as times
from tests.chaos.job import Fenced, Job
from tests.chaos.journal import ASSIGNED, COMMITTED, LOST, REFUSED, REVOKED, Journal

STRATEGIES = {"eager": "range", "cooperative": "cooperative-sticky"}


def run(job: Job, journal: Journal, stop: threading.Event) -> None:
    consumer = Consumer(_settings(job, journal))
    loop = _Loop(consumer, job, journal)
    consumer.subscribe(
        [job.topic], on_assign=loop.assigned, on_revoke=loop.revoked, on_lost=loop.lost
    )
    try:
        while not stop.is_set():
            loop.turn()
    finally:
        consumer.close()


def _settings(job: Job, journal: Journal) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": job.bootstrap,
        "client.id": job.client_id,
        "group.id": job.group,
        "partition.assignment.strategy": STRATEGIES[job.protocol],
        "session.timeout.ms": times.SESSION_MS,
        "heartbeat.interval.ms": times.HEARTBEAT_MS,
        "max.poll.interval.ms": times.POLL_MS,
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
        "enable.auto.commit": job.automatic,
        "auto.commit.interval.ms": times.AUTOMATIC_MS,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 10_000,
        "on_commit": lambda error, parts: _tell(journal, error, parts),
    }
    if job.instance:
        settings["group.instance.id"] = job.instance
    return settings


def _tell(journal: Journal, error: Any, parts: Sequence[TopicPartition]) -> None:
    if error is not None:
        journal.write(REFUSED, error.name())
        return
    taken = [f"{p.partition}:{p.offset}" for p in parts if p.error is None and p.offset >= 0]
    if taken:
        journal.write(COMMITTED, *taken)
    for part in parts:
        if part.error is not None:
            journal.write(REFUSED, part.error.name())


class _Loop:
    def __init__(self, consumer: Consumer, job: Job, journal: Journal) -> None:
        self._consumer = consumer
        self._job = job
        self._journal = journal
        self._due: dict[int, int] = {}  # processed and not committed: tried again while it is ours

    def turn(self) -> None:
        messages = self._consumer.consume(times.BATCH_RECORDS, times.POLL_S)
        offsets: dict[int, list[int]] = {}
        for message in messages:
            error = message.error()
            if error is None:
                offsets.setdefault(message.partition(), []).append(message.offset())
            elif error.code() == KafkaError._FATAL or error.fatal():
                raise Fenced(str(error))
        if offsets:
            self._journal.done(offsets.items())
            self._due |= {partition: each[-1] + 1 for partition, each in offsets.items()}
        if self._due:
            self._commit([TopicPartition(self._job.topic, p, o) for p, o in self._due.items()])

    def _commit(self, nexts: list[TopicPartition]) -> None:
        try:
            if self._job.automatic:
                self._consumer.store_offsets(offsets=nexts)
            else:
                answered = self._consumer.commit(offsets=nexts, asynchronous=False)
                _tell(self._journal, None, answered)
            self._due.clear()
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL or error.args[0].fatal():
                raise Fenced(str(error)) from error
            self._journal.write(REFUSED, error.args[0].name())

    def _forget(self, parts: Sequence[TopicPartition]) -> None:
        for part in parts:
            self._due.pop(part.partition, None)

    def assigned(self, consumer: Consumer, parts: Sequence[TopicPartition]) -> None:
        self._journal.write(ASSIGNED, *(p.partition for p in parts))

    def revoked(self, consumer: Consumer, parts: Sequence[TopicPartition]) -> None:
        self._forget(parts)
        self._journal.write(REVOKED, *(p.partition for p in parts))

    def lost(self, consumer: Consumer, parts: Sequence[TopicPartition]) -> None:
        self._forget(parts)
        self._journal.write(LOST, *(p.partition for p in parts))
