"""ListConfigResources (74): the names of the resources that can have a configuration.

Version 0 lists the subscriptions to client metrics. Version 1 lists the kinds
that are asked for, or every kind: topics, brokers and their loggers, the groups and subscriptions
that have settings of their own. A kind that does not exist is UNSUPPORTED_VERSION for the whole
request.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import ClusterImage
    from kbroker.protocol.messages.list_config_resources import Request

# In the order in which Apache Kafka lists them.
_KINDS: Final[tuple[int, ...]] = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
_SINCE_KINDS: Final = 1


def handle(services: Services, call: Call[Request]) -> None:
    table = messages.list_config_resources
    kinds = frozenset(call.message.resource_types) or frozenset(_KINDS)
    if call.version < _SINCE_KINDS:
        kinds = frozenset({CLIENT_METRICS})
    unknown = kinds.difference(_KINDS)
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no kind of resource: {min(unknown)}")
    image = services.controller.image
    resources = [
        table.ConfigResource(resource_name=name, resource_type=kind)
        for kind in _KINDS
        if kind in kinds
        for name in _names(image, kind)
    ]
    call.answer(table.Response(error_code=ErrorCode.NONE, config_resources=resources))


def _names(image: ClusterImage, kind: int) -> list[str]:
    if kind == TOPIC:
        return sorted(image.topics)
    if kind in (BROKER, BROKER_LOGGER):
        return [str(node_id) for node_id in sorted(image.brokers)]
    return sorted(resource.name for resource in image.configs if resource.kind == kind)
