"""Topics that this broker wants by itself, made by the controller wherever it is.

Place in the flow: a request names a topic that does not exist (`auto_topics.py`), or a group needs
its coordinator (`coordinator/group/offsets_topic.py`): both ask a `TopicCreator`. The controller
here is one; in a cluster it may be another broker, which is then asked as a client would ask it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.handlers.services import Services

# No client waits for the creation; its request waits at the controller no longer than this.
TIMEOUT_MS: Final = 30_000
_VERSION: Final = 7


class TopicCreator(Protocol):
    def create_topics(
        self, specs: Sequence[Any], validate_only: bool, done: Callable[[Any], None]
    ) -> None:
        """`done` gets one result per spec, in their order."""


def topic_creator(services: Services) -> TopicCreator:
    if services.peers is None or services.controller.active:
        return services.controller
    return _AnotherBroker(services)


class _AnotherBroker:
    """The controller, through the connection between brokers."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def create_topics(
        self, specs: Sequence[Any], validate_only: bool, done: Callable[[Any], None]
    ) -> None:
        from kbroker.metadata.controller.decisions import TopicResult
        from kbroker.peer.messages import NewTopic, decode_create_topics, encode_create_topics
        from kbroker.protocol.wire import ProtocolError, Reader
        from kbroker.types import ApiKey

        image, peers = self._services.controller.image, self._services.peers
        broker = image.brokers.get(image.controller_id)

        def failed(error: KafkaError) -> None:
            done([TopicResult.failed(each.name, error) for each in specs])

        def answered(answer: bytes | KafkaError) -> None:
            if isinstance(answer, KafkaError):
                failed(answer)
                return
            try:
                results = decode_create_topics(Reader(answer, flexible=True), _VERSION)
            except ProtocolError as error:
                failed(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            else:
                done([TopicResult(each.name, each.error, each.message) for each in results])

        if peers is None or broker is None or broker.node_id == self._services.node_id:
            failed(KafkaError(ErrorCode.NOT_CONTROLLER, "There is no controller now."))
            return
        topics = [
            NewTopic(each.name, each.partitions, each.replication_factor, each.configs)
            for each in specs
        ]
        body = encode_create_topics(
            _VERSION, topics, timeout_ms=TIMEOUT_MS, validate_only=validate_only
        )
        peers.forward(broker, int(ApiKey.CREATE_TOPICS), _VERSION, body, answered)
