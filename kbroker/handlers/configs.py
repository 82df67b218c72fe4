"""DescribeConfigs (32): every key of a topic, of this broker or of its loggers, with its source.

Consoles and infrastructure tools compare these answers key by key, so all keys come back, in
alphabetical order, unless the request names some (names that do not exist are left out). Resources:
a topic by name; a broker, whose name must be this node's id, or empty for what is set at run time
for every broker; a broker's loggers, with the levels that hold for them; a group or a subscription
to client metrics by any name, since what does not exist has the defaults.

A console asks for hundreds of topics at once and most have the same overrides, so the encoded keys
of one set of overrides are kept while one request is answered. What is named again is told again,
within bounds (`repeats.py`).

Any handler thread; holds no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
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
from kbroker.handlers.repeats import Repeats
from kbroker.handlers.reply import told
from kbroker.metadata.image import ConfigKind
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
_KINDS: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})

_SINCE_TYPE_AND_HELP: Final = 3
_SOURCE_LOGGER: Final = 6
_TOLD_TOO_OFTEN: Final = "the same is told too often: once is enough, or ask for fewer at a time"
_TYPE_UNKNOWN: Final = 0


class AskedResource(NamedTuple):
    type: int
    name: str
    keys: frozenset[str]  # empty: all


class Asked(NamedTuple):
    resources: list[AskedResource]
    synonyms: bool
    documentation: bool


def decode(request: ColdRequest) -> Asked:
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


def handle_describe(services: Services, request: ColdRequest) -> None:
    asked = decode(request)
    unknown = {resource.type for resource in asked.resources}.difference(_KINDS)
    if unknown:
        # As Apache Kafka does: the client is broken, and nothing of its request is answered.
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"there are no resources of type {min(unknown)}"
        )
    describer = _Describer(services, request, asked)
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


class _Entries:
    """All keys of something, in their order."""

    def __init__(self, entries: Iterable[ConfigEntry]) -> None:
        self._all = list(entries)
        self._places = {entry.name: place for place, entry in enumerate(self._all)}

    def chosen(self, keys: frozenset[str]) -> list[ConfigEntry]:
        """Those of the keys that there are; none: all of them."""
        if not keys:
            return self._all
        places = sorted(self._places[key] for key in keys if key in self._places)
        return [self._all[place] for place in places]


# What has the same keys: the type of a resource and what is set for it, "" for a broker of its own.
_Settings = tuple[int, frozenset[tuple[str, str]] | str]


class _Describer:
    """The resources of one request, read from one image and one configuration."""

    def __init__(self, services: Services, request: ColdRequest, asked: Asked) -> None:
        self._image = services.controller.image
        self._config = services.config
        self._node_id = services.node_id
        self._version = request.api_version
        self._asked = asked
        self._entries: dict[_Settings, _Entries] = {}
        self._encoded: dict[tuple[_Settings, frozenset[str]], bytes] = {}
        self._repeats = Repeats(request)
        self._named: set[tuple[int, str]] = set()

    def encoded(self, resource: AskedResource) -> bytes:
        """The array of keys of one resource."""
        settings, describe = self._source(resource)
        place = (settings, resource.keys)
        known = self._encoded.get(place)
        # What need not exist has any number of names, a broker as many as there are zeros.
        again = known is not None and resource.type != TOPIC
        if known is None:
            entries = self._entries.get(settings)
            if entries is None:
                entries = self._entries[settings] = _Entries(describe())
            known = self._encoded[place] = self._encode(entries.chosen(resource.keys))
        name = (resource.type, resource.name)
        if (again or name in self._named) and not self._repeats.allow(len(known)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, _TOLD_TOO_OFTEN)
        self._named.add(name)
        return known

    def _source(
        self, resource: AskedResource
    ) -> tuple[_Settings, Callable[[], Iterable[ConfigEntry]]]:
        kind, name = resource.type, resource.name
        if kind == TOPIC:
            configs = self._topic_configs(name)
            topic = (kind, frozenset(configs.items()))
            return topic, lambda: describe_topic(TopicConfig(self._config, configs))
        if kind == BROKER and name == "":
            return (kind, "every"), partial(describe_every_broker, self._config)
        if kind == BROKER:
            check_node(self._node_id, name, "empty")
            return (kind, ""), partial(describe_broker, self._config)
        if kind == BROKER_LOGGER:
            check_node(self._node_id, name)
            return (kind, ""), _describe_loggers
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of the resource is empty")
        own = self._image.configs_of(ConfigKind(kind), name)
        settings = (kind, frozenset(own.items()))
        if kind == GROUP:
            return settings, partial(describe_group, self._config, own)
        return settings, partial(describe_client_metrics, own)

    def _topic_configs(self, name: str) -> Mapping[str, str]:
        reason = invalid_topic_name(name)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        topic = self._image.topic(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
        return topic.configs

    def _encode(self, chosen: Sequence[ConfigEntry]) -> bytes:
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


def describe_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    resources = decode(request).resources
    out = _begin(request.api_version, len(resources))
    for resource in resources:
        _write_result(out, resource, code, message or None)
        out.array(0)
        out.tags()
    out.tags()
    return out.getvalue()
