import uuid
from collections.abc import Mapping

from kbroker.errors import ErrorCode
from kbroker.log.engine._results import AppendResult, MarkerAppended
from kbroker.log.engine._slice import Slice
from kbroker.log.engine.leader_epochs import LeaderEpochs
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.types import TopicPartition

class Replica:
    def __init__(self, log: PartitionLog) -> None: ...
    @property
    def log(self) -> PartitionLog: ...
    def set_leadership(
        self,
        leader_id: int,
        is_leader: bool,
        leader_epoch: int,
        in_sync_count: int,
        followers: dict[int, bool] | None = None,
        broker_epochs: Mapping[int, int] | None = None,
        *,
        wait_ns: int = -1,
    ) -> bool: ...
    @property
    def flush_is_due(self) -> bool: ...
    def throttle(self, throttled: bool) -> None: ...
    def set_high_watermark(self, offset: int) -> None: ...
    def advance(self) -> None: ...
    def truncate_to(self, offset: int) -> None: ...
    def begin_again(self, offset: int) -> None: ...
    def append_as_follower(
        self, data: bytes | bytearray | memoryview, leader_epoch: int, now_ms: int = -1
    ) -> int: ...
    def follow_bounds(
        self, leader_epoch: int, high_watermark: int, log_start_offset: int
    ) -> None: ...
    def note_fetch(
        self,
        broker_id: int,
        offset: int,
        now_ns: int,
        *,
        broker_epoch: int = -1,
        leader_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None: ...
    def followers(self) -> list[tuple[int, bool, int, int, int, int]]: ...
    def followers_keep_up(self, since_ns: int) -> bool: ...
    def append(
        self,
        batch: bytes,
        *,
        acks: int = 1,
        now_ms: int = -1,
        prechecked: bool = False,
        api_version: int = ...,
        guard: int = 0,
    ) -> AppendResult: ...
    def append_group(
        self,
        batches: list[bytes],
        *,
        acks: int = 1,
        now_ms: int = -1,
        prechecked: bool = False,
        api_version: int = ...,
        guard: int = 0,
    ) -> list[AppendResult]: ...
    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        bumps_epoch: bool,
    ) -> tuple[ErrorCode, int]: ...
    def end_verification(self, producer_id: int, guard: int, *, refused: bool) -> None: ...
    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        committed: bool,
        transaction_version: int,
        now_ms: int = -1,
        run: int = 0,
        number: int = 0,
    ) -> MarkerAppended:
        """`run`, `number`: which outcome of its coordinator it is of; 0: not known. A copy of a
        marker that was written is refused with DUPLICATE_SEQUENCE_NUMBER once the next transaction
        is open; a log whose write hangs, with REQUEST_TIMED_OUT."""
    def read(
        self,
        offset: int,
        max_bytes: int = ...,
        *,
        whole_first: bool = True,
        read_committed: bool = False,
        to_log_end: bool = False,
    ) -> bytes: ...
    def borrow(
        self,
        offset: int,
        max_bytes: int = ...,
        *,
        whole_first: bool = True,
        read_committed: bool = False,
        to_log_end: bool = False,
    ) -> Slice: ...
    def find_by_time(
        self, timestamp_ms: int, from_offset: int = 0
    ) -> tuple[int, int, int, bool] | None: ...
    def find_max_timestamp(self) -> tuple[int, int, int, bool] | None: ...
    def readable_bytes(
        self, offset: int, max_bytes: int = ..., *, read_committed: bool = ...
    ) -> int: ...
    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int, int] | None: ...
    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None: ...
    def encode_producers(self) -> tuple[int, bytes]: ...
    def delete_records(self, offset: int) -> int: ...
    @property
    def low_watermark(self) -> int: ...
    @property
    def deletions_wait(self) -> bool: ...
    def apply_retention(self, age_ms: int, size_bytes: int, now_ms: int) -> int: ...
    def flush_if_due(self) -> None: ...
    def statistics(self) -> dict[str, int]: ...
    @property
    def name(self) -> TopicPartition: ...
    @property
    def epochs(self) -> LeaderEpochs: ...
    @property
    def topic_id(self) -> uuid.UUID: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def has_watchers(self) -> bool: ...
    @property
    def online(self) -> bool: ...
    @property
    def writing_ms(self) -> int:
        """For how long a write of the log has been under way; 0 if none is."""
