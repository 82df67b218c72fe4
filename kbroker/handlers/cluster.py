"""DescribeCluster (60): the brokers and the cluster's id, for admin clients.

The brokers are shown as Metadata shows them. The endpoint type (v1) asks for brokers or for
controllers; we answer on a broker's listener only, so the second is MISMATCHED_ENDPOINT_TYPE. No
broker is ever fenced here (v2): one without a session is not in the image.

Any handler thread; holds no lock.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.metadata import CLUSTER_OPERATIONS
from kbroker.handlers.metadata_cache import NO_NODE, OPERATIONS_NOT_ASKED
from kbroker.handlers.reply import told
from kbroker.handlers.services import brokers_as_seen
from kbroker.protocol.wire import Reader, Writer

if TYPE_CHECKING:
    from kbroker.handlers.services import BrokersSeen, ColdRequest, Services

BROKERS: Final = 1
CONTROLLERS: Final = 2
_SINCE_ENDPOINT_TYPE: Final = 1
_SINCE_FENCED: Final = 2


class _Asked(NamedTuple):
    operations: bool
    endpoint_type: int


def _decode(request: ColdRequest) -> _Asked:
    reader = Reader(request.body, flexible=True)
    operations = reader.boolean()
    endpoint_type = reader.int8() if request.api_version >= _SINCE_ENDPOINT_TYPE else BROKERS
    if request.api_version >= _SINCE_FENCED:
        reader.boolean()  # whether fenced brokers are wanted: there are none
    reader.tags()
    return _Asked(operations, endpoint_type)


def handle(services: Services, request: ColdRequest) -> None:
    asked = _decode(request)
    if asked.endpoint_type == CONTROLLERS:
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this listener serves brokers, not controllers"
        )
    if asked.endpoint_type != BROKERS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"{asked.endpoint_type} is no endpoint type"
        )
    seen = brokers_as_seen(services, request, services.controller.image)
    request.respond(
        _encode(
            request.api_version,
            cluster_id=services.cluster_id,
            controller_id=random.choice(list(seen)),
            brokers=seen,
            operations=CLUSTER_OPERATIONS if asked.operations else OPERATIONS_NOT_ASKED,
        )
    )


def _encode(
    version: int,
    code: ErrorCode = ErrorCode.NONE,
    message: str | None = None,
    *,
    cluster_id: str = "",
    controller_id: int = NO_NODE,
    brokers: BrokersSeen | None = None,
    operations: int = OPERATIONS_NOT_ASKED,
) -> bytes:
    out = Writer(flexible=True)
    out.int32(0)  # throttle time
    out.int16(code)
    out.string(told(message))
    if version >= _SINCE_ENDPOINT_TYPE:
        out.int8(BROKERS)
    out.string(cluster_id)
    out.int32(controller_id)
    shown = brokers or {}
    out.array(len(shown))
    for node_id, (host, port, rack) in shown.items():
        out.int32(node_id)
        out.string(host)
        out.int32(port)
        out.string(rack)
        if version >= _SINCE_FENCED:
            out.boolean(False)
        out.tags()
    out.int32(operations)
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return _encode(request.api_version, code, message or None)
