"""Where each fact lives in the metadata store, and how its node is written: JSON, versioned.

Place in the flow: pure functions between values of `image.py` and the bytes of nodes; `nodes.py`
does the reading and writing.

    /brokers/ids/N                        ephemeral: broker N is alive, and where it listens
    /brokers/directories/N                the data directories that broker N has used, by their ids
    /brokers/topics/NAME                  topic id and the replicas of every partition
    /brokers/topics/NAME/partitions/I     leader, leader epoch, in-sync replicas of partition I
    /config/topics/NAME                   the topic's own configuration
    /config/brokers/N, /<default>         settings made at run time: broker N's, every broker's
    /config/groups/NAME                   a group's own configuration, the name quoted as in a URL
    /config/client-metrics/NAME           a subscription to client metrics, the same
    /topics/deleted/ID                    a deletion that must still be finished on disk
    /controller                           ephemeral: who the controller is
    /controller_epoch                     how many controllers there have been; its version fences
    /latest_producer_id_block             the producer ids handed out last
    /cluster/id                           the cluster's id

Every node is a JSON object with the schema version "v". Bytes from a store are not trusted: a node
that does not read back as expected is a DataDirectoryError that names it, never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote
from uuid import UUID

from kbroker.errors import DataDirectoryError
from kbroker.metadata.image import (
    BrokerImage,
    ConfigKind,
    ConfigResource,
    PartitionImage,
)
from kbroker.types import parse_uuid, uuid_text

BROKER_IDS: Final = "/brokers/ids"
USED_DIRECTORIES: Final = "/brokers/directories"
TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
CONFIG_FOLDERS: Final[Mapping[ConfigKind, str]] = {
    ConfigKind.BROKER: "/config/brokers",
    ConfigKind.GROUP: "/config/groups",
    ConfigKind.CLIENT_METRICS: "/config/client-metrics",
}
DELETED_TOPICS: Final = "/topics/deleted"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
CLUSTER_ID: Final = "/cluster/id"

# Parents before children; created once, empty.
SKELETON: Final = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/config",
    TOPIC_CONFIGS,
    *CONFIG_FOLDERS.values(),
    "/topics",
    DELETED_TOPICS,
    "/cluster",
)

SCHEMA_VERSION: Final = 1
# The node that holds what is set for every broker: no id could be called so.
EVERY_BROKER: Final = "<default>"
# Of a group or a subscription, quoted; a path of the store holds no more.
CONFIG_NAME_CHARS_MAX: Final = 900
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

T = TypeVar("T")


class TopicRecord(NamedTuple):
    topic_id: UUID
    replicas: tuple[tuple[int, ...], ...]


class PartitionRecord(NamedTuple):
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


class TombstoneRecord(NamedTuple):
    name: str
    partitions: int


def broker_path(node_id: int) -> str:
    return f"{BROKER_IDS}/{node_id}"


def used_directories_path(node_id: int) -> str:
    return f"{USED_DIRECTORIES}/{node_id}"


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions_path(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition_path(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}"


def topic_config_path(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def config_path(resource: ConfigResource) -> str:
    """Where the settings of a resource that is no topic are; ValueError for too long a name."""
    return f"{CONFIG_FOLDERS[resource.kind]}/{_quoted(resource)}"


def _quoted(resource: ConfigResource) -> str:
    if resource.kind is ConfigKind.BROKER:
        return resource.name or EVERY_BROKER
    quoted = quote(resource.name, safe="").replace(".", "%2E")
    if not 0 < len(quoted) <= CONFIG_NAME_CHARS_MAX:
        raise ValueError(f"a name of {len(resource.name)} characters cannot be stored")
    return quoted


def config_resource(kind: ConfigKind, child: str) -> ConfigResource:
    """The inverse of `config_path`, of the last part of a path."""
    if kind is not ConfigKind.BROKER:
        return ConfigResource(kind, unquote(child))
    if child == EVERY_BROKER:
        return ConfigResource(kind, "")
    return ConfigResource(kind, str(_int_name(f"{CONFIG_FOLDERS[kind]}/{child}")))


def tombstone_path(topic_id: UUID) -> str:
    return f"{DELETED_TOPICS}/{uuid_text(topic_id)}"


def encode_broker(broker: BrokerImage, registered_ms: int) -> bytes:
    return _encode(
        host=broker.host, port=broker.port, rack=broker.rack, registered_ms=registered_ms
    )


def decode_broker(path: str, data: bytes) -> BrokerImage:
    fields = _Fields(path, data)
    rack = fields.get("rack", object)
    if rack is not None and not isinstance(rack, str):
        raise fields.damaged("rack is no text")
    return BrokerImage(
        _int_name(path), fields.get("host", str), fields.integer("port", -1, 65535), rack
    )


def encode_used_directories(directories: Mapping[str, str]) -> bytes:
    return _encode(directories=dict(directories))


def decode_used_directories(path: str, data: bytes) -> dict[str, str]:
    """Where each directory was last, by its id."""
    fields = _Fields(path, data)
    directories: dict[str, str] = fields.get("directories", dict)
    if not all(isinstance(value, str) for value in directories.values()):
        raise fields.damaged("a path is no text")
    return directories


def encode_topic(topic_id: UUID, replicas: Sequence[Sequence[int]]) -> bytes:
    return _encode(topic_id=uuid_text(topic_id), replicas=replicas)


def decode_topic(path: str, data: bytes) -> TopicRecord:
    fields = _Fields(path, data)
    replicas = fields.get("replicas", list)
    if not replicas:
        raise fields.damaged("no partitions")
    return TopicRecord(fields.uuid("topic_id"), tuple(fields.node_ids(each) for each in replicas))


def encode_partition(partition: PartitionImage, controller_epoch: int) -> bytes:
    return _encode(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        controller_epoch=controller_epoch,
    )


def decode_partition(path: str, data: bytes) -> PartitionRecord:
    fields = _Fields(path, data)
    return PartitionRecord(
        fields.integer("leader", -1, INT32_MAX),
        fields.integer("leader_epoch", 0, INT32_MAX),
        fields.node_ids(fields.get("isr", list)),
    )


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return _encode(config=dict(configs))


def decode_configs(path: str, data: bytes) -> dict[str, str]:
    fields = _Fields(path, data)
    configs: dict[str, str] = fields.get("config", dict)
    if not all(isinstance(value, str) for value in configs.values()):
        raise fields.damaged("a value is no text")
    return configs


def encode_tombstone(name: str, partitions: int) -> bytes:
    return _encode(name=name, partitions=partitions)


def decode_tombstone(path: str, data: bytes) -> TombstoneRecord:
    fields = _Fields(path, data)
    return TombstoneRecord(fields.get("name", str), fields.integer("partitions", 1, INT32_MAX))


def decode_tombstone_id(path: str) -> UUID:
    try:
        return parse_uuid(path.rpartition("/")[2])
    except ValueError as error:
        raise damaged(path, str(error)) from None


def encode_controller(node_id: int, since_ms: int) -> bytes:
    return _encode(broker=node_id, since_ms=since_ms)


def decode_controller(path: str, data: bytes) -> int:
    return _Fields(path, data).integer("broker", 0, INT32_MAX)


def encode_controller_epoch(epoch: int) -> bytes:
    return _encode(epoch=epoch)


def decode_controller_epoch(path: str, data: bytes) -> int:
    return _Fields(path, data).integer("epoch", 0, INT32_MAX - 1)


def encode_producer_id_block(node_id: int, first: int, count: int) -> bytes:
    return _encode(broker=node_id, first=first, count=count)


def decode_producer_id_block(path: str, data: bytes) -> int:
    """The first producer id that has never been handed out."""
    fields = _Fields(path, data)
    first = fields.integer("first", 0, INT64_MAX)
    return first + fields.integer("count", 0, INT64_MAX - first)


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode(id=cluster_id)


def decode_cluster_id(path: str, data: bytes) -> str:
    fields = _Fields(path, data)
    cluster_id = fields.get("id", str)
    if not cluster_id:
        raise fields.damaged("the id is empty")
    return cluster_id


def damaged(path: str, reason: str) -> DataDirectoryError:
    return DataDirectoryError(
        f"metadata node {path} cannot be read: {reason}",
        "restore the metadata store from a copy, or start with another data directory",
    )


class _Fields:
    """The fields of one node, every access checked."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise damaged(path, str(error)) from None
        if not isinstance(fields, dict):
            raise damaged(path, "not a JSON object")
        self._fields: dict[str, Any] = fields
        if self.integer("v", 1, INT32_MAX) > SCHEMA_VERSION:
            raise damaged(path, f"schema {fields['v']} is newer than this kbroker's")

    def get(self, name: str, type_: type[T]) -> T:
        if name not in self._fields:
            raise self.damaged(f"{name} is missing")
        value = self._fields[name]
        if not isinstance(value, type_):
            raise self.damaged(f"{name} is no {type_.__name__}")
        return value

    def integer(self, name: str, low: int, high: int) -> int:
        return self._within(name, self.get(name, object), low, high)

    def uuid(self, name: str) -> UUID:
        try:
            return parse_uuid(self.get(name, str))
        except ValueError as error:
            raise self.damaged(str(error)) from None

    def node_ids(self, values: Any) -> tuple[int, ...]:
        if not isinstance(values, list) or not values:
            raise self.damaged("a list of brokers is empty or no list")
        ids = tuple(self._within("broker", value, 0, INT32_MAX) for value in values)
        if len(set(ids)) != len(ids):
            raise self.damaged("a broker is listed twice")
        return ids

    def damaged(self, reason: str) -> DataDirectoryError:
        return damaged(self.path, reason)

    def _within(self, name: str, value: object, low: int, high: int) -> int:
        if type(value) is not int or not low <= value <= high:
            raise self.damaged(f"{name} {value!r} is no number from {low} to {high}")
        return value


def _int_name(path: str) -> int:
    name = path.rpartition("/")[2]
    if not name.isdecimal() or not name.isascii() or str(int(name[:11])) != name:
        raise damaged(path, f"{name!r} is no number")
    return int(name)


def _encode(**fields: object) -> bytes:
    return json.dumps({"v": SCHEMA_VERSION, **fields}, separators=(",", ":")).encode()
