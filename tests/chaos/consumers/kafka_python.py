"""kafka-python."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import FencedInstanceIdError, KafkaError

from tests.chaos import job as times
from tests.chaos.job import Fenced, Job
from tests.chaos.journal import ASSIGNED, COMMITTED, LOST, REFUSED, REVOKED, Journal

STRATEGIES = {"eager": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}


def run(job: Job, journal: Journal, stop: threading.Event) -> None:
    consumer = KafkaConsumer(**_settings(job))
    try:
        consumer.subscribe([job.topic], listener=_Listener(journal))
        while not stop.is_set():
            _turn(consumer, job, journal)
    except FencedInstanceIdError as error:
        raise Fenced(str(error)) from error
    finally:
        consumer.close()


def _settings(job: Job) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": job.bootstrap,
        "client_id": job.client_id,
        "group_id": job.group,
        "partition_assignment_strategy": [STRATEGIES[job.protocol]],
        "session_timeout_ms": times.SESSION_MS,
        "heartbeat_interval_ms": times.HEARTBEAT_MS,
        "max_poll_interval_ms": times.POLL_MS,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": job.automatic,
        "auto_commit_interval_ms": times.AUTOMATIC_MS,
        "max_poll_records": times.BATCH_RECORDS,
        "reconnect_backoff_max_ms": 500,
    }
    if job.instance:
        settings["group_instance_id"] = job.instance
    return settings


def _turn(consumer: Any, job: Job, journal: Journal) -> None:
    try:
        batches = consumer.poll(timeout_ms=int(times.POLL_S * 1000))
    except FencedInstanceIdError:
        raise
    except KafkaError as error:
        journal.write(REFUSED, type(error).__name__)
        return
    if not batches:
        return
    journal.done((tp.partition, [r.offset for r in records]) for tp, records in batches.items())
    if job.automatic:
        return
    nexts = {
        TopicPartition(job.topic, tp.partition): OffsetAndMetadata(records[-1].offset + 1, "", -1)
        for tp, records in batches.items()
    }
    try:
        consumer.commit(nexts, timeout_ms=10_000)
    except FencedInstanceIdError:
        raise
    except KafkaError as error:
        journal.write(REFUSED, type(error).__name__)
    else:
        journal.write(COMMITTED, *(f"{tp.partition}:{o.offset}" for tp, o in nexts.items()))


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        self._journal.write(ASSIGNED, *sorted(p.partition for p in assigned))

    def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        self._journal.write(REVOKED, *sorted(p.partition for p in revoked))

    def on_partitions_lost(self, lost: Collection[Any]) -> None:
        self._journal.write(LOST, *sorted(p.partition for p in lost))
