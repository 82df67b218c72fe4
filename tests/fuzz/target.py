"""The broker under the fuzzer: its configuration, its topics, what the kernel says of it.

Apache Kafka's default settings, groups' among them. Legitimate growth is kept out of the figures:
no topics by being named, names of topics that come and go from a small set, and a janitor that
deletes whatever else a frame has managed to create.
"""

from __future__ import annotations

import datetime
import socket
import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kio.serial import entity_reader

from kbroker.types import ApiKey
from tests.fuzz.corpus import MADE, TARGET_PARTITIONS, TARGETS, VICTIM, Ids
from tests.fuzz.mutate import framed
from tests.support import schemas
from tests.support.record_batches import build_batch

NEIGHBOUR: Final = "neighbour"
# Each with the type of coordinator that a request for it names.
INTERNAL_TOPICS: Final[Mapping[str, int]] = {"__consumer_offsets": 0, "__transaction_state": 1}
OVERRIDES: Final[Mapping[str, object]] = {
    "auto.create.topics.enable": False,
    "log.roll.ms": 2**63 - 1,  # wrong timestamps would have every log roll
    "log.segment.bytes": 64 << 20,
}
_SEEDED_BATCHES: Final = 40
_APPEARS_S: Final = 60.0
_VICTIM_PARTITIONS_MAX: Final = 16
_CREATE, _DELETE, _METADATA = 7, 5, 12  # the versions used here


class Admin:
    """An ordinary client with one connection, by kio."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=60)
        self._stream = self._socket.makefile("rb")

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        module = schemas.request_module(key, version)
        body = schemas.encode(getattr(module, f"{key.label}Request")(**fields))
        head = struct.pack(">hhihs", key, version, 5, 1, b"a") + b"\0"  # all flexible
        self._socket.sendall(framed(head + body))
        (size,) = struct.unpack(">i", self._stream.read(4))
        answer = getattr(schemas.response_module(key, version), f"{key.label}Response")
        return entity_reader(answer)(self._stream.read(size), 5)[0]

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        module = schemas.request_module(ApiKey.CREATE_TOPICS, _CREATE)
        topic = module.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(),
            configs=tuple(module.CreatableTopicConfig(name=k, value=v) for k, v in configs.items()),
        )  # fmt: skip
        (result,) = self.ask(
            ApiKey.CREATE_TOPICS, _CREATE, topics=(topic,), timeout=_TEN_SECONDS,
            validate_only=False,
        ).topics  # fmt: skip
        if int(result.error_code) not in (0, 36):
            raise RuntimeError(f"{name} was not created: {result}")

    def delete(self, names: Sequence[str]) -> None:
        self.ask(ApiKey.DELETE_TOPICS, _DELETE, topic_names=tuple(names), timeout=_TEN_SECONDS)

    def topics(self) -> dict[str, tuple[uuid.UUID, int]]:
        answer = self.ask(
            ApiKey.METADATA, _METADATA, topics=None, allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )  # fmt: skip
        return {t.name: (t.topic_id, len(t.partitions)) for t in answer.topics}

    def produce(self, name: str, partition: int, batch: bytes) -> None:
        module = schemas.request_module(ApiKey.PRODUCE, 9)
        data = module.PartitionProduceData(index=partition, records=batch)
        self.ask(
            ApiKey.PRODUCE, 9, transactional_id=None, acks=1, timeout=_TEN_SECONDS,
            topic_data=(module.TopicProduceData(name=name, partition_data=(data,)),),
        )  # fmt: skip


_TEN_SECONDS: Final = datetime.timedelta(seconds=10)


def prepare(admin: Admin) -> Ids:
    """The topics that the frames name, some with records in them."""
    for name, configs in {**TARGETS, VICTIM: {}, NEIGHBOUR: {}}.items():
        admin.create(name, TARGET_PARTITIONS, configs)
    for name in ("target-plain", VICTIM):
        for partition in range(TARGET_PARTITIONS):
            for number in range(_SEEDED_BATCHES):
                admin.produce(name, partition, build_batch([b"seed-%d" % number] * 3))
    _have_internal_topics(admin)
    return Ids({name: topic_id for name, (topic_id, _) in admin.topics().items()})


def _have_internal_topics(admin: Admin) -> None:
    """They come with the first request for a coordinator: before anything is counted."""
    until = time.monotonic() + _APPEARS_S
    while missing := INTERNAL_TOPICS.keys() - admin.topics().keys():
        for name in missing:
            kind = INTERNAL_TOPICS[name]
            admin.ask(ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=("group-a",))
        if time.monotonic() > until:
            raise RuntimeError(f"{', '.join(sorted(missing))}: not created")
        time.sleep(0.01)


def tidy(admin: Admin, *, all_made: bool = False) -> list[str]:
    """Deletes what hostile frames have created; they stay out of the figures that way."""
    kept = {*TARGETS, NEIGHBOUR, *INTERNAL_TOPICS} | (set() if all_made else set(MADE))
    topics = admin.topics()
    gone = [name for name in topics if name not in kept and name != VICTIM]
    if VICTIM in topics and topics[VICTIM][1] > _VICTIM_PARTITIONS_MAX:
        gone.append(VICTIM)
    if gone:
        admin.delete(gone)
    if VICTIM in gone or VICTIM not in topics:
        admin.create(VICTIM, TARGET_PARTITIONS, {})
    for name in TARGETS.keys() - topics.keys():
        admin.create(name, TARGET_PARTITIONS, TARGETS[name])
    return gone
