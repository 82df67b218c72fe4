"""Where each fact lives in the metadata store, and how its node is written.

Place in the flow: pure functions between values of `image.py` and the bytes of nodes; `nodes.py`
does the reading and writing. Paths and contents are those of Apache Kafka up to 3.9, where it had
them, so that its old tools read them; docs/znodes.md has them all, with their writers and times.

    /brokers/ids/N                             ephemeral: broker N is alive, and where it listens
    /brokers/directories/N                     ours: the data directories of broker N, by their ids
    /brokers/losses/N                          ours: which lossy start of broker N has left its sets
    /brokers/topics/NAME                       topic id and the replicas of every partition
    /brokers/topics/NAME/partitions/I/state    leader, leader epoch, in-sync replicas
    /config/topics/NAME                        the topic's own configuration
    /config/brokers/N, /<default>              settings made at run time: N's, every broker's
    /config/groups/NAME                        a group's own, the name quoted as in a URL
    /config/client-metrics/NAME                a subscription to client metrics, the same
    /admin/deleted_topics/ID                   ours: a deletion to be finished on disk
    /log_dir_event_notification/log_dir_event_N    broker N has other failing logs than before
    /controller                                ephemeral: who the controller is
    /controller_epoch                          how many there have been; its version fences
    /latest_producer_id_block                  the producer ids handed out last
    /cluster/id                                the cluster's id
    /cluster/import                            ours: which file the tree is made of; is it whole
    /kbroker/...                               ours, see own_nodes.py

A node is a JSON object with a "version"; fields that a reader does not know are no reason to
refuse. Bytes from a store are not trusted: a node that does not read back as expected is a
DataDirectoryError that names it, never a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote
from uuid import UUID

from kbroker.errors import DataDirectoryError
from kbroker.metadata.features import Supported
from kbroker.metadata.image import (
    NO_BROKER_EPOCH,
    NO_ENVELOPE,
    NO_LEADER,
    BrokerEndpoint,
    BrokerImage,
    ConfigKind,
    ConfigResource,
    PartitionImage,
)
from kbroker.types import parse_uuid, uuid_text

BROKER_IDS: Final = "/brokers/ids"
USED_DIRECTORIES: Final = "/brokers/directories"
LOSSES: Final = "/brokers/losses"
TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
CONFIG_FOLDERS: Final[Mapping[ConfigKind, str]] = {
    ConfigKind.BROKER: "/config/brokers",
    ConfigKind.GROUP: "/config/groups",
    ConfigKind.CLIENT_METRICS: "/config/client-metrics",
}
DELETED_TOPICS: Final = "/admin/deleted_topics"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
CLUSTER_ID: Final = "/cluster/id"
IMPORT: Final = "/cluster/import"

# Parents before children; created once, empty.
SKELETON: Final = (
    "/brokers",
    BROKER_IDS,
    LOSSES,
    TOPICS,
    "/config",
    TOPIC_CONFIGS,
    *CONFIG_FOLDERS.values(),
    # No broker writes to these; Apache Kafka's tools look into them.
    "/config/clients",
    "/config/users",
    "/config/ips",
    "/config/changes",
    "/admin",
    "/admin/delete_topics",
    DELETED_TOPICS,
    LOG_DIR_EVENTS,
    "/cluster",
)

_SAME_BYTES_MAX: Final = 256  # of a partition whose meaning is kept
# Version by kind of node: those that Apache Kafka 3.9 writes; what is ours alone is at 1.
_VERSION: Final = 1
_TOPIC_VERSION: Final = 3
_BROKER_VERSION: Final = 5
_CONTROLLER_VERSION: Final = 2
_ENVELOPE_VERSION: Final = "envelope_version"
_ENDPOINT: Final = re.compile(r"([^:/]+)://(?:\[([^\]]*)\]|([^:\[\]]*)):(\d{1,5})")
# The node that holds what is set for every broker: no id could be called so.
EVERY_BROKER: Final = "<default>"
# Of a group or a subscription, quoted; a path of the store holds no more.
CONFIG_NAME_CHARS_MAX: Final = 900
# A text of the protocol's first versions holds no more, and no name of a host or rack comes near.
ADDRESS_BYTES_MAX: Final = 1_000
PORT_MAX: Final = 65535
INT32_MAX: Final = 2**31 - 1
INT16_MAX: Final = 2**15 - 1
INT64_MAX: Final = 2**63 - 1

T = TypeVar("T")


_NONE: Final[Mapping[int, tuple[int, ...]]] = MappingProxyType({})


class TopicRecord(NamedTuple):
    """`adding` and `removing`: of partitions that are reassigned, by index."""

    topic_id: UUID
    replicas: tuple[tuple[int, ...], ...]
    adding: Mapping[int, tuple[int, ...]] = _NONE
    removing: Mapping[int, tuple[int, ...]] = _NONE


class PartitionRecord(NamedTuple):
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    min_in_sync: int = 0  # it does not say, as those of an earlier kbroker
    last_leader: int = NO_LEADER  # the same


class TombstoneRecord(NamedTuple):
    name: str
    partitions: int


class ImportRecord(NamedTuple):
    """`sha256` is of the tree that was exported at `exported_at`; until it is here as a whole it is
    not `complete`, and no broker uses what is. `import_id` is of this import alone: the same tree
    that is imported once more is another beginning of the same cluster."""

    import_id: str
    sha256: str
    exported_at: str
    complete: bool


def broker_path(node_id: int) -> str:
    return f"{BROKER_IDS}/{node_id}"


def used_directories_path(node_id: int) -> str:
    return f"{USED_DIRECTORIES}/{node_id}"


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions_path(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition_path(name: str, index: int) -> str:
    """The partition's node; empty."""
    return f"{TOPICS}/{name}/partitions/{index}"


