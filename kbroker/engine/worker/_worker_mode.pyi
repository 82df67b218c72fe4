"""What a worker of the hot path may do; see _worker_mode.pyx."""

from enum import IntEnum, IntFlag
from typing import Final

class Mode(IntEnum):
    RUN = 0
    UNPACKING = 1
    ASIDE = 2
    ASIDE_UNPACKING = 3
    AT_ONCE = 4

class May(IntFlag):
    WAIT_FOR_LOCKS = 1
    WAIT_FOR_DISK = 2
    PARK = 4
    GATHER = 8
    UNPACK = 16
    KEEP_DEADLINES = 32

ROWS: Final[dict[Mode, May]]

def may_of(mode: int) -> May: ...
