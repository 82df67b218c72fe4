"""The C snapshot of the metadata as Python fills it; see _topic_table.pyx."""

from typing import Self

from typing_extensions import disjoint_base

from kbroker._log import PartitionLog

@disjoint_base
class TopicTable:
    def __new__(cls) -> Self: ...
    # added: (name, topic id of 16 bytes, internal, logs by partition index); removed: topic ids
    def publish(
        self,
        added: list[tuple[str, bytes, bool, list[PartitionLog | None]]],
        removed: list[bytes],
    ) -> None: ...
