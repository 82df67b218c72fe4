"""The C snapshot of the metadata as Python fills it; see _topic_table.pyx."""

from collections.abc import Iterable, Sequence
from typing import Protocol, Self, type_check_only

from typing_extensions import disjoint_base

from kbroker.replica._replica import Replica

@disjoint_base
class TopicTable:
    def __new__(cls) -> Self: ...
    # added: (name, topic id of 16 bytes, internal, logs by partition index); removed: topic ids
    def publish(
        self,
        added: list[tuple[str, bytes, bool, list[Replica | None]]],
        removed: list[bytes],
    ) -> None: ...
    # rows: new or changed topics in the order of their names; removed: names;
    # brokers: (node id, (host, port) or None by listener, rack) in the order of the ids
    def show(
        self,
        rows: Sequence[ViewRow],
        removed: Sequence[str],
        brokers: Sequence[tuple[int, Sequence[tuple[str, int] | None], str | None]],
        cluster_id: str,
    ) -> None: ...
    def hide(self) -> None: ...
    def reclaim(self) -> int: ...

@type_check_only
class _Partition(Protocol):
    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def isr(self) -> tuple[int, ...]: ...

@disjoint_base
class ViewRow:
    def __new__(cls, name: str, topic_id: bytes, internal: bool, partition_count: int) -> Self: ...
    def fill(self, partitions: Iterable[_Partition]) -> None: ...
