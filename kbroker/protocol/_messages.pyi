from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import Any, ClassVar

from kbroker.protocol._wire import Reader

class Kind(IntEnum):
    BOOLEAN = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT16 = 5
    UINT32 = 6
    FLOAT64 = 7
    UUID = 8
    STRING = 9
    BYTES = 10
    STRUCT = 11
    PACKED_INT32 = 12
    REST = 13

class Flag(IntFlag):
    ARRAY = 1
    NULLABLE = 2
    ABSENT = 4

class Encoded:
    @property
    def data(self) -> bytes: ...
    def __init__(self, data: bytes) -> None: ...

class Record:
    _fields: ClassVar[tuple[str, ...]]

def lay_out(kind: type, defaults: dict[str, Any]) -> None: ...

Step = tuple[str, int, int, Any, Plan | None]

class Plan:
    @property
    def record(self) -> type[Record]: ...
    def __init__(
        self,
        record: type[Record],
        steps: list[Step],
        tagged: list[tuple[int, Step]],
        *,
        flexible: bool,
    ) -> None: ...
    def decode(self, body: bytes) -> Record: ...
    def read(self, reader: Reader) -> Record: ...
    def encode(self, record: Record) -> bytes: ...
    def encode_array(self, records: Sequence[Any]) -> Encoded: ...
