"""The network core as Python sees it; see _net.pyx for threads and lifetimes."""

from collections.abc import Hashable
from typing import Self, TypedDict, type_check_only

from typing_extensions import disjoint_base

from kbroker.net._listener_transport import ListenerTransport
from kbroker.net._wrapped_request import WrappedRequest as WrappedRequest
from kbroker.quota._client_quotas import ClientQuotas

@type_check_only
class _MutedWaits(TypedDict):
    connections: int
    waiting: int
    count: int
    sum_ns: int
    # Powers of two of microseconds.
    histogram_us: list[int]

@type_check_only
class _ProcessorStatistics(TypedDict):
    name: str
    connections: int
    connections_opened: int
    requests: int
    live_requests: int
    responses: int
    received_bytes: int
    sent_bytes: int
    idle_closed: int
    protocol_errors: int
    unread_closed: int
    trains: int
    train_frames: int
    idle_ns: int
    turns: int
    serving: bool
    alive_ns: int
    muted_waits: int
    listeners: dict[str, _MutedWaits]
    # By the last request (Produce, Fetch, other) and the state's name; those that were left.
    state_ns: dict[tuple[str, str], int]

@type_check_only
class _AcceptorStatistics(TypedDict):
    name: str
    listener: str
    accepted: int
    refused: int
    throttled: int
    waited_ms: int
    paused: int
    blocked_ns: int

@type_check_only
class _SocketServerStatistics(TypedDict):
    processors: list[_ProcessorStatistics]
    acceptors: list[_AcceptorStatistics]
    pipelined_bytes: int
    unsent_bytes: int
    queued_requests: int
    queued_bytes: int
    queued_requests_peak: int
    takers_relieved: int
    requests_set_aside: int

# One of the reasons in `SocketServer.closes`.
UNREAD: str

def give_back_memory() -> None: ...

@disjoint_base
class SocketServer:
    def __new__(
        cls,
        *,
        processors: int,
        queued_requests_max: int,
        queued_bytes_max: int,
        request_bytes_max: int,
        idle_ms_max: int,
        connections_max: int,
        connections_per_ip_max: int,
        pipelined: bool,
        pipelined_requests_max: int,
        pipelined_bytes_max: int,
        pipelined_total_bytes_max: int,
        unsent_bytes_max: int,
        send_buffer_bytes: int,
        receive_buffer_bytes: int,
        opening_ms_max: int = ...,
        opening_max: int = ...,
        opening_per_ip_max: int = ...,
        opening_bytes_max: int = ...,
        draw_key: int | None = ...,
    ) -> Self: ...
    def resize(self, processors: int) -> None: ...
    def bound_connections(self, total: int, per_ip: int, overrides: dict[str, int]) -> None: ...
    def override_connections(self, address: str, bound: int) -> None: ...
    def set_hot(self, api_key: int, min_version: int, max_version: int) -> None: ...
    def set_cold(self, api_key: int) -> None: ...
    def bound_connection_rate(self, rate: float) -> None: ...
    def limit_connection_rates(self, every: float, named: dict[str, float]) -> None: ...
    def use_quotas(self, quotas: ClientQuotas) -> None: ...
    def quotas_changed(self) -> None: ...
    def set_throttle_from(self, api_key: int, version: int) -> None: ...
    def set_between_brokers(self, api_key: int) -> None: ...
    def set_flexible_from(self, api_key: int, version: int) -> None: ...
    def listen(
        self,
        name: str,
        addresses: list[tuple[str, int]],
        backlog: int = 50,
        ipv4_ports: frozenset[int] = frozenset(),
        *,
        principal: Hashable,
        transport: ListenerTransport | None = None,
        authenticates: bool = False,
        counts: bool = True,
    ) -> list[tuple[str, int]]: ...
    def start(self) -> None: ...
    def stop_accepting(self) -> None: ...
    def stop(self, at_once: bool = False) -> None: ...
    def close_queue(self) -> None: ...
    def closes(self) -> dict[str, int]: ...
    # (listener, principal, open connections), and of how many these are the first.
    def connections_by_principal(self, most: int) -> tuple[list[tuple[str, str, int]], int]: ...
    def statistics(self) -> _SocketServerStatistics: ...
