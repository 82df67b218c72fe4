"""ListConfigResources (74): the names of what can have a configuration.

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
from kbroker.protocol.wire import Reader, Writer

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.image import ClusterImage

# In the order in which Apache Kafka lists them.
_KINDS: Final[tuple[int, ...]] = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
_SINCE_KINDS: Final = 1


def decode(request: ColdRequest) -> frozenset[int]:
    """The kinds that are asked for."""
    reader = Reader(request.body, flexible=True)
    if request.api_version < _SINCE_KINDS:
        reader.tags()
        return frozenset({CLIENT_METRICS})
    kinds = frozenset(reader.int8() for _ in range(reader.array()))
    reader.tags()
    return kinds or frozenset(_KINDS)


def handle(services: Services, request: ColdRequest) -> None:
    kinds = decode(request)
    unknown = kinds.difference(_KINDS)
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no kind of resource: {min(unknown)}")
    image = services.controller.image
    resources = [(name, kind) for kind in _KINDS if kind in kinds for name in _names(image, kind)]
    request.respond(_encode(request.api_version, ErrorCode.NONE, resources))


def _names(image: ClusterImage, kind: int) -> list[str]:
    if kind == TOPIC:
        return sorted(image.topics)
    if kind in (BROKER, BROKER_LOGGER):
        return [str(node_id) for node_id in sorted(image.brokers)]
    return sorted(resource.name for resource in image.configs if resource.kind == kind)


def _encode(version: int, code: ErrorCode, resources: list[tuple[str, int]]) -> bytes:
    out = Writer(flexible=True)
    out.int32(0)  # throttle time
    out.int16(code)
    out.array(len(resources))
    for name, kind in resources:
        out.string(name)
        if version >= _SINCE_KINDS:
            out.int8(kind)
        out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return _encode(request.api_version, code, [])
