"""An answer's bytes as plain data that two brokers can be compared by.

Decoding is kio's, so both brokers' answers are read by another project's code. Then:

- an error code is its name, a time its milliseconds, bytes their hex digits;
- a value that two brokers cannot share becomes a word for it (MASKED); ids that a broker makes up
  become "id 1", "id 2" in the order in which a case meets them, so equal ids stay equal;
- a member id that a broker made is "parity-member 1": its front, and a number as above;
- bytes of a kilobyte and more are a length and a hash, but for records, which have views of theirs;
- messages are compared by being there: a broker may say it in its own words;
- lists whose order means nothing and is a hash table's in Apache Kafka are sorted (UNORDERED).

Every rule names the structure and the field and says why.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import hashlib
import importlib
import json
import re
import uuid
from functools import cache
from typing import Any, Final, NamedTuple

from kio.serial import entity_reader

from kbroker.protocol.versions import SERVED
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey

Plain = Any  # a value that json can write

# (structure, field): the value in its place, and why.
MASKED: Final[dict[tuple[str, str], tuple[str, str]]] = {
    ("ApiVersionsResponse", "supported_features"): ("features", "levels of Kafka's own records"),
    ("ApiVersionsResponse", "finalized_features"): ("features", "the same"),
    ("ApiVersionsResponse", "finalized_features_epoch"): ("epoch", "the same"),
    ("MetadataResponse", "cluster_id"): ("cluster", "every cluster has its own"),
    ("DescribeClusterResponse", "cluster_id"): ("cluster", "every cluster has its own"),
    ("MetadataResponseBroker", "port"): ("port", "each broker has its own"),
    ("DescribeClusterBroker", "port"): ("port", "each broker has its own"),
    ("NodeEndpoint", "port"): ("port", "each broker has its own"),
    ("FindCoordinatorResponse", "port"): ("port", "each broker has its own"),
    ("Coordinator", "port"): ("port", "each broker has its own"),
    ("DescribeConfigsResourceResult", "documentation"): ("words", "our own words"),
    ("ConsumerGroupHeartbeatResponse", "heartbeat_interval"): ("time", "ours is short at first"),
    ("ShareGroupHeartbeatResponse", "heartbeat_interval"): ("time", "ours is short at first"),
    ("StreamsGroupHeartbeatResponse", "heartbeat_interval"): ("time", "ours is short at first"),
    ("Status", "status_detail"): ("words", "our own words, and topics in another order"),
    ("DescribeLogDirsResult", "log_dir"): ("directory", "each broker has its own"),
    ("DescribeLogDirsResult", "total_bytes"): ("bytes", "other files are on the volume, too"),
    ("DescribeLogDirsResult", "usable_bytes"): ("bytes", "other files are on the volume, too"),
}
NO_PORT: Final = ("port", -1)  # where there is no broker to return: this is compared
# Fields whose values a broker makes up: (structure, field), the word for them, and the least.
MADE_UP: Final[dict[tuple[str, str], tuple[str, int]]] = {
    ("InitProducerIdResponse", "producer_id"): ("producer", 0),
    ("FetchResponse", "session_id"): ("session", 1),
    ("ProducerState", "producer_id"): ("producer", 0),
    ("EndTxnResponse", "producer_id"): ("producer", 0),
    ("WritableTxnMarkerResult", "producer_id"): ("producer", 0),
    ("AbortedTransaction", "producer_id"): ("producer", 0),
    # 0 is said of an id that is unknown; the first one of a broker is not a case's.
    ("TransactionState", "producer_id"): ("producer", 1),
}
# (structure, field of a list): why its order means nothing.
UNORDERED: Final[dict[tuple[str, str], str]] = {
    ("MetadataResponse", "topics"): "a hash table's order in Apache Kafka",
    ("ApiVersionsResponse", "api_keys"): "a hash table's order in Apache Kafka",
    ("CreateTopicsResponse", "topics"): "a hash table's order in Apache Kafka",
    ("CreatableTopicResult", "configs"): "a hash table's order in Apache Kafka",
    ("DeleteTopicsResponse", "responses"): "a hash table's order in Apache Kafka",
    ("DescribeConfigsResponse", "results"): "a hash table's order in Apache Kafka",
    ("CreatePartitionsResponse", "results"): "a hash table's order in Apache Kafka",
    ("DeleteRecordsResponse", "topics"): "a hash table's order in Apache Kafka",
    ("DeleteRecordsTopicResult", "partitions"): "a hash table's order in Apache Kafka",
    ("DescribeConfigsResult", "configs"): "a hash table's order in Apache Kafka",
    ("ProduceResponse", "responses"): "a hash table's order in Apache Kafka",
    ("TopicProduceResponse", "partition_responses"): "a hash table's order in Apache Kafka",
    ("AlterReplicaLogDirsResponse", "results"): "a hash table's order in Apache Kafka",
    ("AlterReplicaLogDirTopicResult", "partitions"): "a hash table's order in Apache Kafka",
    ("DescribeLogDirsResult", "topics"): "a hash table's order in Apache Kafka",
    ("DescribeLogDirsTopic", "partitions"): "a hash table's order in Apache Kafka",
    ("ListConfigResourcesResponse", "config_resources"): "a hash table's order in Apache Kafka",
    ("PartitionResponse", "active_producers"): "a hash table's order in Apache Kafka",
    ("ListOffsetsResponse", "topics"): "a hash table's order in Apache Kafka",
    ("ListOffsetsTopicResponse", "partitions"): "a hash table's order in Apache Kafka",
    ("MetadataResponseTopic", "partitions"): "a hash table's order in Apache Kafka",
    ("JoinGroupResponse", "members"): "a hash table's order in Apache Kafka",
    ("DescribeGroupsResponse", "groups"): "asked of each coordinator's shard by itself",
    ("ShareGroupDescribeResponse", "groups"): "groups without an id come first in Apache Kafka",
    ("StreamsGroupDescribeResponse", "groups"): "groups without an id come first in Apache Kafka",
    ("DescribedGroup", "members"): "a hash table's order in Apache Kafka",
    ("DescribeShareGroupOffsetsResponse", "groups"): "asked of each coordinator by itself",
    ("DescribeShareGroupOffsetsResponseGroup", "topics"): "a hash table's order",
    ("DescribeShareGroupOffsetsResponseTopic", "partitions"): "a hash table's order",
    ("AlterShareGroupOffsetsResponse", "responses"): "topics that are denied come first",
    ("DeleteShareGroupOffsetsResponse", "responses"): "topics that are denied come first",
    ("ListGroupsResponse", "groups"): "a hash table's order in Apache Kafka",
    ("DeleteGroupsResponse", "results"): "asked of each coordinator's shard by itself",
    ("OffsetCommitResponse", "topics"): "topics that are not there come first in Apache Kafka",
    ("OffsetCommitResponseTopic", "partitions"): "those that are not there come first",
    ("TxnOffsetCommitResponse", "topics"): "topics that are refused come first",
    ("OffsetFetchResponse", "topics"): "a hash table's order in Apache Kafka",
    ("OffsetFetchResponse", "groups"): "asked of each coordinator's shard by itself",
    ("OffsetFetchResponseGroup", "topics"): "a hash table's order in Apache Kafka",
    ("OffsetFetchResponseTopics", "partitions"): "a hash table's order in Apache Kafka",
    ("OffsetFetchResponseTopic", "partitions"): "a hash table's order in Apache Kafka",
    ("DescribeUserScramCredentialsResponse", "results"): "a hash table's order in Apache Kafka",
    ("AlterClientQuotasResponse", "entries"): "a hash table's order in Apache Kafka",
    ("DescribeClientQuotasResponse", "entries"): "a hash table's order in Apache Kafka",
    ("EntryData", "entity"): "a hash table's order in Apache Kafka",
    ("EntryData", "values"): "a hash table's order in Apache Kafka",
    ("ListTransactionsResponse", "unknown_state_filters"): "a hash table's order in Apache Kafka",
    ("AddPartitionsToTxnResponse", "results_by_topic_v3_and_below"): "a hash table's order",
    ("AddPartitionsToTxnResult", "topic_results"): "a hash table's order in Apache Kafka",
    ("AddPartitionsToTxnTopicResult", "results_by_partition"): "a hash table's order",
    ("WritableTxnMarkerResult", "topics"): "a hash table's order in Apache Kafka",
    ("WritableTxnMarkerTopicResult", "partitions"): "a hash table's order in Apache Kafka",
    ("TransactionState", "topics"): "a hash table's order in Apache Kafka",
    ("TopicData", "partitions"): "a hash table's order in Apache Kafka",
    ("OffsetDeleteResponse", "topics"): "topics that are not there come first in Apache Kafka",
    ("OffsetDeleteResponseTopic", "partitions"): "those that are not there come first",
    **{
        (f"{name}StateResult", "partitions"): "a hash table's order in Apache Kafka"
        for name in ("Initialize", "Read", "Write", "Delete")
    },
    ("ReadStateSummaryResult", "partitions"): "a hash table's order in Apache Kafka",
}
# Fields that hold ids of a group's members: (structure, field).
MEMBER_IDS: Final = frozenset(
    {
        ("JoinGroupResponse", "leader"),
        ("JoinGroupResponse", "member_id"),
        ("JoinGroupResponseMember", "member_id"),
        ("MemberResponse", "member_id"),
        ("DescribedGroupMember", "member_id"),
    }
)
# The client's id or the instance's, then a random UUID.
_MADE_MEMBER: Final = re.compile(r"(.*)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.DOTALL)
# Fields that name an entry of a list, so that its place has more than a number.
IDENTITY: Final = (
    *("name", "topic", "topic_name", "key", "partition_index", "partition", "index", "api_key"),
    *("node_id", "broker_id", "log_dir", "topic_id", "group_id", "member_id", "user"),
)


class Aliases:
    """The names that one case has given to ids it met."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}
        self._counts: dict[str, int] = {}

    def of(self, kind: str, value: object) -> str:
        name = self._names.get(value)
        if name is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            name = self._names[value] = f"{kind} {self._counts[kind]}"
        return name

    def member(self, value: str) -> str:
        """A member's id. One that no broker made up is compared as it is."""
        made = _MADE_MEMBER.fullmatch(value)
        return value if made is None else f"{made[1]}-{self.of('member', value)}"

    def know(self, value: object, kind: str) -> None:
        """An id of known origin, a topic's: "id of t", the next one of its name "id of t 2"."""
        if value not in self._names:
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[value] = kind if count == 1 else f"{kind} {count}"


