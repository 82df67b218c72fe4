"""Transactional produces and a coordinator that a test answers by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from tests.support.record_batches import build_batch
from tests.unit.engine.following import LONG_MS
from tests.unit.engine.wire import Produced, produce_frame, produced_in
from tests.unit.net.harness import Client, Topic, eventually

TRANSACTIONAL: Final = 0x10
PRODUCER: Final = 7
ID: Final = "x"


def batch(
    sequence: int = 0, *, epoch: int = 0, producer: int = PRODUCER, codec: str = "none"
) -> bytes:
    return build_batch(
        [b"v"] * 2, producer_id=producer, producer_epoch=epoch, base_sequence=sequence,
        attributes=TRANSACTIONAL, codec=codec,
    )  # fmt: skip


PLAIN: Final = build_batch([b"v"])


@dataclass
class Asked:
    transactional_id: str
    producer_id: int
    epoch: int
    partitions: list[TopicPartition]
    adds: bool
    done: Callable[[dict[TopicPartition, ErrorCode]], None]

    def answer(self, code: ErrorCode = ErrorCode.NONE, **codes: ErrorCode) -> None:
        """`codes` by partition, as p0=."""
        self.done({each: codes.get(f"p{each.partition}", code) for each in self.partitions})


@dataclass
class Coordinator:
    asked: list[Asked] = field(default_factory=list)

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int,
        partitions: Sequence[TopicPartition], *, adds: bool, done: Any,
    ) -> None:  # fmt: skip
        self.asked.append(Asked(transactional_id, producer_id, epoch, [*partitions], adds, done))

    def next(self) -> Asked:
        eventually(lambda: self.asked, "the coordinator is asked")
        return self.asked.pop(0)


def send(
    client: Client,
    *batches: tuple[Topic, dict[int, bytes]],
    version: int = 9,
    acks: int = -1,
    transactional_id: str | None = ID,
    correlation_id: int = 1,
) -> None:
    client.send(
        produce_frame(
            version,
            batches,
            acks=acks,
            timeout_ms=LONG_MS,
            transactional_id=transactional_id,
            correlation_id=correlation_id,
        )
    )


def received(client: Client, version: int = 9) -> list[Produced]:
    return list(produced_in(version, client.receive())[1].values())


def codes(client: Client, version: int = 9) -> list[int]:
    return [each.error for each in received(client, version)]


def ends(topic: Topic) -> list[int]:
    return [log.log_end_offset for log in topic.logs]