def partition_state_path(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}/state"


def topic_config_path(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def config_path(resource: ConfigResource) -> str:
    """Where the settings of a resource that is no topic are; ValueError for too long a name."""
    return f"{CONFIG_FOLDERS[resource.kind]}/{_quoted(resource)}"


def _quoted(resource: ConfigResource) -> str:
    if resource.kind is ConfigKind.BROKER:
        return resource.name or EVERY_BROKER
    quoted = resource.name
    if not (quoted.isascii() and quoted.isalnum()):
        quoted = quote(quoted, safe="").replace(".", "%2E")
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


def encode_broker(broker: BrokerImage, registered_ms: int, locks: Collection[str] = ()) -> bytes:
    return encode_fields(
        _BROKER_VERSION,
        host=broker.host,
        port=broker.port,
        jmx_port=-1,
        timestamp=str(registered_ms),
        endpoints=[_endpoint_text(each) for each in broker.endpoints],
        rack=broker.rack,
        listener_security_protocol_map={each.name: each.protocol for each in broker.endpoints},
        features={
            each.name: {"min_version": each.lowest, "max_version": each.highest}
            for each in broker.features
        },
        locks=sorted(locks),
        **({"lossy": True} if broker.lossy else {}),
        **_envelope_field(broker),
        **({"settings": dict(broker.settings)} if broker.settings else {}),
    )


def _envelope_field(broker: BrokerImage) -> dict[str, int]:
    version = broker.envelope_version
    return {} if version == NO_ENVELOPE else {_ENVELOPE_VERSION: version}


def _endpoint_text(endpoint: BrokerEndpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.name}://{host}:{endpoint.port}"


def _decode_endpoints(fields: Fields) -> tuple[BrokerEndpoint, ...]:
    protocols = fields.get("listener_security_protocol_map", dict)
    found = []
    for text in fields.get("endpoints", list):
        match = _ENDPOINT.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[4]) > PORT_MAX:
            raise fields.damaged("an endpoint is no NAME://host:port")
        protocol = protocols.get(match[1], match[1])
        if not isinstance(protocol, str):
            raise fields.damaged("a listener's protocol is no text")
        found.append(BrokerEndpoint(match[1], match[2] or match[3], int(match[4]), protocol))
    return tuple(found)


