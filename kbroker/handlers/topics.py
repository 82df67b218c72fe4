"""CreateTopics (19) and DeleteTopics (20): asked here, decided and done by the controller.

A handler checks what concerns the request as a whole (a topic named twice, a time-out that is over
already, deletion switched off) and hands the rest to the controller, which answers on its own
thread once the topics can be used, or are gone. A timer answers REQUEST_TIMED_OUT if that takes
longer than the client waits; the work itself goes on. Every topic has its own error, and the answer
keeps the order of the request, a topic that was named twice at its first place.

Any handler thread, then the controller's or the timer's; `Reply` sees to one answer. Holds no lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kbroker import limits
from kbroker.config import ConfigEntry, TopicConfig, describe_topic
from kbroker.config.describe import describe_topic_key
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import Reply, answer_in_time, told
from kbroker.metadata.controller.decisions import NewTopic, TopicResult
from kbroker.metadata.image import ZERO_UUID
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer, encode_array_length
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.handlers.services import ColdRequest, Services

_CREATE_SINCE_CONFIGS: Final = 5
_CREATE_SINCE_ID: Final = 7
_DELETE_SINCE_DISABLED_CODE: Final = 3
_DELETE_SINCE_MESSAGE: Final = 5
_DELETE_SINCE_ID: Final = 6

# Tag 0: why a topic that was made is answered without its settings.
_WITHOUT_SETTINGS: Final = {0: int(ErrorCode.INVALID_REQUEST).to_bytes(2, "big")}

# The name of Apache Kafka's own metadata log, which no client may create.
_METADATA_TOPIC: Final = "__cluster_metadata"


# --- CreateTopics -----------------------------------------------------------------------------


def handle_create(services: Services, request: ColdRequest) -> None:
    with Reply(request, create_failure) as reply:
        _create(services, request, reply)


class _Asked(NamedTuple):
    topics: list[NewTopic]
    timeout_ms: int
    validate_only: bool


def decode_create(request: ColdRequest) -> _Asked:
    reader = Reader(request.body, flexible=is_flexible(ApiKey.CREATE_TOPICS, request.api_version))
    topics = [_new_topic(reader) for _ in range(reader.array())]
    asked = _Asked(topics, reader.int32(), reader.boolean())
    reader.tags()
    return asked


def _new_topic(reader: Reader) -> NewTopic:
    name, partitions, factor = reader.string(), reader.int32(), reader.int16()
    assignments = [_assignment(reader) for _ in range(reader.array())]
    configs: dict[str, str | None] = {}
    for _ in range(reader.array()):
        key = reader.string()
        configs[key] = reader.nullable_string()
        reader.tags()
    reader.tags()
    return NewTopic(name, partitions, factor, assignments or None, configs)


def _assignment(reader: Reader) -> tuple[int, tuple[int, ...]]:
    index = reader.int32()
    brokers = tuple([reader.int32() for _ in range(reader.array())])
    reader.tags()
    return index, brokers


def _create(services: Services, request: ColdRequest, reply: Reply) -> None:
    asked = decode_create(request)
    if asked.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    refused = _refused(asked.topics)
    specs = [topic for topic in asked.topics if topic.name not in refused]
    names = list(dict.fromkeys(topic.name for topic in asked.topics))
    config = services.config

    def finish(results: Sequence[TopicResult]) -> bytes:
        by_name = refused | {result.name: result for result in results}
        return _encode_created(request.api_version, [by_name[name] for name in names], config)

    if not specs:
        reply.send(partial(finish, ()))
        return
    done = answer_in_time(services, reply, asked.timeout_ms, finish)
    services.controller.create_topics(specs, asked.validate_only, done)


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


def _encode_created(
    version: int, results: Sequence[TopicResult], config: BrokerConfig | None = None
) -> bytes:
    """`config`: what topics that were made have beside their own settings."""
    described = None if config is None else _Described(version, config)
    left = limits.CREATED_SETTINGS_BYTES_MAX
    out = Writer(flexible=is_flexible(ApiKey.CREATE_TOPICS, version))
    out.int32(0)  # throttle time
    out.array(len(results))
    for result in results:
        out.string(result.name)
        if version >= _CREATE_SINCE_ID:
            out.uuid(result.topic_id)
        out.int16(result.error)
        out.string(told(result.message))
        tagged = {}
        if version >= _CREATE_SINCE_CONFIGS:
            out.int32(result.partitions)
            out.int16(result.replication_factor)
            if described is None or result.error is not ErrorCode.NONE:
                out.array(0)
            elif left > 0:
                settings = described.keys_of(result.configs)
                left -= len(settings)
                out.raw(settings)
            else:
                out.array(None)
                tagged = _WITHOUT_SETTINGS
        out.tags(tagged)
    out.tags()
    return out.getvalue()


class _Described:
    """Every key of new topics, as their answer has them; what no topic has set is encoded once."""

    def __init__(self, version: int, config: BrokerConfig) -> None:
        self._flexible = is_flexible(ApiKey.CREATE_TOPICS, version)
        self._config = config
        self._shared: dict[str, bytes] = {}
        self._without_own = b""

    def keys_of(self, own: Mapping[str, str]) -> bytes:
        if not self._shared:
            entries = describe_topic(TopicConfig(self._config, {}))
            self._shared = {entry.name: self._encode(entry) for entry in entries}
            self._without_own = self._array(self._shared)
        if not own:
            return self._without_own
        config = TopicConfig(self._config, own)
        # An own value is told as it was written: " 77 ", not 77.
        return self._array(
            self._shared
            | {
                name: self._encode(describe_topic_key(config, name)._replace(value=text))
                for name, text in own.items()
            }
        )

    def _array(self, keys: Mapping[str, bytes]) -> bytes:
        return encode_array_length(len(keys), flexible=self._flexible) + b"".join(keys.values())

    def _encode(self, entry: ConfigEntry) -> bytes:
        out = Writer(flexible=self._flexible)
        out.string(entry.name)
        out.string(entry.value)
        out.boolean(entry.read_only)
        out.int8(entry.source)
        out.boolean(entry.sensitive)
        out.tags()
        return out.getvalue()


def create_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    names = dict.fromkeys(topic.name for topic in decode_create(request).topics)
    results = [TopicResult(name, code, message or None) for name in names]
    return _encode_created(request.api_version, results)


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

    def ask(self, topic: str | UUID) -> None:
        self.order.append(len(self.wanted))
        self.wanted.append(topic)

    def answers(self, results: Sequence[TopicResult]) -> list[TopicResult]:
        return [entry if isinstance(entry, TopicResult) else results[entry] for entry in self.order]


def handle_delete(services: Services, request: ColdRequest) -> None:
    with Reply(request, delete_failure) as reply:
        _delete(services, request, reply)


def _delete(services: Services, request: ColdRequest, reply: Reply) -> None:
    topics, timeout_ms = decode_delete(request)
    if not services.config["delete.topic.enable"]:
        known = request.api_version >= _DELETE_SINCE_DISABLED_CODE
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST)
    if timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    deletion = _plan(services, topics)

    def finish(results: Sequence[TopicResult]) -> bytes:
        return _encode_deleted(request.api_version, deletion.answers(results))

    if not deletion.wanted:
        reply.send(partial(finish, ()))
        return
    done = answer_in_time(services, reply, timeout_ms, finish)
    services.controller.delete_topics(deletion.wanted, done)


def decode_delete(request: ColdRequest) -> tuple[list[tuple[str | None, UUID | None]], int]:
    """The topics, by name or id, and how many ms the client waits."""
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.DELETE_TOPICS, version))
    topics: list[tuple[str | None, UUID | None]] = []
    for _ in range(reader.array()):
        if version < _DELETE_SINCE_ID:
            topics.append((reader.string(), None))
        else:
            topics.append((reader.nullable_string(), reader.uuid()))
            reader.tags()
    timeout_ms = reader.int32()
    reader.tags()
    return topics, timeout_ms


def _each_once(topics: Sequence[tuple[str | None, UUID | None]]) -> Iterator[tuple[Any, Any]]:
    """In order; what names a topic in no way is answered as often as it is asked."""
    seen = set()
    for topic in topics:
        if topic not in seen:
            yield topic
        if topic != (None, None):
            seen.add(topic)


def _plan(services: Services, topics: Sequence[tuple[str | None, UUID | None]]) -> _Deletion:
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
            if known is not None and times[None, known.topic_id]:
                deletion.refuse(name, known.topic_id, "The topic is in the request by its id, too")
            else:
                deletion.ask(name)
        elif topic_id is not None:
            by_id = image.topic_by_id(topic_id)
            if by_id is None or not times[by_id.name, None]:
                deletion.ask(topic_id)
            # else: its name carries the one answer for both
        else:
            deletion.refuse(None, None, "Neither the name nor the id of a topic is given")
    return deletion


def _encode_deleted(version: int, results: Sequence[TopicResult]) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.DELETE_TOPICS, version))
    out.int32(0)  # throttle time
    out.array(len(results))
    for result in results:
        out.string(result.name)
        if version >= _DELETE_SINCE_ID:
            out.uuid(result.topic_id)
        out.int16(result.error)
        if version >= _DELETE_SINCE_MESSAGE:
            out.string(told(result.message))
        out.tags()
    out.tags()
    return out.getvalue()


def delete_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    topics, _ = decode_delete(request)
    results = [TopicResult(name, code, message or None, id or ZERO_UUID) for name, id in topics]
    return _encode_deleted(request.api_version, results)
