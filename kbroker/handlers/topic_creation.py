"""Topics that this broker wants by itself, made by the controller wherever it is.

Place in the flow: a request names a topic that does not exist (`auto_topics.py`), or a group needs
its coordinator (`coordinator/group/offsets_topic.py`): both ask a `TopicCreator`. The controller
here is one; in a cluster it may be another broker, which is then asked as a client would ask it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.handlers.mutations import Charge
    from kbroker.handlers.services import Services
    from kbroker.metadata.controller.decisions import TopicResult

# No client waits for the creation; its request waits at the controller no longer than this.
TIMEOUT_MS: Final = 30_000
_VERSION: Final = 7


class TopicCreator(Protocol):
    def create_topics(
        self,
        specs: Sequence[Any],
        validate_only: bool,
        done: Callable[[Any], None],
        charge: Charge | None = None,
    ) -> None:
        """`done` gets one result per spec, in their order. `charge` is asked for the partitions of
        each topic, and may refuse it."""


def topic_creator(services: Services) -> TopicCreator:
    if services.peers is None or services.controller.active:
        return services.controller
    return _AnotherBroker(services)


class _AnotherBroker:
    """The controller, through the connection between brokers."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def create_topics(
        self,
        specs: Sequence[Any],
        validate_only: bool,
        done: Callable[[Any], None],
        charge: Charge | None = None,
    ) -> None:
        """As of `TopicCreator`. The controller takes this broker for the client, so what the real
        one owes is charged here; what it may not have is not asked for."""
        from kbroker.metadata.controller.decisions import TopicResult
        from kbroker.peer.messages import NewTopic, decode_create_topics, encode_create_topics
        from kbroker.protocol.wire import ProtocolError, Reader
        from kbroker.types import ApiKey

        image, peers = self._services.controller.image, self._services.peers
        broker = image.brokers.get(image.controller_id)
        refused = {} if charge is None else self._charged(specs, charge)
        wanted = [each for each in specs if each.name not in refused]

        def finish(results: Iterable[TopicResult]) -> None:
            of_each = refused | {each.name: each for each in results}
            missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller did not say.")
            done([
                of_each.get(each.name) or TopicResult.failed(each.name, missing) for each in specs
            ])  # fmt: skip

        def failed(error: KafkaError) -> None:
            finish([TopicResult.failed(each.name, error) for each in wanted])

        def answered(answer: bytes | KafkaError) -> None:
            if isinstance(answer, KafkaError):
                failed(answer)
                return
            try:
                results = decode_create_topics(Reader(answer, flexible=True), _VERSION)
            except ProtocolError as error:
                failed(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            else:
                finish([TopicResult(each.name, each.error, each.message) for each in results])

        if not wanted:
            finish(())
            return
        if peers is None or broker is None or broker.node_id == self._services.node_id:
            failed(KafkaError(ErrorCode.NOT_CONTROLLER, "There is no controller now."))
            return
        topics = [
            NewTopic(each.name, each.partitions, each.replication_factor, each.configs)
            for each in wanted
        ]
        body = encode_create_topics(
            _VERSION, topics, timeout_ms=TIMEOUT_MS, validate_only=validate_only
        )
        peers.forward(broker, int(ApiKey.CREATE_TOPICS), _VERSION, body, answered)

    def _charged(self, specs: Sequence[Any], charge: Charge) -> dict[str | None, TopicResult]:
        """Those that are refused. The partitions of a topic with the controller's defaults are
        counted by the settings of this broker."""
        from kbroker.metadata.controller.decisions import TopicResult

        default = self._services.config["num.partitions"]
        refused: dict[str | None, TopicResult] = {}
        for each in specs:
            error = charge(each.partitions if each.partitions > 0 else default)
            if error is not None:
                refused[each.name] = TopicResult.failed(each.name, error)
        return refused
