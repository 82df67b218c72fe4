"""AlterConfigs (33) and IncrementalAlterConfigs (44): settings that are changed at run time.

The first replaces all settings of a resource by those it names, the second sets and deletes single
keys and adds and takes away parts of lists. What is wrong with the request itself is found here (a
resource or a key named twice, a value that is missing, a name that no topic can have); the rest is
for the controller, which stores the new settings and has the broker follow them before it answers
on its own thread: every log of a topic, the thread pools and bounds of a broker. Each resource has
its own error, in the order of the request; an operation that does not exist is an error of the
request and nothing of it is done, unless it is about a broker.

Resources are topics, brokers (one by its id, all by the empty name), groups and subscriptions to
client metrics. Loggers are no resources of AlterConfigs, which is older than they; the incremental
API changes their levels here, at once, and stores nothing.

Any handler thread, then the controller's; `Call` sees to one answer. Holds no lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers import loggers
from kbroker.handlers.configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    check_node,
    unauthorized,
)
from kbroker.handlers.forwarding import is_from_a_broker
from kbroker.handlers.reply import short_message
from kbroker.metadata.controller.config_changes import ResourceChange
from kbroker.metadata.controller.decisions import ConfigChange, TopicResult
from kbroker.metadata.image import ConfigKind, ConfigResource
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol import messages
from kbroker.security import rights
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.protocol.messages import alter_configs, incremental_alter_configs
    from kbroker.protocol.messages.table import Message

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
_OPERATIONS: Final = frozenset({SET, DELETE, APPEND, SUBTRACT})

_RESOURCES: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})


# The answer for one resource.
Outcome = tuple[ErrorCode, str | None]
_DONE: Final[Outcome] = (ErrorCode.NONE, None)


class Operation(NamedTuple):
    key: str
    kind: int
    value: str | None


class Resource(NamedTuple):
    type: int
    name: str
    operations: tuple[Operation, ...]


def handle_alter(services: Services, call: Call[alter_configs.Request]) -> None:
    resources = [
        Resource(
            each.resource_type,
            each.resource_name,
            tuple([Operation(config.name, SET, config.value) for config in each.configs]),
        )
        for each in call.message.resources
    ]
    _alter(services, call, resources, replace=True)


def handle_incremental(services: Services, call: Call[incremental_alter_configs.Request]) -> None:
    resources = [
        Resource(
            each.resource_type,
            each.resource_name,
            tuple([Operation(c.name, c.config_operation, c.value) for c in each.configs]),
        )
        for each in call.message.resources
    ]
    _alter(services, call, resources, replace=False)


def is_for_controller(services: Services, message: Any) -> bool:
    """Whether the controller has to alter these: any broker takes such a request. A broker takes
    those for its own loggers itself, and refuses those for another broker."""
    return all(
        _is_for_the_controller(services, each.resource_type, each.resource_name)
        for each in message.resources
    )


def _is_for_the_controller(services: Services, kind: int, name: str) -> bool:
    if kind != BROKER or not name:
        return kind != BROKER_LOGGER
    try:
        check_node(services.node_id, name)
    except KafkaError:
        return False
    return True


def _alter(
    services: Services, call: Call[Any], resources: list[Resource], *, replace: bool
) -> None:
    validate_only = call.message.validate_only
    outcome: dict[int, Outcome] = {
        place: _outcome_of(error) for place, error in _refused(resources).items()
    }
    hidden = unauthorized(
        services,
        call,
        rights.Operation.ALTER_CONFIGS,
        [(each.type, each.name) for place, each in enumerate(resources) if place not in outcome],
    )
    for place, resource in enumerate(resources):
        if place not in outcome and (resource.type, resource.name) in hidden:
            code, words = _outcome_of(hidden[resource.type, resource.name])
            outcome[place] = code, None if resource.type == BROKER_LOGGER else words
    topics: dict[int, ConfigChange] = {}
    others: dict[int, ResourceChange] = {}
    for place, resource in enumerate(resources):
        if place in outcome:
            continue
        try:
            if resource.type == TOPIC:
                topics[place] = _topic_change(resource, replace=replace)
            elif resource.type == BROKER_LOGGER:
                _change_loggers(services, resource, replace=replace, validate_only=validate_only)
                outcome[place] = _DONE
            else:
                node_id = _node_of(services, call.request, resource)
                others[place] = _resource_change(node_id, resource, replace=replace)
        except KafkaError as error:
            outcome[place] = _outcome_of(error)

    def finish() -> None:
        outcomes = [outcome[place] for place in range(len(resources))]
        call.answer(_response(call, resources, outcomes))

    def topics_done(results: Sequence[TopicResult]) -> None:
        for place, result in zip(topics, results, strict=True):
            outcome[place] = (result.error, result.message)
        finish()

    def others_done(results: Sequence[KafkaError | None]) -> None:
        for place, error in zip(others, results, strict=True):
            outcome[place] = _DONE if error is None else _outcome_of(error)
        if topics:
            services.controller.alter_topic_configs(
                list(topics.values()), validate_only, topics_done
            )
        else:
            finish()

    if others:
        services.controller.alter_resource_configs(
            list(others.values()), validate_only, others_done
        )
    else:
        others_done(())


def _outcome_of(error: KafkaError) -> Outcome:
    return error.code, error.message


def _refused(resources: Sequence[Resource]) -> dict[int, KafkaError]:
    """What is wrong with the request, by the place of the resource that cannot be served."""
    named = [_named(resource) for resource in resources]
    several = {
        each: KafkaError(ErrorCode.INVALID_REQUEST, f"'{each[1]}' is in the request {count} times")
        for each, count in Counter(named).items()
        if count > 1
    }
    refused: dict[int, KafkaError] = {}
    for place, resource in enumerate(resources):
        if several and (twice := several.get(named[place])) is not None:
            refused[place] = twice
        elif (message := _mistake(resource)) is not None:
            refused[place] = KafkaError(ErrorCode.INVALID_REQUEST, message)
        elif resource.type != BROKER and _unknown_operations(resource):
            # As Apache Kafka does: the client is broken, and nothing of its request is done.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return refused


def _named(resource: Resource) -> tuple[int, str]:
    """A broker is the same one however its number is written: 1, +1, 001."""
    name = resource.name
    if name and resource.type in (BROKER, BROKER_LOGGER):
        name = name.lstrip("+-").lstrip("0") or "0"
    return resource.type, name


def _mistake(resource: Resource) -> str | None:
    if resource.operations:
        without = [o.key for o in resource.operations if o.value is None and o.kind != DELETE]
        if without:
            return f"no value is given for {', '.join(without)}"
        if len({operation.key for operation in resource.operations}) != len(resource.operations):
            return "a key is in the request more than once"
    if resource.type not in _RESOURCES:
        return f"there are no resources of type {resource.type} to alter"
    return None


def _change_loggers(
    services: Services, resource: Resource, *, replace: bool, validate_only: bool
) -> None:
    """All levels of the request, or none if one of them cannot be set."""
    if replace:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "loggers are altered with IncrementalAlterConfigs"
        )
    check_node(services.node_id, resource.name)
    for operation in resource.operations:
        if operation.kind in (APPEND, SUBTRACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a logger's level is no list")
        loggers.check(operation.key, operation.value if operation.kind == SET else None)
    if validate_only:
        return
    for operation in resource.operations:
        loggers.change(operation.key, operation.value if operation.kind == SET else None)


def _node_of(services: Services, request: ColdRequest, resource: Resource) -> int:
    """The broker that a client means: this one, or the one that handed its request on."""
    if not is_from_a_broker(services, request) or resource.type != BROKER:
        return services.node_id
    known = {str(node_id): node_id for node_id in services.controller.image.brokers}
    return known.get(_named(resource)[1], services.node_id)


def _resource_change(node_id: int, resource: Resource, *, replace: bool) -> ResourceChange:
    if resource.type != BROKER and not resource.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of the resource is empty")
    name = resource.name
    if resource.type == BROKER and name:
        check_node(node_id, name)
        name = str(node_id)  # however it was written
    altered = ConfigResource(ConfigKind(resource.type), name)
    if not resource.operations:
        return ResourceChange(altered, replace=replace)
    unknown = _unknown_operations(resource)
    if unknown:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no operation {unknown[0]}")
    return ResourceChange(
        altered,
        set=_values(resource, SET),
        remove=frozenset(o.key for o in resource.operations if o.kind == DELETE),
        replace=replace,
        append=_values(resource, APPEND),
        subtract=_values(resource, SUBTRACT),
    )


def _unknown_operations(resource: Resource) -> list[int]:
    return [o.kind for o in resource.operations if o.kind not in _OPERATIONS]


def _values(resource: Resource, kind: int) -> dict[str, str]:
    return {o.key: o.value for o in resource.operations if o.kind == kind and o.value is not None}


def _topic_change(resource: Resource, *, replace: bool) -> ConfigChange:
    if not resource.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "topics have no defaults of their own to alter")
    reason = invalid_topic_name(resource.name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if not resource.operations:  # a request may name ten thousand topics and nothing of them
        return ConfigChange(resource.name, replace=replace)
    return ConfigChange(
        resource.name,
        set=_values(resource, SET),
        remove=frozenset(o.key for o in resource.operations if o.kind == DELETE),
        replace=replace,
        append=_values(resource, APPEND),
        subtract=_values(resource, SUBTRACT),
    )


def _response(
    call: Call[Any], resources: Sequence[Resource], outcomes: Sequence[Outcome]
) -> Message:
    """The two APIs have the same response."""
    table: Any = messages.incremental_alter_configs
    if call.request.api_key == ApiKey.ALTER_CONFIGS:
        table = messages.alter_configs
    response: Message = table.Response(
        responses=[
            table.AlterConfigsResourceResponse(
                error_code=code,
                error_message=short_message(message),
                resource_type=resource.type,
                resource_name=resource.name,
            )
            for resource, (code, message) in zip(resources, outcomes, strict=True)
        ]
    )
    return response
