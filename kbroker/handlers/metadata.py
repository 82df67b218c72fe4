"""Metadata (3): which brokers and topics there are, who leads what; asked by every client, often.

A request asks for all topics (null, or in v0 an empty list), for none (empty), for some by name, or
from v12 for some by id; where ids are given, names are ignored. A name that does not exist is
UNKNOWN_TOPIC_OR_PARTITION, and is created behind the answer's back if the broker and the request
both allow it; a name that cannot exist is INVALID_TOPIC_EXCEPTION; an id that does not exist is
UNKNOWN_TOPIC_ID with a null name. Each topic asked is answered once, in the order of the request.

The node that the client is connected to appears under the address that it used, the others under
the ones they registered. `controller_id` is some live broker, by the number of the connection: it
is who an admin client sends its changes to, and every broker takes those. All topics come in the
order of their names.

Most requests never come here: `_metadata.pyx` answers them without the GIL, with these very bytes,
and passes on what it must not decide. What this file does is what that one is tested against.

Everything is read from one image, so an answer shows one moment. Topics come encoded from
`MetadataCache`. Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.metadata_cache import (
    OPERATIONS_NOT_ASKED,
    SINCE_TOPIC_ID,
    SINCE_TOPIC_OPERATIONS,
    encode_broker,
    encode_missing_topic,
    topic_operations,
)
from kbroker.handlers.services import BrokersSeen, brokers_as_seen
from kbroker.handlers.topic_creation import topic_creator
from kbroker.metadata.image import INTERNAL_TOPICS
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.image import ClusterImage

_SINCE_CONTROLLER: Final = 1
_SINCE_NULL_IS_ALL: Final = 1
_SINCE_CLUSTER_ID: Final = 2
_SINCE_THROTTLE_TIME: Final = 3
_SINCE_AUTO_CREATION: Final = 4
_CLUSTER_OPERATIONS: Final = range(8, 11)
_SINCE_LOOKUP_BY_ID: Final = 12
_SINCE_TOP_LEVEL_ERROR: Final = 13

# CREATE (5), ALTER (7), DESCRIBE (8), CLUSTER_ACTION (9), DESCRIBE_CONFIGS (10),
# ALTER_CONFIGS (11), IDEMPOTENT_WRITE (12); see TOPIC_OPERATIONS.
CLUSTER_OPERATIONS: Final = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


class AskedTopic(NamedTuple):
    name: str | None
    topic_id: UUID | None


class Asked(NamedTuple):
    topics: list[AskedTopic] | None
    auto_creation: bool
    cluster_operations: bool
    topic_operations: bool


def decode(request: ColdRequest) -> Asked:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.METADATA, version))
    topics: list[AskedTopic] | None = None
    count = reader.nullable_array() if version >= _SINCE_NULL_IS_ALL else reader.array()
    if count is not None and (count or version >= _SINCE_NULL_IS_ALL):
        topics = []
        for _ in range(count):
            topic_id = reader.uuid() if version >= SINCE_TOPIC_ID else None
            name = reader.nullable_string() if version >= SINCE_TOPIC_ID else reader.string()
            reader.tags()
            topics.append(AskedTopic(name, topic_id))
    auto_creation = reader.boolean() if version >= _SINCE_AUTO_CREATION else True
    cluster_operations = reader.boolean() if version in _CLUSTER_OPERATIONS else False
    topic_operations = reader.boolean() if version >= SINCE_TOPIC_OPERATIONS else False
    reader.tags()
    return Asked(topics, auto_creation, cluster_operations, topic_operations)


def handle(services: Services, request: ColdRequest) -> None:
    asked = decode(request)
    version = request.api_version
    image = services.controller.image
    if asked.topics is None:
        topics = services.metadata_cache.all_topics(
            image, version, request.listener, operations=asked.topic_operations
        )
    else:
        topics = _named_topics(services, request, image, asked, asked.topics)
    operations = CLUSTER_OPERATIONS if asked.cluster_operations else OPERATIONS_NOT_ASKED
    brokers = brokers_as_seen(services, request, image)
    controller = _some_broker(request, brokers)
    request.respond(encode(version, brokers, services.cluster_id, controller, topics, operations))


def _some_broker(request: ColdRequest, brokers: BrokersSeen) -> int:
    """Any of them, the same for a connection, so that the requests of admin clients spread."""
    number = int(request.connection_id.rpartition("-")[2])
    return list(brokers)[number % len(brokers)]


def _named_topics(
    services: Services,
    request: ColdRequest,
    image: ClusterImage,
    asked: Asked,
    topics: list[AskedTopic],
) -> bytes:
    """The array of the topics that a request names."""
    version = request.api_version
    ids = [topic.topic_id for topic in topics if topic.topic_id is not None]
    if ids and version < _SINCE_LOOKUP_BY_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "topics are looked up by id from v12 on")
    found: list[bytes] = []
    if ids:
        for topic_id in dict.fromkeys(ids):
            topic = image.topic_by_id(topic_id)
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
                found.append(encode_missing_topic(version, code, None, topic_id))
            else:
                found += services.metadata_cache.topics(
                    image,
                    version,
                    request.listener,
                    (topic,),
                    operations=asked.topic_operations,
                )
    else:
        found = _topics_by_name(services, request, image, asked, topics)
    out = Writer(flexible=is_flexible(ApiKey.METADATA, version))
    out.array(len(found))
    out.raw(b"".join(found))
    return out.getvalue()


def _topics_by_name(
    services: Services,
    request: ColdRequest,
    image: ClusterImage,
    asked: Asked,
    topics: list[AskedTopic],
) -> list[bytes]:
    version = request.api_version
    names: dict[str, None] = {}
    for topic in topics:
        if topic.name is None:
            # Where ids are for look-ups, Apache Kafka has no better word for it.
            known = version < _SINCE_LOOKUP_BY_ID
            code = ErrorCode.INVALID_REQUEST if known else ErrorCode.UNKNOWN_SERVER_ERROR
            raise KafkaError(code, "a topic without a name and without an id")
        names[topic.name] = None
    creatable: list[str] = []
    found: list[bytes] = []
    for name in names:
        image_topic = image.topic(name)
        if image_topic is not None:
            found += services.metadata_cache.topics(
                image,
                version,
                request.listener,
                (image_topic,),
                operations=asked.topic_operations,
            )
            continue
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if invalid_topic_name(name) is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif name not in INTERNAL_TOPICS:
            creatable.append(name)
        # Operations are a matter of the name, so they are told of a topic that is not there, too.
        operations = topic_operations(asked=asked.topic_operations)
        internal = name in INTERNAL_TOPICS
        found.append(encode_missing_topic(version, code, name, None, operations, internal=internal))
    if creatable and asked.auto_creation and services.config["auto.create.topics.enable"]:
        services.auto_topics.create(topic_creator(services), creatable)
    return found


def encode(
    version: int,
    brokers: BrokersSeen,
    cluster_id: str | None,
    controller_id: int,
    topics: bytes,
    cluster_operations: int,
    top_level: ErrorCode = ErrorCode.NONE,
) -> bytes:
    """The answer around its encoded array of topics."""
    out = Writer(flexible=is_flexible(ApiKey.METADATA, version))
    if version >= _SINCE_THROTTLE_TIME:
        out.int32(0)
    out.array(len(brokers))
    for node_id, (host, port, rack) in brokers.items():
        out.raw(encode_broker(version, node_id, host, port, rack))
    if version >= _SINCE_CLUSTER_ID:
        out.string(cluster_id)
    if version >= _SINCE_CONTROLLER:
        out.int32(controller_id)
    out.raw(topics)
    if version in _CLUSTER_OPERATIONS:
        out.int32(cluster_operations)
    if version >= _SINCE_TOP_LEVEL_ERROR:
        out.int16(top_level)
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    """The same error for every topic asked; v13 can say it once more above them."""
    version = request.api_version
    asked = decode(request).topics or []
    topics = Writer(flexible=is_flexible(ApiKey.METADATA, version))
    topics.array(len(asked))
    for topic in asked:
        topics.raw(encode_missing_topic(version, code, topic.name or "", topic.topic_id))
    return encode(version, {}, None, -1, topics.getvalue(), OPERATIONS_NOT_ASKED, code)
