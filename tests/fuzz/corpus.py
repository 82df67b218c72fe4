"""The sound frames that the fuzzer starts from: every API and version that this broker serves.

Which those are is read from `protocol/versions.py`, so an API that is added is fuzzed from then on.
Messages are filled by the names of their fields (topics that are there, times that do not wait,
`validate_only` where an answer could destroy what the other frames need); Produce frames are made
without their batch, which `batches` supplies.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import struct
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, get_args, get_origin

from kio.serial import entity_writer

from kbroker.protocol.versions import SERVED, is_flexible
from kbroker.types import ApiKey
from tests.fuzz.schema import Array, Spot, Tracer, stripped
from tests.support import schemas

CLIENT_ID: Final = b"fuzz"
PRODUCE: Final = int(ApiKey.PRODUCE)
FETCH: Final = int(ApiKey.FETCH)
API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
DELETE_TOPICS: Final = int(ApiKey.DELETE_TOPICS)

# The topics of a fuzzed broker: what their configuration makes of a batch is a path of its own.
TARGETS: Final[Mapping[str, Mapping[str, str]]] = {
    "target-plain": {},
    "target-append-time": {"message.timestamp.type": "LogAppendTime"},
    "target-compacted": {"cleanup.policy": "compact"},
    "target-repacked": {"compression.type": "lz4"},
}
# Configured, cut and deleted from by the frames; nothing else depends on it.
VICTIM: Final = "victim-of-changes"
MADE: Final = tuple(f"made-{number}" for number in range(8))
TARGET_PARTITIONS: Final = 2
ABSENT: Final = "no-such-topic"
ABSENT_ID: Final = uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF)

# How often an API is drawn, of 1,000; the others share what is left.
WEIGHTS: Final[Mapping[int, int]] = {PRODUCE: 620, FETCH: 200}
CHURN_WEIGHT: Final = 0.004  # frames that create or delete for good: each is a commit with an fsync


# The other frames do not depend on changes by these.
_NAMES: Final[Mapping[ApiKey, tuple[str, ...]]] = {
    ApiKey.DELETE_TOPICS: (ABSENT,),
    ApiKey.CREATE_PARTITIONS: (VICTIM, ABSENT),
    ApiKey.DELETE_RECORDS: (VICTIM, ABSENT),
    ApiKey.ALTER_CONFIGS: (VICTIM, ABSENT),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (VICTIM, ABSENT),
}


class Template(NamedTuple):
    """A sound frame without its size. Produce ones are cut at the batch: `data` ends before the
    records' length, `tail` is what follows the records; `whole` has null records there. `arrays`
    are places in `whole`."""

    key: int
    version: int
    flexible: bool
    data: bytes
    spots: tuple[Spot, ...]
    header_spots: tuple[Spot, ...]
    whole: bytes
    arrays: tuple[Array, ...]
    tail: bytes = b""
    target: str = ""


class Ids(NamedTuple):
    """Topic ids of the broker under test, by name."""

    by_name: Mapping[str, uuid.UUID]

    def __getitem__(self, name: str) -> uuid.UUID:  # type: ignore[override]
        return self.by_name.get(name, ABSENT_ID)


def header(key: int, version: int) -> tuple[bytearray, list[Spot]]:
    data = bytearray(struct.pack(">hhi", key, version, 0))
    spots = [Spot(0, 2, "2"), Spot(2, 4, "2"), Spot(4, 8, "4"), Spot(8, 10, "length16")]
    data += struct.pack(">h", len(CLIENT_ID)) + CLIENT_ID
    spots.append(Spot(10, len(data), "text"))
    if is_flexible(key, version):
        spots.append(Spot(len(data), len(data) + 1, "tags"))
        data.append(0)
    return data, spots


def template(entity: Any) -> Template:
    key, version = int(entity.__api_key__), int(entity.__version__)
    head, header_spots = header(key, version)
    tracer = Tracer(entity.__flexible__, len(head))
    tracer.entity(entity)
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    body = bytes(tracer.data[len(head) :])
    if body != out.getvalue():
        raise AssertionError(f"the map of {type(entity).__name__} v{version} is not kio's")
    return Template(
        key, version, entity.__flexible__, bytes(head) + body, tuple(tracer.spots),
        tuple(header_spots), bytes(head) + body, tuple(tracer.arrays),
    )  # fmt: skip


def templates(ids: Ids) -> dict[int, list[Template]]:
    """By API key; those of Produce are cut at the batch."""
    out: dict[int, list[Template]] = {}
    for key, served in SERVED.items():
        out[int(key)] = [
            each for version in range(served.min, served.max + 1) for each in _of(key, version, ids)
        ]
    return out


def churn(ids: Ids) -> list[Template]:
    """Topics are created and deleted for good: few names, so that what they leave is bounded."""
    out = []
    for key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS):
        for name in MADE:
            out.append(template(_filled(key, SERVED[key].max, ids, name, churns=True)))
    return out


def _of(key: ApiKey, version: int, ids: Ids) -> Iterator[Template]:
    if key is ApiKey.PRODUCE:
        for name in (*TARGETS, ABSENT):
            yield _cut(template(_filled(key, version, ids, name)), name)
        return
    for name in _NAMES.get(key, ("target-plain", ABSENT, VICTIM)):
        yield template(_filled(key, version, ids, name))


def _cut(whole: Template, name: str) -> Template:
    # The length of the records (null here) is the last field but the buffers of tagged fields.
    records = next(s for s in reversed(whole.spots) if s.kind in ("length32", "varint"))
    return whole._replace(
        data=whole.data[: records.begin],
        tail=whole.data[records.end :],
        spots=tuple(s for s in whole.spots if s.end <= records.begin),
        target=name,
    )


# --- filling messages by the names of their fields -----------------------------------------------

# A member that comes waits for no other, so that its answer does not wait either.
_TIMES: Final = {"max_wait": 0, "rebalance_timeout": 0, "session_timeout": 6_000}
_VALUES: Final[Mapping[str, Any]] = {
    "acks": 1, "records": None, "transactional_id": None, "min_bytes": 1, "max_bytes": 1 << 16,
    "partition_max_bytes": 1 << 12, "session_id": 0, "session_epoch": -1, "replica_id": -1,
    "isolation_level": 0, "current_leader_epoch": -1, "leader_epoch": -1, "last_fetched_epoch": -1,
    "fetch_offset": 0, "log_start_offset": -1, "offset": 0, "timestamp": -1, "rack_id": "",
    "allow_auto_topic_creation": False, "key_type": 0, "coordinator_keys": ("group-a", "group-b"),
    "key": "group-a", "client_software_name": "fuzz", "client_software_version": "1.0",
    "num_partitions": 2, "replication_factor": 1, "assignments": (), "count": 3,
    "validate_only": True, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1,
    "resource_type": 2, "endpoint_type": 1, "configuration_keys": None, "cursor": None,
    "response_partition_limit": 100, "config_operation": 0, "resource_types": (),
    "forgotten_topics_data": (), "max_num_offsets": 1, "cluster_id": None,
    "group_id": "group-a", "group_instance_id": None, "generation_id": 1, "reason": None,
    "protocol_type": "consumer", "protocol_name": "range", "states_filter": ("Stable", "EMPTY"),
    "types_filter": ("classic",), "generation_id_or_member_epoch": -1, "member_epoch": -1,
    "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": "read up to here",
    "retention_time": -1, "retention_time_ms": -1, "require_stable": False,
    "resource_type_filter": 1, "pattern_type_filter": 1, "resource_pattern_type": 3,
    "operation": 3, "permission_type": 3, "state_filters": ("Ongoing", "Bogus"),
}  # fmt: skip
_CONFIG: Final = {"retention.ms": "86400000"}


def _filled(key: ApiKey, version: int, ids: Ids, name: str, churns: bool = False) -> Any:
    module = schemas.request_module(key, version)
    return _Filler(ids, name, churns).entity(getattr(module, f"{key.label}Request"))


class _Filler:
    def __init__(self, ids: Ids, name: str, churns: bool) -> None:
        self._ids = ids
        self._name = name
        self._churns = churns

    def entity(self, entity_class: Any) -> Any:
        inside = entity_class.__name__
        return entity_class(
            **{
                field.name: self._value(field, inside)
                for field in dataclasses.fields(entity_class)
                if "tag" not in field.metadata
            }
        )

    def _value(self, field: dataclasses.Field[Any], inside: str) -> Any:
        inner, optional = stripped(field.type)
        kafka_type = field.metadata.get("kafka_type")
        if "Config" in inside and field.name in ("name", "value", "config_value", "config_name"):
            (pair,) = _CONFIG.items()
            return pair[field.name.endswith("value")]
        if inside == "JoinGroupRequestProtocol" and field.name == "name":
            return "range"
        if field.name in ("name", "topic", "topic_name", "resource_name"):
            return self._topic_name(optional, inside)
        if field.name in ("topic_names",):
            return (self._name,)
        if kafka_type == "uuid":
            by_name = "Metadata" in inside or self._churns
            return None if by_name else self._ids[self._name]
        if kafka_type in ("timedelta_i32", "timedelta_i64"):
            return datetime.timedelta(milliseconds=_TIMES.get(field.name, 1_000))
        if field.name == "validate_only" and self._churns:
            return False
        if field.name == "transactional_id" and not optional:
            return "fuzz-writer"  # of an API that only transactions use
        if field.name in _VALUES:
            return _VALUES[field.name]
        if get_origin(inner) is tuple:
            item = get_args(inner)[0]
            plain = "group-a" if kafka_type == "string" else 0
            return (plain,) if kafka_type else (self.entity(item),)
        if kafka_type is None:
            return self.entity(inner)
        return {"string": "", "bytes": b"", "bool": True}.get(kafka_type, 0)

    def _topic_name(self, optional: bool, inside: str) -> str | None:
        # Deletions are named by either; an id of all zeros says that the name counts.
        if inside == "DeleteTopicState" and not self._churns:
            return None
        return self._name
