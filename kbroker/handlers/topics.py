"""CreateTopics (19) and DeleteTopics (20): asked here, decided and done by the controller.

A handler checks what concerns the request as a whole (a topic named twice, a time-out that is over
already, deletion switched off) and hands the rest to the controller, which answers on its own
thread once the topics can be used, or are gone. Until then the request waits in a purgatory, which
answers REQUEST_TIMED_OUT at the end of the client's time; the work itself goes on. Every topic has
its own error, and the answer keeps the order of the request, a topic that was named twice at its
first place.

Any handler thread, then the controller's or the timer's; `Call` sees to one answer. Holds no lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kbroker import limits
from kbroker.config import ConfigEntry, TopicConfig, describe_topic
from kbroker.config.describe import describe_topic_key
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied, is_a_broker, may_on_cluster
from kbroker.handlers.delayed import await_decision
from kbroker.handlers.mutations import Mutations
from kbroker.handlers.reply import short_message
from kbroker.metadata.controller.decisions import NewTopic, TopicResult
from kbroker.metadata.image import ZERO_UUID
from kbroker.protocol import messages
from kbroker.protocol._messages import Encoded
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import encode_array_length
from kbroker.security.rights import Operation, ResourceType
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages import create_topics, delete_topics

_CREATE_SINCE_CONFIGS: Final = 5
_DELETE_SINCE_DISABLED_CODE: Final = 3
_DELETE_SINCE_ID: Final = 6

# The name of Apache Kafka's own metadata log, which no client may create.
_METADATA_TOPIC: Final = "__cluster_metadata"


_NOT_AUTHORIZED: Final = "Authorization failed."
_NO_SUCH_TOPIC: Final = "This server has no topic with this name."
_NOT_SAID: Final = -1  # of a number of partitions or replicas

# --- CreateTopics -----------------------------------------------------------------------------


def handle_create(services: Services, call: Call[create_topics.Request]) -> None:
    request = call.message
    if request.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    topics = [_new_topic(topic) for topic in request.topics]
    refused = _refused(topics)
    refused |= _not_creatable(services, call, [t.name for t in topics if t.name not in refused])
    specs = [topic for topic in topics if topic.name not in refused]
    names = list(dict.fromkeys(topic.name for topic in topics))
    config = services.config
    hidden = denied(
        services, call, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC,
        (spec.name for spec in specs), quiet=True,
    )  # fmt: skip

    mutations = Mutations(services, call)

    def finish(results: Sequence[TopicResult]) -> create_topics.Response:
        by_name = refused | {result.name: result for result in results}
        response = _created(call.version, [by_name[name] for name in names], config, hidden)
        response.throttle_time_ms = call.throttled(mutations.throttle_ms)
        return response

    if not specs:
        call.answer(finish(()))
        return
    done = await_decision(services.purgatories.topic, call, request.timeout_ms, finish)
    services.controller.create_topics(specs, request.validate_only, done, mutations.charge)


def _not_creatable(
    services: Services, call: Call[create_topics.Request], names: Sequence[str]
) -> dict[str | None, TopicResult]:
    """The topics that the client may not create."""
    # A broker asks for its internal topics, and for those that clients of it may create.
    if may_on_cluster(services, call, Operation.CREATE, quiet=True) or is_a_broker(services, call):
        return {}
    hidden = denied(services, call, Operation.CREATE, ResourceType.TOPIC, names)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return {name: TopicResult(name, code, _NOT_AUTHORIZED) for name in hidden}


def _new_topic(topic: create_topics.Topic) -> NewTopic:
    assignments = [(each.partition_index, tuple(each.broker_ids)) for each in topic.assignments]
    configs = {each.name: each.value for each in topic.configs}
    return NewTopic(
        topic.name, topic.num_partitions, topic.replication_factor, assignments or None, configs
    )


def _refused(topics: Sequence[NewTopic]) -> dict[str | None, TopicResult]:
    """The topics that are not even put to the controller."""
    refused: dict[str | None, TopicResult] = {}
    for name, times in Counter(topic.name for topic in topics).items():
        if times > 1:
            message = f"Topic '{name}' is in the request {times} times"
        elif name == _METADATA_TOPIC:
            message = f"Topic '{name}' cannot be created by a client"
        else:
            continue
        refused[name] = TopicResult(name, ErrorCode.INVALID_REQUEST, message)
    return refused


def _created(
    version: int,
    results: Sequence[TopicResult],
    config: BrokerConfig,
    hidden: frozenset[str] = frozenset(),
) -> create_topics.Response:
    """`config`: what topics that were made have beside their own settings; `hidden`: the topics
    whose settings the client may not see."""
    table = messages.create_topics
    described = _Described(version, config)
    left = limits.CREATED_SETTINGS_BYTES_MAX
    topics = []
    for result in results:
        topic = table.TopicResult(
            name=result.name or "",
            topic_id=result.topic_id,
            error_code=result.error,
            error_message=short_message(result.message),
            num_partitions=result.partitions,
            replication_factor=result.replication_factor,
        )
        topics.append(topic)
        if version < _CREATE_SINCE_CONFIGS or result.error is not ErrorCode.NONE:
            continue
        if result.name in hidden:
            topic.num_partitions = topic.replication_factor = _NOT_SAID
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        if left > 0:
            settings = described.keys_of(result.configs)
            left -= len(settings.data)
            topic.configs = settings
        else:
            topic.configs = None
            topic.topic_config_error_code = ErrorCode.INVALID_REQUEST
    return table.Response(topics=topics)


class _Described:
    """Every key of new topics, as their answer has them; what no topic has set is encoded once."""

    def __init__(self, version: int, config: BrokerConfig) -> None:
        self._version = version
        self._flexible = is_flexible(ApiKey.CREATE_TOPICS, version)
        self._config = config
        self._shared: dict[str, bytes] = {}
        self._without_own: Any = None

    def keys_of(self, own: Mapping[str, str]) -> Any:
        """An `Encoded` array of `ConfigResult`."""
        if not self._shared:
            entries = describe_topic(TopicConfig(self._config, {}))
            self._shared = {entry.name: self._encode(entry) for entry in entries}
            self._without_own = self._array(self._shared)
        if not own:
            return self._without_own
        config = TopicConfig(self._config, own)
        # An own value is answered as it was written: " 77 ", not 77.
        return self._array(
            self._shared
            | {
                name: self._encode(describe_topic_key(config, name)._replace(value=text))
                for name, text in own.items()
            }
        )

    def _array(self, keys: Mapping[str, bytes]) -> Encoded:
        count = encode_array_length(len(keys), flexible=self._flexible)
        return Encoded(b"".join((count, *keys.values())))

    def _encode(self, entry: ConfigEntry) -> bytes:
        result = messages.create_topics.ConfigResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        return result.encoded(self._version, flexible=self._flexible).data


# --- DeleteTopics -----------------------------------------------------------------------------


class _Deletion:
    """What to answer at once, what to ask the controller, and in which order they come back."""

    def __init__(self) -> None:
        self.order: list[TopicResult | int] = []  # an answer, or a place among `wanted`
        self.wanted: list[str | UUID] = []

    def refuse(self, name: str | None, topic_id: UUID | None, message: str) -> None:
        self.order.append(
            TopicResult(name, ErrorCode.INVALID_REQUEST, message, topic_id or ZERO_UUID)
        )

    def deny(self, name: str | None, topic_id: UUID | None) -> None:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self.order.append(TopicResult(name, code, _NOT_AUTHORIZED, topic_id or ZERO_UUID))

    def miss(self, name: str) -> None:
        self.order.append(TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_SUCH_TOPIC))

    def ask(self, topic: str | UUID) -> None:
        self.order.append(len(self.wanted))
        self.wanted.append(topic)

    def answers(self, results: Sequence[TopicResult]) -> list[TopicResult]:
        return [entry if isinstance(entry, TopicResult) else results[entry] for entry in self.order]


def handle_delete(services: Services, call: Call[delete_topics.Request]) -> None:
    request = call.message
    if not services.config["delete.topic.enable"]:
        known = call.version >= _DELETE_SINCE_DISABLED_CODE
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST)
    if request.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    deletion = _plan(services, _named(call), _undeletable(services, call))

    mutations = Mutations(services, call)

    def finish(results: Sequence[TopicResult]) -> delete_topics.Response:
        response = _deleted(deletion.answers(results))
        response.throttle_time_ms = call.throttled(mutations.throttle_ms)
        return response

    if not deletion.wanted:
        call.answer(finish(()))
        return
    done = await_decision(services.purgatories.topic, call, request.timeout_ms, finish)
    services.controller.delete_topics(deletion.wanted, done, mutations.charge)


def _named(call: Call[delete_topics.Request]) -> list[tuple[str | None, UUID | None]]:
    """The topics, by name or id."""
    if call.version < _DELETE_SINCE_ID:
        return [(name, None) for name in call.message.topic_names]
    return [(topic.name, topic.topic_id) for topic in call.message.topics]


def _each_once(topics: Sequence[tuple[str | None, UUID | None]]) -> Iterator[tuple[Any, Any]]:
    """In order; what names a topic in no way is answered as often as it is asked."""
    seen = set()
    for topic in topics:
        if topic not in seen:
            yield topic
        if topic != (None, None):
            seen.add(topic)


class _Undeletable(NamedTuple):
    """Names of topics that the client may not delete, and of those it may not even describe."""

    hidden: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()


def _undeletable(services: Services, call: Call[delete_topics.Request]) -> _Undeletable:
    if may_on_cluster(services, call, Operation.DELETE, quiet=True):
        return _Undeletable()
    image = services.controller.image
    names: dict[str, None] = {}
    for name, topic_id in _named(call):
        if name is None and topic_id is not None:
            known = image.topic_by_id(topic_id)
            name = None if known is None else known.name
        if name is not None:
            names[name] = None
    hidden = denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, names)
    left = [name for name in names if name not in hidden]
    return _Undeletable(hidden, denied(services, call, Operation.DELETE, ResourceType.TOPIC, left))


def _plan(
    services: Services,
    topics: Sequence[tuple[str | None, UUID | None]],
    undeletable: _Undeletable,
) -> _Deletion:
    """Refuse what names a topic in no way, in two ways or twice; ask for the rest."""
    image = services.controller.image
    times = Counter(topic for topic in topics if (topic[0] is None) != (topic[1] is None))
    deletion = _Deletion()
    for name, topic_id in _each_once(topics):
        if name is not None and topic_id is not None:
            deletion.refuse(name, topic_id, "A topic is given by name or by id, not by both")
        elif times[name, topic_id] > 1:
            deletion.refuse(name, topic_id, "The topic is in the request more than once")
        elif name is not None:
            known = image.topic(name)
            if name in undeletable.hidden or (known is not None and name in undeletable.kept):
                deletion.deny(name, None)
            elif name in undeletable.kept:  # another client may be about to create it
                deletion.miss(name)
            elif known is not None and times[None, known.topic_id]:
                deletion.refuse(name, known.topic_id, "The topic is in the request by its id, too")
            else:
                deletion.ask(name)
        elif topic_id is not None:
            by_id = image.topic_by_id(topic_id)
            if by_id is not None and by_id.name in undeletable.hidden:
                deletion.deny(None, topic_id)
            elif by_id is not None and by_id.name in undeletable.kept:
                deletion.deny(by_id.name, topic_id)
            elif by_id is None or not times[by_id.name, None]:
                deletion.ask(topic_id)
            # else: its name carries the one answer for both
        else:
            deletion.refuse(None, None, "Neither the name nor the id of a topic is given")
    return deletion


def _deleted(results: Sequence[TopicResult]) -> delete_topics.Response:
    table = messages.delete_topics
    return table.Response(
        responses=[
            table.TopicResult(
                name=result.name,
                topic_id=result.topic_id,
                error_code=result.error,
                error_message=short_message(result.message),
            )
            for result in results
        ]
    )


def delete_failure(
    call: Call[delete_topics.Request], code: ErrorCode, message: str | None
) -> delete_topics.Response:
    """A topic that is named twice is answered twice."""
    return _deleted(
        [TopicResult(name, code, message, id or ZERO_UUID) for name, id in _named(call)]
    )
