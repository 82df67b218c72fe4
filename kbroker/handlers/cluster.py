"""DescribeCluster (60): the brokers and the cluster's id, for admin clients.

The brokers are listed as in Metadata. The endpoint type (v1) asks for brokers or for controllers;
this is a broker's listener, so the second is MISMATCHED_ENDPOINT_TYPE. No broker is ever fenced
here (v2): one without a session is not in the image.

Any handler thread; holds no lock.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.metadata import cluster_operations
from kbroker.handlers.services import brokers_as_seen
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.describe_cluster import Request, Response

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(services: Services, call: Call[Request]) -> None:
    table = messages.describe_cluster
    request = call.message
    if request.endpoint_type == CONTROLLERS:
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this listener serves brokers, not controllers"
        )
    if request.endpoint_type != BROKERS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"{request.endpoint_type} is no endpoint type"
        )
    seen = brokers_as_seen(services, call.request, services.controller.image)
    wanted = request.include_cluster_authorized_operations
    call.answer(
        table.Response(
            error_code=ErrorCode.NONE,
            cluster_id=services.cluster_id,
            controller_id=random.choice(list(seen)),
            brokers=[
                table.DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack)
                for node_id, (host, port, rack) in seen.items()
            ],
            cluster_authorized_operations=cluster_operations(services, call, wanted=wanted),
        )
    )


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """The type of endpoint is that of this listener, not the one that was asked for."""
    return messages.describe_cluster.Response(error_code=code, error_message=message)
