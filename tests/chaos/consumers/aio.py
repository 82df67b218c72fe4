"""aiokafka. Its rebalances run beside the reading task: a lock keeps a batch and them apart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from tests.chaos import job as times
from tests.chaos.job import Job
from tests.chaos.journal import ASSIGNED, COMMITTED, REFUSED, REVOKED, Journal

WAIT_S: Final = 5.0


def run(job: Job, journal: Journal, stop: threading.Event) -> None:
    asyncio.run(_consume(job, journal, stop))


async def _consume(job: Job, journal: Journal, stop: threading.Event) -> None:
    lock = asyncio.Lock()
    consumer = AIOKafkaConsumer(**_settings(job))
    consumer.subscribe([job.topic], listener=_Listener(journal, lock))
    while True:
        try:
            await consumer.start()
            break
        except KafkaError as error:  # the broker may be away just now
            journal.write(REFUSED, type(error).__name__)
            if stop.is_set():
                return
            await asyncio.sleep(times.POLL_S)
    try:
        while not stop.is_set():
            await _turn(consumer, job, journal, lock)
            await asyncio.sleep(0)
    finally:
        await consumer.stop()


def _settings(job: Job) -> dict[str, Any]:
    return {
        "bootstrap_servers": job.bootstrap,
        "client_id": job.client_id,
        "group_id": job.group,
        "group_instance_id": job.instance,
        "partition_assignment_strategy": [RangePartitionAssignor],
        "session_timeout_ms": times.SESSION_MS,
        "heartbeat_interval_ms": times.HEARTBEAT_MS,
        "max_poll_interval_ms": times.POLL_MS,
        "rebalance_timeout_ms": times.POLL_MS,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": job.automatic,
        "auto_commit_interval_ms": times.AUTOMATIC_MS,
    }


async def _turn(consumer: AIOKafkaConsumer, job: Job, journal: Journal, lock: asyncio.Lock) -> None:
    how = {"timeout_ms": int(times.POLL_S * 1000), "max_records": times.BATCH_RECORDS}
    try:
        # Without the lock: it waits for a rebalance, and that for other members.
        batches = await asyncio.wait_for(consumer.getmany(**how), WAIT_S)
        async with lock:
            assigned = consumer.assignment()
            mine = {tp: records for tp, records in batches.items() if tp in assigned}
            if not mine:
                return
            offsets = {tp.partition: [r.offset for r in rs] for tp, rs in mine.items()}
            journal.done(offsets.items())
            if job.automatic:
                return
            nexts = {TopicPartition(job.topic, p): o[-1] + 1 for p, o in offsets.items()}
            await asyncio.wait_for(consumer.commit(nexts), WAIT_S)
            journal.write(COMMITTED, *(f"{tp.partition}:{o}" for tp, o in nexts.items()))
    except TimeoutError:
        return
    except KafkaError as error:
        journal.write(REFUSED, type(error).__name__)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, journal: Journal, lock: asyncio.Lock) -> None:
        self._journal = journal
        self._lock = lock

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        self._journal.write(ASSIGNED, *sorted(p.partition for p in assigned))

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        async with self._lock:
            self._journal.write(REVOKED, *sorted(p.partition for p in revoked))
