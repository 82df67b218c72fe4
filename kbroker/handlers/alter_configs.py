"""AlterConfigs (33) and IncrementalAlterConfigs (44): a topic's own settings, effective at once.

The first replaces all settings of a resource by those it names, the second sets and deletes single
keys and adds and takes away parts of lists. What is wrong with the request itself is found here (a
resource or a key named twice, a value that is missing, a name that no topic can have); the rest is
for the controller, which stores the new settings and has every log of the topic follow them before
it answers on its own thread. Each resource has its own error, in the order of the request; an
operation that does not exist is an error of the request and nothing of it is done.

Only topics have settings that can be altered so far. `_change` is where a kind of resource gets
them; for one that has none every change is refused with a sentence, and asking for no change at all
is granted. Loggers are no resources of AlterConfigs, which is older than they.

Any handler thread, then the controller's; `Reply` sees to one answer. Holds no lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    check_node,
)
from kbroker.handlers.reply import Reply, told
from kbroker.metadata.controller.decisions import ConfigChange, TopicResult
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol import cold
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import Request, Services

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
_OPERATIONS: Final = frozenset({SET, DELETE, APPEND, SUBTRACT})

_FIXED: Final = {
    BROKER: "a broker's settings are read when it starts",
    BROKER_LOGGER: "the levels of loggers are set when a broker starts",
    CLIENT_METRICS: "there are no subscriptions to client metrics",
    GROUP: "groups have no settings of their own",
}


class Operation(NamedTuple):
    key: str
    kind: int
    value: str | None


class Resource(NamedTuple):
    type: int
    name: str
    operations: tuple[Operation, ...]


def decode(request: Request) -> tuple[list[Resource], bool]:
    """The resources, and whether to check only."""
    asked = cold.decode(request)
    incremental = request.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS
    resources = [
        Resource(
            resource.resource_type,
            resource.resource_name,
            tuple(
                Operation(
                    config.name, config.config_operation if incremental else SET, config.value
                )
                for config in resource.configs
            ),
        )
        for resource in asked.resources
    ]
    return resources, asked.validate_only


def handle_alter(services: Services, request: Request) -> None:
    with Reply(request, failure) as reply:
        _alter(services, request, reply, replace=True)


def handle_incremental(services: Services, request: Request) -> None:
    with Reply(request, failure) as reply:
        _alter(services, request, reply, replace=False)


def _alter(services: Services, request: Request, reply: Reply, *, replace: bool) -> None:
    resources, validate_only = decode(request)
    refused = _refused(resources)
    changes: dict[int, ConfigChange] = {}
    for place, resource in enumerate(resources):
        if place in refused:
            continue
        try:
            change = _change(services, resource, replace=replace)
        except KafkaError as error:
            refused[place] = error
        else:
            if change is not None:
                changes[place] = change

    def finish(results: Sequence[TopicResult]) -> bytes:
        outcome: list[tuple[ErrorCode, str | None]] = [(ErrorCode.NONE, None)] * len(resources)
        for place, error in refused.items():
            outcome[place] = (error.code, error.message)
        for place, result in zip(changes, results, strict=True):
            outcome[place] = (result.error, result.message)
        return _encode(request, resources, outcome)

    if not changes:
        reply.send(partial(finish, ()))
        return

    def done(results: Sequence[TopicResult]) -> None:
        reply.send(partial(finish, results))

    services.controller.alter_topic_configs(list(changes.values()), validate_only, done)


def _refused(resources: Sequence[Resource]) -> dict[int, KafkaError]:
    """What is wrong with the request, by the place of the resource that cannot be served."""
    times = Counter((resource.type, resource.name) for resource in resources)
    refused: dict[int, KafkaError] = {}
    for place, resource in enumerate(resources):
        message = _mistake(resource, times[resource.type, resource.name])
        if message is not None:
            refused[place] = KafkaError(ErrorCode.INVALID_REQUEST, message)
        elif resource.type != BROKER and any(
            o.kind not in _OPERATIONS for o in resource.operations
        ):
            # As Apache Kafka does: the client is broken, and nothing of its request is done.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return refused


def _mistake(resource: Resource, times: int) -> str | None:
    if times > 1:
        return f"'{resource.name}' is in the request {times} times"
    without = [o.key for o in resource.operations if o.value is None and o.kind != DELETE]
    if without:
        return f"no value is given for {', '.join(without)}"
    if len({operation.key for operation in resource.operations}) != len(resource.operations):
        return "a key is in the request more than once"
    if resource.type != TOPIC and resource.type not in _FIXED:
        return f"there are no resources of type {resource.type} to alter"
    return None


def _change(services: Services, resource: Resource, *, replace: bool) -> ConfigChange | None:
    """What to ask the controller for; None if the resource is as it is wanted already."""
    if resource.type == TOPIC:
        return _topic_change(resource, replace=replace)
    if resource.type == BROKER_LOGGER and replace:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "loggers are altered with IncrementalAlterConfigs"
        )
    if resource.type == BROKER_LOGGER or (resource.type == BROKER and resource.name):
        check_node(services.node_id, resource.name)
    elif resource.type != BROKER and not resource.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of the resource is empty")
    if resource.operations:
        raise KafkaError(ErrorCode.INVALID_REQUEST, _FIXED[resource.type])
    return None


def _topic_change(resource: Resource, *, replace: bool) -> ConfigChange:
    if not resource.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "topics have no defaults of their own to alter")
    reason = invalid_topic_name(resource.name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)

    def values(kind: int) -> dict[str, str]:
        return {
            o.key: o.value for o in resource.operations if o.kind == kind and o.value is not None
        }

    return ConfigChange(
        resource.name,
        set=values(SET),
        remove=frozenset(o.key for o in resource.operations if o.kind == DELETE),
        replace=replace,
        append=values(APPEND),
        subtract=values(SUBTRACT),
    )


def _encode(
    request: Request,
    resources: Sequence[Resource],
    outcome: Sequence[tuple[ErrorCode, str | None]],
) -> bytes:
    key = ApiKey(request.api_key)
    module: Any = cold.response_module(key, request.api_version)
    responses = tuple(
        module.AlterConfigsResourceResponse(
            error_code=code,
            error_message=told(message),
            resource_type=resource.type,
            resource_name=resource.name,
        )
        for resource, (code, message) in zip(resources, outcome, strict=True)
    )
    response_class = getattr(module, f"{key.label}Response")
    return cold.encode(response_class(throttle_time=cold.NO_TIME, responses=responses))


def failure(request: Request, code: ErrorCode, message: str) -> bytes:
    resources, _ = decode(request)
    return _encode(request, resources, [(code, message or None)] * len(resources))
