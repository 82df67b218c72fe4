"""A copier by aiokafka: see the package.

Its transactions name the group alone, without the member's generation: a member that was replaced
is not refused. So there is one of them in a group.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import aiokafka
from aiokafka.errors import KafkaError, ProducerFenced

from tests.exactly_once import copiers
from tests.exactly_once.copiers import COMMITTED, ENDED_BY_AN_ERROR, OFFSETS, SENT, TAKEN

RECORDS_MAX: Final = 50
POLL_MS: Final = 100
TIMEOUT_S: Final = 60.0
SESSION_MS: Final = 2_000


async def step(name: str) -> None:
    """Heartbeats go on meanwhile."""
    await asyncio.get_running_loop().run_in_executor(None, copiers.step, name)


async def copy(bootstrap: str, id: str, group: str, source: str, target: str) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=id, transaction_timeout_ms=10_000
    )
    consumer = aiokafka.AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=SESSION_MS // 4,
    )
    await asyncio.wait_for(producer.start(), TIMEOUT_S)  # ends what the last one left open
    await asyncio.wait_for(consumer.start(), TIMEOUT_S)
    while True:
        taken = await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_MAX)
        if not taken:
            continue
        await producer.begin_transaction()
        await step(TAKEN)
        try:
            await asyncio.wait_for(_copied(producer, taken, group, target), TIMEOUT_S)
        except ProducerFenced:
            raise
        except KafkaError:
            await asyncio.wait_for(producer.abort_transaction(), TIMEOUT_S)
            await _go_back(consumer)
        else:
            await step(COMMITTED)


async def _copied(producer: Any, taken: Any, group: str, target: str) -> None:
    sent = [
        await producer.send(target, each.value, partition=each.partition)
        for records in taken.values()
        for each in records
    ]
    await asyncio.gather(*sent)
    await step(SENT)
    offsets = {place: records[-1].offset + 1 for place, records in taken.items()}
    await producer.send_offsets_to_transaction(offsets, group)
    await step(OFFSETS)
    await producer.commit_transaction()


async def _go_back(consumer: Any) -> None:
    for place in consumer.assignment():
        committed = await consumer.committed(place)
        if committed is None:
            await consumer.seek_to_beginning(place)
        else:
            consumer.seek(place, committed)


def main() -> int:
    try:
        asyncio.run(copy(*sys.argv[1:]))
    except (KafkaError, TimeoutError) as error:
        print(repr(error), file=sys.stderr)
    return ENDED_BY_AN_ERROR


if __name__ == "__main__":
    sys.exit(main())
