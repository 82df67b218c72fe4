"""Requests that real handlers serve in a simulated broker, and the request object they get.

A request for the controller is forwarded to it, as `handlers/registry.py` does, unless it came in
an envelope: that is not forwarded again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker.coordinator.share.wire import OF_KEY
from kbroker.errors import ErrorCode
from kbroker.handlers.call import Call
from kbroker.handlers.envelope import Forwarded
from kbroker.handlers.forwarding import forward
from kbroker.handlers.registry import REGISTRY
from kbroker.protocol import messages
from kbroker.security.session import ANONYMOUS, Principal
from kbroker.types import ApiKey
from tests.simulation.network import Answer

if TYPE_CHECKING:
    from tests.simulation.broker import Running


@dataclass
class Request:
    """A request as a real handler gets it."""

    api_key: int
    api_version: int
    body: bytes
    answer: Answer
    client_id: str
    connection_id: str = "simulated"
    correlation_id: int = 0
    listener: str = "simulated"
    peer_host: str = "192.0.2.1"
    principal: Principal = ANONYMOUS

    def respond(self, body: bytes) -> None:
        self.answer(body)

    def throttle(self, throttle_ms: int) -> None:
        assert throttle_ms == 0, "there are no quotas"

    def close_connection(self, reason: str) -> None:
        raise AssertionError(f"a broker cannot answer another: {reason}")


BETWEEN_BROKERS: frozenset[int] = frozenset(
    int(api.key) for api in REGISTRY.apis if api.between_brokers is not None
)
OF_GROUPS = frozenset({
    ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE,
    ApiKey.SHARE_GROUP_HEARTBEAT,
})  # fmt: skip

# Requests between brokers, though their rows in the registry do not have that.
MARKERS: frozenset[int] = frozenset({ApiKey.WRITE_TXN_MARKERS})
# Requests of clients, by the registry's rows.
FROM_CLIENTS: frozenset[int] = frozenset(
    {
        ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.INIT_PRODUCER_ID,
        ApiKey.DELETE_RECORDS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE,
        ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN, ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE,
    }
)  # fmt: skip
SERVED = FROM_CLIENTS.union(BETWEEN_BROKERS, MARKERS, OF_KEY)


def serve(
    running: Running, api_key: ApiKey, version: int, body: bytes, answer: Answer, client_id: str,
    connection_id: str = "simulated",
) -> None:  # fmt: skip
    request: Any = Request(api_key, version, body, answer, client_id, connection_id)
    if api_key is ApiKey.ENVELOPE:
        envelope: Call[Any] = Call(request, messages.envelope)
        with envelope:
            _serve(running, Forwarded(envelope))
    else:
        _serve(running, request)


def _serve(running: Running, request: Any) -> None:
    broker: Any = running
    api_key = ApiKey(request.api_key)
    assert api_key in SERVED
    api = REGISTRY.get(api_key)
    assert api is not None
    assert api.call is not None
    call: Call[Any] = Call(request, api.table, api.shape)
    with call:
        if api.for_controller is None or not api.for_controller(broker, call.message):
            api.call(broker, call)
        elif not running.informed:  # as before the first image
            call.fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        elif running.controller.active or isinstance(request, Forwarded):
            api.call(broker, call)
        else:
            forward(broker, call)
