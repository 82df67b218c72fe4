import uuid
from typing import NamedTuple

class AppendResult(NamedTuple):
    error: int
    base_offset: int
    last_offset: int
    append_time_ms: int
    log_start_offset: int
    error_record: int
    error_message: str

class LoadedSegment(NamedTuple):
    base_offset: int
    valid_bytes: int
    file_bytes: int
    next_offset: int
    last_leader_epoch: int
    batches: int
    reason: str

class ProducerEntry(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int

class PartitionLog:
    @property
    def directory(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def topic_id(self) -> uuid.UUID: ...
    def __init__(self, directory: str, topic: str, index: int, topic_id: uuid.UUID) -> None: ...
    def configure(
        self,
        *,
        segment_bytes: int = ...,
        segment_ms: int = ...,
        segment_jitter_ms: int = ...,
        index_interval_bytes: int = ...,
        segment_index_bytes: int = ...,
        max_message_bytes: int = ...,
        min_insync_replicas: int = ...,
        log_append_time: bool = ...,
        recompress: bool = ...,
        compacted: bool = ...,
        timestamp_before_max_ms: int = ...,
        timestamp_after_max_ms: int = ...,
    ) -> None: ...
    def set_leadership(
        self, leader_id: int, is_leader: bool, leader_epoch: int, in_sync_count: int
    ) -> None: ...
    def set_high_watermark(self, offset: int) -> None: ...
    def load_segment(self, base_offset: int, *, active: bool, recover: bool) -> LoadedSegment: ...
    def unload_last_segment(self) -> None: ...
    def create_segment(self, base_offset: int, now_ms: int = -1) -> None: ...
    def restore_producer(self, entry: ProducerEntry) -> None: ...
    def producer_entries(self) -> tuple[int, list[ProducerEntry]]: ...
    def replay_producers(self, from_offset: int) -> None: ...
    def begin(self, log_start_offset: int, log_end_offset: int, recovery_point: int) -> None: ...
    def append(
        self,
        batch: bytes,
        *,
        acks: int = 1,
        now_ms: int = -1,
        prechecked: bool = False,
        api_version: int = ...,
    ) -> AppendResult: ...
    def append_group(
        self,
        batches: list[bytes],
        *,
        acks: int = 1,
        now_ms: int = -1,
        prechecked: bool = False,
        api_version: int = ...,
    ) -> list[AppendResult]: ...
    def read(
        self,
        offset: int,
        max_bytes: int = ...,
        *,
        whole_first: bool = True,
        read_committed: bool = False,
    ) -> bytes: ...
    def find_by_time(
        self, timestamp_ms: int, from_offset: int = 0
    ) -> tuple[int, int, int, bool] | None: ...
    def find_max_timestamp(self) -> tuple[int, int, int, bool] | None: ...
    def locate(
        self, offset: int, max_bytes: int = ..., *, whole_first: bool = True
    ) -> tuple[int, int, int]: ...
    def readable_bytes(self, offset: int, max_bytes: int = ...) -> int: ...
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
    def online(self) -> bool: ...
    @property
    def recovery_point(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def roll(self, now_ms: int = -1) -> None: ...
    def flush(self) -> int: ...
    def close(self) -> None: ...
    def statistics(self) -> dict[str, int]: ...
