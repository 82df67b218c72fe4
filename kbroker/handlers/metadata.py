"""Metadata (3): which brokers and topics there are, who leads what; asked by every client, often.

A request asks for all topics (null, or in v0 an empty list), for none (empty), for some by name, or
from v12 for some by id; where ids are given, names are ignored. A name that does not exist is
UNKNOWN_TOPIC_OR_PARTITION, and its creation begins, which the answer does not wait for, if broker
and request both allow it; an invalid name is INVALID_TOPIC_EXCEPTION; an id that does not exist is
UNKNOWN_TOPIC_ID with a null name. Each topic asked is answered once, in the order of the request.

The node that the client is connected to appears under the address that it used, the others under
the ones they registered. `controller_id` is some live broker, by the number of the connection: it
is who an admin client sends its changes to, and every broker takes those. All topics come in the
order of their names.

Most requests never come here: `_metadata.pyx` answers them without the GIL, with these very bytes,
and passes on those that it must not decide. Tests compare its answers with this file's.

Everything is read from one image, so an answer is of one moment. Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.metadata_topics import OPERATIONS_NOT_ASKED, topic_operations
from kbroker.handlers.services import BrokersSeen, brokers_as_seen
from kbroker.handlers.topic_creation import topic_creator
from kbroker.metadata.image import INTERNAL_TOPICS
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.image import ClusterImage, TopicImage
    from kbroker.protocol.messages.metadata import MetadataRequestTopic, Request, Response

_SINCE_EMPTY_IS_NONE: Final = 1
_SINCE_LOOKUP_BY_ID: Final = 12

# CREATE (5), ALTER (7), DESCRIBE (8), CLUSTER_ACTION (9), DESCRIBE_CONFIGS (10),
# ALTER_CONFIGS (11), IDEMPOTENT_WRITE (12); see TOPIC_OPERATIONS.
CLUSTER_OPERATIONS: Final = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


def _wanted(call: Call[Request]) -> list[MetadataRequestTopic] | None:
    """The topics that are named; None: all."""
    if call.version < _SINCE_EMPTY_IS_NONE and not call.message.topics:
        return None
    return call.message.topics


def handle(services: Services, call: Call[Request]) -> None:
    table = messages.metadata
    request = call.message
    view = _View(services, call, services.controller.image)
    wanted = _wanted(call)
    topics = view.all_topics() if wanted is None else view.named_topics(wanted)
    seen = brokers_as_seen(services, call.request, view.image)
    asked = request.include_cluster_authorized_operations
    call.answer(
        table.Response(
            brokers=[
                table.MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, (host, port, rack) in seen.items()
            ],
            cluster_id=services.cluster_id,
            controller_id=_some_broker(call.request, seen),
            topics=topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_ASKED,
        )
    )


def _some_broker(request: ColdRequest, brokers: BrokersSeen) -> int:
    """Any of them, the same for a connection, so that the requests of admin clients spread."""
    number = int(request.connection_id.rpartition("-")[2])
    return list(brokers)[number % len(brokers)]


class _View:
    """What one request sees: the topics of one image."""

    def __init__(self, services: Services, call: Call[Request], image: ClusterImage) -> None:
        self.image = image
        self._services = services
        self._call = call
        self._operations = call.message.include_topic_authorized_operations

    def all_topics(self) -> list[Any]:
        return [self._found(self.image.topics[name]) for name in sorted(self.image.topics)]

    def named_topics(self, wanted: list[MetadataRequestTopic]) -> list[Any]:
        ids = dict.fromkeys(topic.topic_id for topic in wanted if topic.topic_id is not None)
        if ids and self._call.version < _SINCE_LOOKUP_BY_ID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "topics are looked up by id from v12 on")
        if not ids:
            return self._by_name(wanted)
        found: list[Any] = []
        for topic_id in ids:
            topic = self.image.topic_by_id(topic_id)
            if topic is not None:
                found.append(self._found(topic))
                continue
            missing = messages.metadata.MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
            )
            found.append(missing)
        return found

    def _found(self, topic: TopicImage) -> Any:
        return self._services.topics_kept.topic(
            self.image,
            self._call.version,
            self._call.request.listener,
            topic,
            operations=self._operations,
        )

    def _by_name(self, wanted: list[MetadataRequestTopic]) -> list[Any]:
        names: dict[str, None] = {}
        for topic in wanted:
            if topic.name is None:
                # Where ids are for look-ups, Apache Kafka has no better word for it.
                known = self._call.version < _SINCE_LOOKUP_BY_ID
                code = ErrorCode.INVALID_REQUEST if known else ErrorCode.UNKNOWN_SERVER_ERROR
                raise KafkaError(code, "a topic without a name and without an id")
            names[topic.name] = None
        creatable: list[str] = []
        found: list[Any] = []
        for name in names:
            known_topic = self.image.topic(name)
            if known_topic is not None:
                found.append(self._found(known_topic))
                continue
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if invalid_topic_name(name) is not None:
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif name not in INTERNAL_TOPICS:
                creatable.append(name)
            # Operations belong to the name, so a topic that is not there has them, too.
            missing = messages.metadata.MetadataResponseTopic(
                error_code=code,
                name=name,
                is_internal=name in INTERNAL_TOPICS,
                topic_authorized_operations=topic_operations(asked=self._operations),
            )
            found.append(missing)
        allowed = self._call.message.allow_auto_topic_creation
        if creatable and allowed and self._services.config["auto.create.topics.enable"]:
            creator = topic_creator(self._services)
            self._services.auto_topics.create(creator, creatable)
        return found


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """The same error for every topic asked; v13 can say it once more above them."""
    table = messages.metadata
    return table.Response(
        topics=[
            table.MetadataResponseTopic(
                error_code=code, name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in _wanted(call) or ()
        ],
        error_code=code,
    )
