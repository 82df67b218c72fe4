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
from kbroker.handlers.authorization import denied, may_on_cluster, operations_of
from kbroker.handlers.metadata_topics import OPERATIONS_NOT_ASKED, brokers_on, topic_entry
from kbroker.handlers.mutations import Mutations
from kbroker.handlers.services import BrokersSeen, brokers_as_seen
from kbroker.handlers.topic_creation import topic_creator
from kbroker.metadata.image import INTERNAL_TOPICS
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol import messages
from kbroker.security.rights import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbroker.handlers.call import Call
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.image import ClusterImage, TopicImage
    from kbroker.protocol.messages.metadata import MetadataRequestTopic, Request, Response

_SINCE_EMPTY_IS_NONE: Final = 1
_SINCE_LOOKUP_BY_ID: Final = 12

_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def cluster_operations(services: Services, call: Call[Any], *, wanted: bool) -> int:
    """None at all for a client that may not describe the cluster."""
    if not wanted:
        return OPERATIONS_NOT_ASKED
    if not may_on_cluster(services, call, Operation.DESCRIBE):
        return 0
    return operations_of(services, call, ResourceType.CLUSTER)(CLUSTER_NAME)


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
            cluster_authorized_operations=cluster_operations(services, call, wanted=asked),
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
        asked = call.message.include_topic_authorized_operations
        self._operations = asked
        self._operations_on = operations_of(services, call, ResourceType.TOPIC, wanted=asked)

    def all_topics(self) -> list[Any]:
        hidden = self._hidden(self.image.topics, quiet=True)
        names = sorted(self.image.topics)
        return [self._found(self.image.topics[name]) for name in names if name not in hidden]

    def _hidden(self, names: Iterable[str], *, quiet: bool = False) -> frozenset[str]:
        """Those of the topics that the client may not describe."""
        rights = Operation.DESCRIBE, ResourceType.TOPIC
        return denied(self._services, self._call, *rights, names, quiet=quiet)

    def named_topics(self, wanted: list[MetadataRequestTopic]) -> list[Any]:
        ids = dict.fromkeys(topic.topic_id for topic in wanted if topic.topic_id is not None)
        if ids and self._call.version < _SINCE_LOOKUP_BY_ID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "topics are looked up by id from v12 on")
        if not ids:
            return self._by_name(wanted)
        found: list[Any] = []
        known = [self.image.topic_by_id(topic_id) for topic_id in ids]
        hidden = self._hidden(topic.name for topic in known if topic is not None)
        for topic_id, topic in zip(ids, known, strict=True):
            if topic is not None and topic.name in hidden:
                found.append(
                    messages.metadata.MetadataResponseTopic(
                        error_code=_DENIED, name=None, topic_id=topic_id
                    )
                )
                continue
            if topic is not None:
                found.append(self._found(topic))
                continue
            missing = messages.metadata.MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
            )
            found.append(missing)
        return found

    def _found(self, topic: TopicImage) -> Any:
        if self._operations and self._services.authorizer is not None:
            # The operations are the client's own, so the topic is not one of those kept.
            brokers = brokers_on(self.image, self._call.request.listener, self._services.node_id)
            entry = topic_entry(self._call.version, topic, brokers, operations=True)
            entry.topic_authorized_operations = self._operations_on(topic.name)
            return entry
        return self._services.topics_kept.topic(
            self.image,
            self._call.version,
            self._call.request.listener,
            topic,
            operations=self._operations,
        )

    def _not_creatable(self, names: Iterable[str]) -> frozenset[str]:
        """Topics that would be created now, if the client might create them."""
        services, call = self._services, self._call
        if services.authorizer is None or not self._creates:
            return frozenset()
        missing = [
            name
            for name in names
            if name not in self.image.topics
            and invalid_topic_name(name) is None
            and name not in INTERNAL_TOPICS
        ]
        if not missing or may_on_cluster(services, call, Operation.CREATE, quiet=True):
            return frozenset()
        return denied(services, call, Operation.CREATE, ResourceType.TOPIC, missing)

    def _denied(self, name: str) -> Any:
        return messages.metadata.MetadataResponseTopic(
            error_code=_DENIED, name=name, is_internal=name in INTERNAL_TOPICS
        )

    @property
    def _creates(self) -> bool:
        asked: bool = self._call.message.allow_auto_topic_creation
        return asked and bool(self._services.config["auto.create.topics.enable"])

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
        hidden = self._hidden(names)
        hidden |= self._not_creatable([name for name in names if name not in hidden])
        for name in names:
            if name in hidden:
                found.append(self._denied(name))
                continue
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
                topic_authorized_operations=self._operations_on(name),
            )
            found.append(missing)
        if creatable and self._creates:
            creator, noted = topic_creator(self._services), None
            if self._services.audit is not None:
                from kbroker.handlers.audited import auto_creation  # few have an audit log

                noted = auto_creation(self._services.audit, self._call.session)
            charge = Mutations(self._services, self._call).charge
            self._services.auto_topics.create(creator, creatable, noted, charge)
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