def label(key: int, version: int) -> str:
    api = ApiKey.for_key(key)
    return f"{f'key {key}' if api is None else api.label} v{version}"


def decode(key: int, version: int, payload: bytes) -> tuple[Any, bytes]:
    """(the answer as an entity of kio, the bytes left over) after the correlation id."""
    api = ApiKey(key)
    if api is ApiKey.API_VERSIONS and version not in SERVED[api]:
        version = 0  # KIP-511: so that any client can read it
    module = importlib.import_module(f"kio.schema.{api.name.lower()}.v{version}.response")
    entity_class = getattr(module, f"{api.label}Response")
    start = 0
    if entity_class.__header_schema__.__version__ >= 1:
        reader = Reader(payload, flexible=True)
        reader.tags()
        start = len(payload) - reader.left
    if api is ApiKey.DESCRIBE_TRANSACTIONS:
        # An id without a transaction has a start of -1, which is no time to kio.
        payload = payload.replace(b"\xff" * 8, NEVER_MS.to_bytes(8))
    entity, size = entity_reader(entity_class)(payload, start)
    return entity, payload[start + size :]


def plain(value: Any, aliases: Aliases) -> Plain:
    """A decoded answer, made comparable."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if hasattr(kind, "__dataclass_fields__"):
        return _plain_entity(value, aliases)
    if kind is tuple:
        return [plain(item, aliases) for item in value]
    if isinstance(value, uuid.UUID):
        return aliases.of("id", value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        milliseconds = round(value.timestamp() * 1000)
        return -1 if milliseconds == NEVER_MS else milliseconds
    if isinstance(value, bytes):
        return value.hex()
    return value


LONG_BYTES: Final = 1_000
NEVER_MS: Final = 253_000_000_000_000  # in the year 9987
_AS_THEY_ARE: Final = frozenset({int, str, bool, float, type(None)})


class _Rule(NamedTuple):
    """How one field is made comparable: at most one of the first four holds."""

    name: str
    mask: str | None
    made_up: tuple[str, int] | None
    member: bool
    message: bool
    unordered: bool


@cache
def _rules(entity_class: type[Any]) -> tuple[_Rule, ...]:
    structure = entity_class.__name__
    return tuple(
        _Rule(
            field.name,
            MASKED.get((structure, field.name), (None, ""))[0],
            MADE_UP.get((structure, field.name)),
            (structure, field.name) in MEMBER_IDS,
            field.name.endswith("error_message"),
            (structure, field.name) in UNORDERED,
        )
        for field in dataclasses.fields(entity_class)
    )


def _plain_entity(entity: Any, aliases: Aliases) -> dict[str, Plain]:
    _know_topic(entity, aliases)
    fields: dict[str, Plain] = {}
    for name, mask, made_up, member, message, unordered in _rules(type(entity)):
        value = getattr(entity, name)
        if mask is not None and (name, value) != NO_PORT:
            fields[name] = mask
        elif made_up is not None:
            word, least = made_up
            fields[name] = value if value < least else aliases.of(word, value)
        elif member and value:
            fields[name] = aliases.member(value)
        elif message and value:
            fields[name] = "words"
        elif isinstance(value, bytes) and len(value) >= LONG_BYTES and name != "records":
            fields[name] = in_short(value)
        else:
            fields[name] = plain(value, aliases)
        if unordered and fields[name] is not None:
            fields[name] = _sorted(fields[name])
    return fields


def in_short(value: bytes) -> str:
    return f"{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()[:16]}"


def _know_topic(entity: Any, aliases: Aliases) -> None:
    name, topic_id = getattr(entity, "name", None), getattr(entity, "topic_id", None)
    if name and topic_id:
        aliases.know(topic_id, f"id of {name}")


def know_topics(entity: Any, aliases: Aliases) -> None:
    """Learn the ids of topics from an answer that is not recorded."""
    for list_name in ("topics", "responses"):
        for topic in getattr(entity, list_name, None) or ():
            _know_topic(topic, aliases)


def _sorted(items: list[Plain]) -> list[Plain]:
    by_name = {str(identity(item)): item for item in items}
    if len(by_name) == len(items):
        return [by_name[name] for name in sorted(by_name)]
    return sorted(items, key=lambda item: (str(identity(item)), json.dumps(item, sort_keys=True)))


def identity(item: Plain) -> str | None:
    """The field that distinguishes an entry of a list from the others; None if it has none."""
    if not isinstance(item, dict):
        return None
    if item.get("resource_name") is not None:
        return f"{item.get('resource_type')} {item['resource_name']}"
    return next((str(item[field]) for field in IDENTITY if item.get(field) is not None), None)
