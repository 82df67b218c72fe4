"""The hot path as Python calls it; see _hot.pyx for the work of `serve` without the GIL."""

from collections.abc import Callable
from typing import Final, Self, TypedDict, type_check_only

from typing_extensions import disjoint_base

from kbroker._net import SocketServer, WrappedRequest
from kbroker.coordinator.group._groups import GroupTable
from kbroker.errors import ErrorCode
from kbroker.limits import PARKED_BYTES_MAX
from kbroker.replica._replica import Replica
from kbroker.replica._topic_table import TopicTable
from kbroker.types import TopicPartition

# Why `serve` returned: something for Python, the idle tick, the end.
SERVED: Final = 0
IDLE: Final = 1
CLOSED: Final = 2

@type_check_only
class _HandlerStatistics(TypedDict):
    name: str
    serving: bool
    idle_ns: int
    runs: int
    run_requests: int
    cold_requests: int
    gil_waits_us: list[int]
    gil_wait_ns: int

@type_check_only
class _HotPathStatistics(TypedDict):
    produce_requests: int
    produce_partitions: int
    produce_batches: int
    produce_records: int
    produce_bytes: int
    produce_errors: int
    rejected_bytes: int
    fetch_requests: int
    fetch_partitions: int
    fetch_bytes: int  # to consumers
    replicated_bytes: int  # to followers
    fetch_errors: int
    parked_fetches: int
    parked_produces: int
    metadata_requests: int
    metadata_bytes: int
    # Answered in C; what Python decides is not counted here.
    heartbeat_requests: int
    consumer_heartbeat_requests: int
    commit_requests: int
    commit_offsets: int
    transaction_adds: int
    transaction_ends: int
    transaction_joins: int
    # Answers by error code, those that were given.
    produce_codes: dict[int, int]
    fetch_codes: dict[int, int]
    # Fetches and produces; and the produces of them.
    parked_now: int
    parked_produces_now: int
    parked_expired: int
    parked_produces_expired: int
    parked_left: int  # ended because their connections went
    parked_bytes: int  # including the data kept for their answers
    fetch_sessions: int
    fetch_session_partitions: int
    fetch_session_bytes: int
    fetch_session_evictions: int
    handlers: list[_HandlerStatistics]

# (transactional id, producer id, epoch, partitions, and which places each has in the answer)
UnverifiedTransaction = tuple[str, int, int, list[TopicPartition], list[list[int]]]
# (number, version of the produce, places in the answer, transactions)
Unverified = tuple[int, int, int, list[UnverifiedTransaction]]

@disjoint_base
class HotPath:
    def __new__(
        cls,
        server: SocketServer,
        table: TopicTable,
        *,
        session_slots_max: int,
        session_eviction_ms_min: int,
        fetch_bytes_max: int,
        inline_range_bytes: int = 4096,
        # Consumers that send their rack get the replica in it as preferred read replica.
        rack_aware: bool = False,
        # How long a follower's fetch waits for more than there is: where a request waits for the
        # records that it acknowledges or brings, and where none does.
        gather_ns: int = 500_000,
        linger_ns: int = 2_000_000,
        # How long a produce that begins a transaction waits for its coordinator.
        verification_ms: int = 30_000,
        # What all requests that wait may use; half of it the fetches of clients.
        parked_bytes_max: int = PARKED_BYTES_MAX,
    ) -> Self: ...
    # Whose commits and heartbeats it answers; once, before the handlers start.
    def serve_groups(self, groups: GroupTable) -> None: ...
    def cover_processors(self) -> None: ...
    # addresses: per listener (host, port), or None for the one that a connection used
    # followers_listener: by its place there, the only one for followers' fetches; -1: any
    def advertise(
        self,
        node_id: int,
        addresses: list[tuple[str, int] | None],
        creates_topics: bool,
        followers_listener: int = -1,
    ) -> None: ...
    def throttle_leader(self, bytes_per_s: int) -> None: ...
    def verify_transactions(self, verifies: bool) -> None: ...
    def add_worker(self) -> int: ...
    # (status, cold requests, deadline ticks that are new)
    def retire_worker(self, index: int) -> None: ...
    def is_held(self, index: int) -> bool: ...
    def revive_worker(self, index: int) -> None: ...
    def serve(
        self, index: int
    ) -> tuple[int, list[WrappedRequest] | tuple[()], list[int] | tuple[()]]: ...
    @staticmethod
    def tick_deadline_ms(tick: int) -> int: ...
    def expire(self, tick: int) -> None: ...
    def wake(self, replica: Replica) -> None: ...
    def await_followers(
        self,
        replica: Replica,
        last_offset: int,
        led_since: int,
        timeout_ms: int,
        done: Callable[[ErrorCode], object],
    ) -> None: ...
    def await_low_watermark(
        self,
        replica: Replica,
        offset: int,
        timeout_ms: int,
        done: Callable[[ErrorCode], object],
    ) -> None: ...
    # after `serve`, for the same worker: (callback, the error to call it with)
    def take_settled(self, index: int) -> list[tuple[Callable[[ErrorCode], object], ErrorCode]]: ...
    # after `serve`, for the same worker; each is answered once, by number
    def take_asking(self, index: int) -> list[Unverified]: ...
    # for each place: (error of Produce, the coordinator's own)
    def coordinator_answered(self, number: int, errors: list[tuple[int, int]]) -> None: ...
    # called with the ticks that a wait without a request makes new
    watch_deadline: Callable[[int], None]
    def close_parked(self) -> None: ...
    # (ordinal, topic id, bytes) of every batch whose partition is known
    def pass_on(self, request: WrappedRequest) -> tuple[list[WrappedRequest], list[int]]: ...
    def produce_batches(
        self, request: WrappedRequest
    ) -> list[tuple[int, int, int, bytes, int, int]]: ...
    def produce_batch(self, request: WrappedRequest, position: int, size: int) -> bytes: ...
    def produce_given_up(self, request: WrappedRequest) -> None: ...
    def produce_checked(
        self,
        request: WrappedRequest,
        twins: dict[int, bytearray],
        stored: dict[int, bytearray],
        errors: dict[int, int],
    ) -> tuple[list[int], list[int]]: ...
    def statistics(self) -> _HotPathStatistics: ...
