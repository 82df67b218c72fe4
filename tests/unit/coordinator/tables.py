"""GroupTables over one log: new, loaded, and what they tell."""

from __future__ import annotations

from typing import Any

from kbroker.coordinator.group._groups import CommittedOffset, GroupTable
from tests.support.led_log import LedLog

ID = bytes(range(16))


def committed(
    partition: int, offset: int, metadata: str = "", *, topic: str = "orders", expire_ms: int = -1
) -> CommittedOffset:
    topic_id = ID if expire_ms < 0 else None  # a record that expires by itself has no room for it
    return CommittedOffset(topic, partition, offset, -1, metadata, 1_000, expire_ms, topic_id)


class Listener:
    """Notes who was woken, and what was waited for."""

    def __init__(self) -> None:
        self.woken: list[Any] = []
        self.waits: list[tuple[Any, ...]] = []

    def wake(self, replica: object) -> None:
        self.woken.append(replica)

    def await_followers(self, *how: Any) -> None:
        self.waits.append(how)


def opened(log: LedLog, listener: Listener | None = None) -> GroupTable:
    table = GroupTable(listener)
    table.set_partition_count(1)
    table.open(0, log)
    table.activate(0)
    return table


def reloaded(log: LedLog) -> GroupTable:
    table = GroupTable()
    table.set_partition_count(1)
    table.open(0, log)
    data = log.read(0, to_log_end=True)
    used, next_offset, _, left_out = table.load_batches(0, data)
    assert not left_out
    assert (used, next_offset) == (len(data), log.log_end_offset if data else -1)
    table.activate(0)
    return table


def fetched(table: GroupTable, *partitions: int, group: str = "g") -> list[int]:
    """The offsets that OffsetFetch tells, -1 for none; no partitions: of all that there are."""
    asked = [("orders", b"".join(each.to_bytes(4) for each in partitions))] if partitions else None
    code, topics, _ = table.fetch(group, asked, flexible=False, leader_epochs=False)
    assert code == 0
    answered: list[int] = []
    for _, data in topics:
        at = 4
        for _ in range(int.from_bytes(data[:4])):
            answered.append(int.from_bytes(data[at + 4 : at + 12], signed=True))
            at += 14 + int.from_bytes(data[at + 12 : at + 14]) + 2
        assert at == len(data)
    return answered