def decode_broker(path: str, data: bytes, epoch: int = NO_BROKER_EPOCH) -> BrokerImage:
    """`epoch`: when the node was created."""
    fields = Fields(path, data, _BROKER_VERSION)
    rack = fields.get("rack", object) if fields.has("rack") else None  # as Kafka's
    if rack is not None and not isinstance(rack, str):
        raise fields.damaged("rack is no text")
    host, port = fields.get("host", str), fields.integer("port", -1, PORT_MAX)
    lossy = fields.has("lossy") and fields.get("lossy", bool)
    envelope = NO_ENVELOPE
    if fields.has(_ENVELOPE_VERSION):
        envelope = fields.integer(_ENVELOPE_VERSION, 0, INT16_MAX)
    endpoints, features = _decode_endpoints(fields), _decode_features(fields)
    for text in (host, rack or "", *(each.host for each in endpoints)):
        if len(text.encode()) > ADDRESS_BYTES_MAX:
            raise fields.damaged(f"a host or rack has more than {ADDRESS_BYTES_MAX} bytes")
    node_id = _int_name(path)
    return BrokerImage(node_id, host, port, rack, epoch, lossy, endpoints, (), envelope, features)


def _decode_features(fields: Fields) -> tuple[Supported, ...]:
    """None of a broker of an earlier kbroker."""
    ranges = fields.get("features", dict) if fields.has("features") else {}
    with suppress(TypeError, KeyError):
        found = [Supported(name, r["min_version"], r["max_version"]) for name, r in ranges.items()]
        if all(type(each.lowest) is type(each.highest) is int for each in found):
            return tuple(found)
    raise fields.damaged("the levels of a feature are no range")


def decode_broker_locks(path: str, data: bytes) -> frozenset[str]:
    """The names of the locks that the process of a registered broker holds; none in a node of
    Apache Kafka's, and of a kbroker that did not say so."""
    fields = Fields(path, data, _BROKER_VERSION)
    locks = fields.get("locks", list) if fields.has("locks") else []
    if not all(isinstance(each, str) for each in locks):
        raise fields.damaged("the name of a lock is no text")
    return frozenset(locks)


def decode_broker_settings(path: str, data: bytes) -> dict[str, str]:
    """What a registered broker's file says; nothing in a node of Kafka's or an earlier kbroker."""
    fields = Fields(path, data, _BROKER_VERSION)
    settings: dict[str, str] = fields.get("settings", dict) if fields.has("settings") else {}
    if not all(isinstance(each, str) for each in settings.values()):
        raise fields.damaged("a setting is no text")
    return settings


def encode_used_directories(directories: Mapping[str, str]) -> bytes:
    return encode_fields(_VERSION, directories=dict(directories))


def decode_used_directories(path: str, data: bytes) -> dict[str, str]:
    """Where each directory was last, by its id."""
    fields = Fields(path, data)
    directories: dict[str, str] = fields.get("directories", dict)
    if not all(isinstance(value, str) for value in directories.values()):
        raise fields.damaged("a path is no text")
    return directories


def losses_path(node_id: int) -> str:
    return f"{LOSSES}/{node_id}"


def encode_losses(broker_epoch: int) -> bytes:
    return encode_fields(_VERSION, broker_epoch=broker_epoch)


def decode_losses(path: str, data: bytes) -> tuple[int, int]:
    """A broker, and the epoch of its last lossy start of which a controller has taken account."""
    return _int_name(path), Fields(path, data).integer("broker_epoch", 0, INT64_MAX)


def encode_topic(
    topic_id: UUID,
    replicas: Sequence[Sequence[int]],
    adding: Mapping[int, Sequence[int]] = _NONE,
    removing: Mapping[int, Sequence[int]] = _NONE,
) -> bytes:
    return encode_fields(
        _TOPIC_VERSION,
        topic_id=uuid_text(topic_id),
        partitions=_by_index(dict(enumerate(replicas))),
        adding_replicas=_by_index(adding),
        removing_replicas=_by_index(removing),
    )


