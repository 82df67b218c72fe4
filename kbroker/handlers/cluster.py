"""DescribeCluster (60): the brokers and the cluster's id, for admin clients.

The brokers are shown as Metadata shows them. The endpoint type (v1) asks for brokers or for
controllers; we answer on a broker's listener only, so the second is MISMATCHED_ENDPOINT_TYPE. No
broker is ever fenced here (v2): one without a session is not in the image.

Any handler thread; holds no lock.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.metadata import CLUSTER_OPERATIONS
from kbroker.handlers.metadata_cache import OPERATIONS_NOT_ASKED
from kbroker.handlers.services import brokers_as_seen
from kbroker.protocol import cold
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

BROKERS: Final = 1
CONTROLLERS: Final = 2
_SINCE_ENDPOINT_TYPE: Final = 1
_SINCE_FENCED: Final = 2


def handle(services: Services, request: ColdRequest) -> None:
    asked = cold.decode(request)
    version = request.api_version
    if version >= _SINCE_ENDPOINT_TYPE and asked.endpoint_type != BROKERS:
        if asked.endpoint_type == CONTROLLERS:
            raise KafkaError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this listener serves brokers, not controllers"
            )
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"{asked.endpoint_type} is no endpoint type"
        )
    module = cold.response_module(ApiKey.DESCRIBE_CLUSTER, version)
    fenced = {"is_fenced": False} if version >= _SINCE_FENCED else {}
    seen = brokers_as_seen(services, request, services.controller.image)
    brokers = tuple(
        module.DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack, **fenced)
        for node_id, (host, port, rack) in seen.items()
    )
    wanted = asked.include_cluster_authorized_operations
    operations = CLUSTER_OPERATIONS if wanted else OPERATIONS_NOT_ASKED
    answer = _answer(
        version,
        cluster_id=services.cluster_id,
        controller_id=random.choice(list(seen)),
        brokers=brokers,
        cluster_authorized_operations=operations,
    )
    request.respond(cold.encode(answer))


def _answer(version: int, code: ErrorCode = ErrorCode.NONE, **fields: Any) -> Any:
    module = cold.response_module(ApiKey.DESCRIBE_CLUSTER, version)
    return module.DescribeClusterResponse(throttle_time=cold.NO_TIME, error_code=code, **fields)


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    answer = _answer(
        request.api_version, code, error_message=message or None, cluster_id="", brokers=()
    )
    return cold.encode(answer)
