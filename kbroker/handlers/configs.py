"""DescribeConfigs (32): every key of a topic, of this broker or of its loggers, with its source.

Consoles and infrastructure tools compare these answers key by key, so all keys are returned, in
alphabetical order, unless the request names some (names that do not exist are left out). Resources:
a topic by name; a broker, whose name must be this node's id, or empty for the settings at run time
of all brokers; a broker's loggers, with the levels in force; a group or a subscription to client
metrics by any name, since one that does not exist has the defaults.

A console asks for hundreds of topics at once and most have the same overrides, so the encoded keys
of one set of overrides are kept while one request is answered. A resource that is named again is
answered again, within bounds (`repeats.py`).

Any handler thread; holds no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

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
from kbroker.handlers.authorization import denied
from kbroker.handlers.repeats import Repeats
from kbroker.handlers.reply import short_message
from kbroker.metadata.image import ConfigKind
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol import messages
from kbroker.protocol.versions import is_flexible
from kbroker.security.rights import CLUSTER_NAME, DENIED, DENIED_WORDS, Operation, ResourceType
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol._messages import Encoded
    from kbroker.protocol.messages.describe_configs import (
        DescribeConfigsResource,
        DescribeConfigsResult,
        DescribeConfigsSynonym,
        Request,
    )

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
_KINDS: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})

_SOURCE_LOGGER: Final = 6
_REPEATED_TOO_OFTEN: Final = (
    "the same resource is named too often: name it once, or fewer at a time"
)
_TYPE_UNKNOWN: Final = 0


def handle_describe(services: Services, call: Call[Request]) -> None:
    resources = call.message.resources
    unknown = {resource.resource_type for resource in resources}.difference(_KINDS)
    if unknown:
        # As Apache Kafka does: the client is broken, and nothing of its request is answered.
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"there are no resources of type {min(unknown)}"
        )
    named = [(resource.resource_type, resource.resource_name) for resource in resources]
    hidden = unauthorized(services, call, Operation.DESCRIBE_CONFIGS, named)
    describer = _Describer(services, call, hidden)
    results = [describer.described(resource) for resource in resources]
    call.answer(messages.describe_configs.Response(results=results))


def unauthorized(
    services: Services,
    call: Call[Any],
    operation: Operation,
    named: Sequence[tuple[int, str]],
) -> Mapping[tuple[int, str], KafkaError]:
    """The resources whose settings the client may not describe or alter, and their errors."""
    if services.authorizer is None:
        return {}
    found: dict[tuple[int, str], KafkaError] = {}
    for type_, kinds in (
        (ResourceType.CLUSTER, (BROKER, BROKER_LOGGER, CLIENT_METRICS)),
        (ResourceType.TOPIC, (TOPIC,)),
        (ResourceType.GROUP, (GROUP,)),
    ):
        of_type = [each for each in named if each[0] in kinds]
        is_cluster = type_ is ResourceType.CLUSTER
        names = [CLUSTER_NAME if is_cluster else name for _, name in of_type]
        hidden = denied(services, call, operation, type_, names)
        for each, name in zip(of_type, names, strict=True):
            if name in hidden:
                found[each] = KafkaError(DENIED[type_], DENIED_WORDS[type_])
    return found


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


# Resources with equal values have the same keys: the type and the settings, "" for this broker.
_Settings = tuple[int, frozenset[tuple[str, str]] | str]


class _Describer:
    """The resources of one request, read from one image and one configuration."""

    def __init__(
        self,
        services: Services,
        call: Call[Request],
        hidden: Mapping[tuple[int, str], KafkaError],
    ) -> None:
        self._hidden = hidden
        self._image = services.controller.image
        self._config = services.config
        self._node_id = services.node_id
        self._version = call.version
        self._flexible = is_flexible(ApiKey.DESCRIBE_CONFIGS, call.version)
        self._synonyms = call.message.include_synonyms
        self._documentation = call.message.include_documentation
        self._entries: dict[_Settings, _Entries] = {}
        self._encoded: dict[tuple[_Settings, frozenset[str]], Encoded] = {}
        self._repeats = Repeats(call.request)
        self._named: set[tuple[int, str]] = set()

    def described(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        result = messages.describe_configs.DescribeConfigsResult(
            error_code=ErrorCode.NONE,
            error_message="",  # as Apache Kafka: empty, not null
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            hidden = self._hidden.get((resource.resource_type, resource.resource_name))
            if hidden is not None:
                raise hidden
            result.configs = self._configs(resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, short_message(error.message)
        return result

    def _configs(self, resource: DescribeConfigsResource) -> Any:
        """The array of keys of one resource, encoded."""
        settings, describe = self._source(resource)
        keys = frozenset(resource.configuration_keys or ())
        place = (settings, keys)
        known = self._encoded.get(place)
        # What need not exist has any number of names, a broker as many as there are zeros.
        again = known is not None and resource.resource_type != TOPIC
        if known is None:
            entries = self._entries.get(settings)
            if entries is None:
                entries = self._entries[settings] = _Entries(describe())
            known = self._encoded[place] = self._encode(entries.chosen(keys))
        name = (resource.resource_type, resource.resource_name)
        if (again or name in self._named) and not self._repeats.allow(len(known.data)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, _REPEATED_TOO_OFTEN)
        self._named.add(name)
        return known

    def _source(
        self, resource: DescribeConfigsResource
    ) -> tuple[_Settings, Callable[[], Iterable[ConfigEntry]]]:
        kind, name = resource.resource_type, resource.resource_name
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

    def _encode(self, chosen: Sequence[ConfigEntry]) -> Encoded:
        record = messages.describe_configs.DescribeConfigsResourceResult
        keys = [
            record(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
                synonyms=_synonyms(entry) if self._synonyms else [],
                config_type=entry.type,
                documentation=entry.documentation if self._documentation else None,
            )
            for entry in chosen
        ]
        return record.plan(self._version, flexible=self._flexible).encode_array(keys)


def _synonyms(entry: ConfigEntry) -> list[DescribeConfigsSynonym]:
    record = messages.describe_configs.DescribeConfigsSynonym
    return [record(name=name, value=value, source=source) for name, value, source in entry.synonyms]


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
