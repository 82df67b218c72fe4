from typing import NamedTuple

class RecordsWalk(NamedTuple):
    error: int
    record: int
    message: str
    max_timestamp_ms: int
    max_timestamp_delta: int
    found_delta: int
    found_timestamp_ms: int

def unpacked_bytes_max(packed_bytes: int) -> int: ...
def crc32c(data: bytes | bytearray | memoryview, crc: int = 0, kind: int = -1) -> int: ...
def walk_records(
    records: bytes | bytearray | memoryview,
    codec: int,
    count: int,
    base_timestamp_ms: int,
    *,
    compacted: bool = False,
    gaps: bool = False,
    timestamp_min_ms: int = ...,
    timestamp_max_ms: int = ...,
    wanted_timestamp_ms: int = ...,
    wanted_delta_min: int = 0,
) -> RecordsWalk: ...
def sync_volume(directory: str) -> None: ...