def _by_index(nodes: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(index): list(each) for index, each in nodes.items()}


def decode_topic(path: str, data: bytes) -> TopicRecord:
    fields = Fields(path, data, _TOPIC_VERSION)
    partitions: dict[str, Any] = fields.get("partitions", dict)
    if not partitions:
        raise fields.damaged("no partitions")
    replicas = [fields.node_ids(partitions.get(str(index))) for index in range(len(partitions))]
    adding, removing = (
        _moving(fields, name, replicas) for name in ("adding_replicas", "removing_replicas")
    )
    for index in adding.keys() & removing.keys():
        if not {*adding[index]}.isdisjoint(removing[index]):
            raise fields.damaged(f"a replica of partition {index} comes and goes")
    return TopicRecord(fields.uuid("topic_id"), tuple(replicas), adding, removing)


def _moving(
    fields: Fields, name: str, replicas: Sequence[tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """Nodes that Apache Kafka wrote before 2.4 do not say so: nothing moves there."""
    found: dict[int, tuple[int, ...]] = {}
    written: dict[str, Any] = fields.get(name, dict) if fields.has(name) else {}
    for index, nodes in enumerate(replicas):
        if moving := written.get(str(index)):
            found[index] = fields.node_ids(moving)
            if not {*found[index]} <= {*nodes}:
                raise fields.damaged(f"{name} of partition {index} are none of its replicas")
    return found


def encode_partition(partition: PartitionImage, controller_epoch: int) -> bytes:
    return encode_fields(
        _VERSION,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        controller_epoch=controller_epoch,
        isr=partition.isr,
        **({"eligible": partition.eligible} if partition.eligible else {}),
        **({"min_in_sync": partition.min_in_sync} if partition.min_in_sync else {}),
        **({"last_leader": partition.last_leader} if partition.last_leader != NO_LEADER else {}),
    )


def decode_partition(path: str, data: bytes) -> PartitionRecord:
    if len(data) <= _SAME_BYTES_MAX:
        with suppress(DataDirectoryError):
            return _same_partition(data)
    return _partition_of(Fields(path, data))


@lru_cache(1024)
def _same_partition(data: bytes) -> PartitionRecord:
    """Thousands of partitions say the same. An error does not say where."""
    return _partition_of(Fields("", data))


def _partition_of(fields: Fields) -> PartitionRecord:
    return PartitionRecord(
        fields.integer("leader", -1, INT32_MAX),
        fields.integer("leader_epoch", 0, INT32_MAX),
        fields.node_ids(fields.get("isr", list)),
        fields.node_ids(fields.get("eligible", list)) if fields.has("eligible") else (),
        fields.integer("min_in_sync", 0, INT32_MAX) if fields.has("min_in_sync") else 0,
        fields.integer("last_leader", 0, INT32_MAX) if fields.has("last_leader") else NO_LEADER,
    )


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return encode_fields(_VERSION, config=dict(configs))


def decode_configs(path: str, data: bytes) -> dict[str, str]:
    fields = Fields(path, data)
    configs: dict[str, str] = fields.get("config", dict)
    if not all(isinstance(value, str) for value in configs.values()):
        raise fields.damaged("a value is no text")
    return configs


def encode_tombstone(name: str, partitions: int) -> bytes:
    return encode_fields(_VERSION, name=name, partitions=partitions)


def decode_tombstone(path: str, data: bytes) -> TombstoneRecord:
    fields = Fields(path, data)
    return TombstoneRecord(fields.get("name", str), fields.integer("partitions", 1, INT32_MAX))


def decode_tombstone_id(path: str) -> UUID:
    try:
        return parse_uuid(path.rpartition("/")[2])
    except ValueError as error:
        raise damaged(path, str(error)) from None


def encode_controller(node_id: int, since_ms: int) -> bytes:
    return encode_fields(
        _CONTROLLER_VERSION, brokerid=node_id, timestamp=str(since_ms), kraftControllerEpoch=-1
    )


def decode_controller(path: str, data: bytes) -> int:
    return Fields(path, data, _CONTROLLER_VERSION).integer("brokerid", 0, INT32_MAX)


def log_dir_event_path(node_id: int) -> str:
    """Apache Kafka's last number counts events; one of each broker is enough."""
    return f"{LOG_DIR_EVENTS}/log_dir_event_{node_id:010d}"


def encode_log_dir_event(node_id: int) -> bytes:
    """Event 1 is a failing log directory, the only one that there is."""
    return encode_fields(_VERSION, broker=node_id, event=1)


def encode_controller_epoch(epoch: int) -> bytes:
    """A bare number, as Apache Kafka writes it."""
    return b"%d" % epoch


def decode_controller_epoch(path: str, data: bytes) -> int:
    if not data.isdigit() or not 0 <= int(data[:11]) < INT32_MAX:
        raise damaged(path, f"{data[:20]!r} is no epoch")
    return int(data)


def encode_producer_id_block(node_id: int, first: int, count: int) -> bytes:
    return encode_fields(
        _VERSION, broker=node_id, block_start=str(first), block_end=str(first + count - 1)
    )


def decode_producer_id_block(path: str, data: bytes) -> int:
    """The first producer id that has never been handed out."""
    fields = Fields(path, data)
    first = fields.number("block_start", 0, INT64_MAX)
    return fields.number("block_end", first - 1, INT64_MAX - 1) + 1


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode_fields(str(_VERSION), id=cluster_id)  # a text here, and nowhere else


def decode_cluster_id(path: str, data: bytes) -> str:
    fields = Fields(path, data)
    cluster_id = fields.get("id", str)
    if not cluster_id:
        raise fields.damaged("the id is empty")
    return cluster_id


def encode_import(record: ImportRecord) -> bytes:
    return encode_fields(_VERSION, **record._asdict())


def decode_import(path: str, data: bytes) -> ImportRecord:
    fields = Fields(path, data)
    return ImportRecord(
        fields.get("import_id", str),
        fields.get("sha256", str),
        fields.get("exported_at", str),
        fields.get("complete", bool),
    )


def damaged(path: str, reason: str) -> DataDirectoryError:
    return DataDirectoryError(
        f"metadata node {path} cannot be read: {reason}",
        "restore the metadata store from a copy, or start with another data directory",
    )


class Fields:
    """The fields of one node, every access checked."""

    def __init__(self, path: str, data: bytes, newest: int = _VERSION) -> None:
        self.path = path
        try:
            fields = json.loads(str(data, "utf-8"))  # of bytes, it takes halves of surrogates
            if b"\\u" in data:  # half a surrogate pair is text in JSON, and nowhere else
                json.dumps(fields, ensure_ascii=False).encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(path, str(error)) from None
        if not isinstance(fields, dict):
            raise damaged(path, "not a JSON object")
        self._fields: dict[str, Any] = fields
        version = fields.get("version")
        if version == str(_VERSION):
            version = _VERSION  # of /cluster/id
        if self._within("version", version, 1, INT32_MAX) > newest:
            raise damaged(path, f"version {version} is newer than this kbroker's")

    def get(self, name: str, type_: type[T]) -> T:
        if name not in self._fields:
            raise self.damaged(f"{name} is missing")
        value = self._fields[name]
        if not isinstance(value, type_):
            raise self.damaged(f"{name} is no {type_.__name__}")
        return value

    def has(self, name: str) -> bool:
        return name in self._fields

    def integer(self, name: str, low: int, high: int) -> int:
        return self._within(name, self.get(name, object), low, high)

    def number(self, name: str, low: int, high: int) -> int:
        """One of 64 bits, which Apache Kafka writes as text."""
        text = self.get(name, str)
        value = int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else text
        return self._within(name, value, low, high)

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


def encode_fields(version: int | str, **fields: object) -> bytes:
    return json.dumps({"version": version, **fields}, separators=(",", ":")).encode()
