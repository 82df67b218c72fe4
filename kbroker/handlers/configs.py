"""DescribeConfigs (32): every key of a topic, of this broker or of its loggers, with its source.

Consoles and infrastructure tools compare these answers key by key, so all keys come back, in
alphabetical order, unless the request names some (names that do not exist are left out). Resources:
a topic by name; a broker, whose name must be this node's id, or empty for what is set at run time
for every broker; a broker's loggers, with the levels that hold for them; a group or a subscription
to client metrics by any name, since what does not exist has the defaults.

A console asks for hundreds of topics at once and most have the same overrides, so the encoded keys
of one set of overrides are kept while one request is answered.

Any handler thread; holds no lock; does not import the schema library.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.config import (
    ConfigEntry,
    TopicConfig,
    describe_broker,
    describe_client_metrics,
    describe_every_broker,
    describe_group,
    describe_topic,
)
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers import loggers
from kbroker.handlers.reply import told
from kbroker.metadata.image import ConfigKind
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import Request, Services

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
_KINDS: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})

_SINCE_TYPE_AND_HELP: Final = 3
_SOURCE_LOGGER: Final = 6
_TYPE_UNKNOWN: Final = 0


class AskedResource(NamedTuple):
    type: int
    name: str
    keys: frozenset[str]  # empty: all


class Asked(NamedTuple):
    resources: list[AskedResource]
    synonyms: bool
    documentation: bool


def decode(request: Request) -> Asked:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.DESCRIBE_CONFIGS, version))
    resources = []
    for _ in range(reader.array()):
        resource_type = reader.int8()
        name = reader.string()
        keys = frozenset(reader.string() for _ in range(reader.nullable_array() or 0))
        reader.tags()
        resources.append(AskedResource(resource_type, name, keys))
    synonyms = reader.boolean()
    documentation = reader.boolean() if version >= _SINCE_TYPE_AND_HELP else False
    reader.tags()
    return Asked(resources, synonyms, documentation)


def handle_describe(services: Services, request: Request) -> None:
    asked = decode(request)
    unknown = {resource.type for resource in asked.resources}.difference(_KINDS)
    if unknown:
        # As Apache Kafka does: the client is broken, and nothing of its request is answered.
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"there are no resources of type {min(unknown)}"
        )
    describer = _Describer(services, request.api_version, asked)
    out = _begin(request.api_version, len(asked.resources))
    for resource in asked.resources:
        try:
            configs = describer.encoded(resource)
        except KafkaError as error:
            _write_result(out, resource, error.code, error.message)
            out.array(0)
        else:
            _write_result(out, resource, ErrorCode.NONE, "")  # as Apache Kafka: empty, not null
            out.raw(configs)
        out.tags()
    out.tags()
    request.respond(out.getvalue())


def _begin(version: int, count: int) -> Writer:
    out = Writer(flexible=is_flexible(ApiKey.DESCRIBE_CONFIGS, version))
    out.int32(0)  # throttle time
    out.array(count)
    return out


def _write_result(
    out: Writer, resource: AskedResource, code: ErrorCode, message: str | None
) -> None:
    out.int16(code)
    out.string(told(message))
    out.int8(resource.type)
    out.string(resource.name)


class _Describer:
    """The resources of one request, read from one image and one configuration."""

    def __init__(self, services: Services, version: int, asked: Asked) -> None:
        self._image = services.controller.image
        self._config = services.config
        self._node_id = services.node_id
        self._version = version
        self._asked = asked
        self._topics: dict[tuple[frozenset[tuple[str, str]], frozenset[str]], bytes] = {}

    def encoded(self, resource: AskedResource) -> bytes:
        """The array of keys of one resource."""
        if resource.type == TOPIC:
            return self._topic(resource)
        if resource.type == BROKER:
            if resource.name == "":
                return self._encode(resource, describe_every_broker(self._config))
            check_node(self._node_id, resource.name, "empty")
            return self._encode(resource, describe_broker(self._config))
        if resource.type == BROKER_LOGGER:
            check_node(self._node_id, resource.name)
            return self._encode(resource, _describe_loggers())
        if not resource.name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of the resource is empty")
        own = self._image.configs_of(ConfigKind(resource.type), resource.name)
        if resource.type == GROUP:
            return self._encode(resource, describe_group(self._config, own))
        return self._encode(resource, describe_client_metrics(own))

    def _topic(self, resource: AskedResource) -> bytes:
        reason = invalid_topic_name(resource.name)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        topic = self._image.topic(resource.name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{resource.name}'"
            )
        key = (frozenset(topic.configs.items()), resource.keys)
        known = self._topics.get(key)
        if known is None:
            entries = describe_topic(TopicConfig(self._config, topic.configs))
            known = self._topics[key] = self._encode(resource, entries)
        return known

    def _encode(self, resource: AskedResource, entries: Iterable[ConfigEntry]) -> bytes:
        chosen = [e for e in entries if not resource.keys or e.name in resource.keys]
        out = Writer(flexible=is_flexible(ApiKey.DESCRIBE_CONFIGS, self._version))
        out.array(len(chosen))
        for entry in chosen:
            out.string(entry.name)
            out.string(entry.value)
            out.boolean(entry.read_only)
            out.int8(entry.source)
            out.boolean(entry.sensitive)
            synonyms = entry.synonyms if self._asked.synonyms else ()
            out.array(len(synonyms))
            for name, value, source in synonyms:
                out.string(name)
                out.string(value)
                out.int8(source)
                out.tags()
            if self._version >= _SINCE_TYPE_AND_HELP:
                out.int8(entry.type)
                out.string(entry.documentation if self._asked.documentation else None)
            out.tags()
        return out.getvalue()


def check_node(node_id: int, name: str, otherwise: str = "") -> None:
    """Whether the name of a resource is this node's id: a sign and zeros before it are allowed."""
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not (digits.isascii() and digits.isdigit()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a broker id is a number, not '{name}'")
    if (digits.lstrip("0") or "0") != str(node_id) or (name[0] == "-" and node_id):
        wanted = f"{node_id} or {otherwise}" if otherwise else f"{node_id}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {node_id}: ask for {wanted}")


def _describe_loggers() -> list[ConfigEntry]:
    """The root logger and those of this broker, by name, with the level that holds for each."""
    return [
        ConfigEntry(
            name=name,
            value=level,
            source=_SOURCE_LOGGER,
            read_only=False,
            sensitive=False,
            is_default=False,
            type=_TYPE_UNKNOWN,
            documentation="",
            synonyms=[],
        )
        for name, level in loggers.levels()
    ]


def describe_failure(request: Request, code: ErrorCode, message: str) -> bytes:
    resources = decode(request).resources
    out = _begin(request.api_version, len(resources))
    for resource in resources:
        _write_result(out, resource, code, message or None)
        out.array(0)
        out.tags()
    out.tags()
    return out.getvalue()
