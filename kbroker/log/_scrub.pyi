from kbroker._log import LocalLog
from kbroker.log._results import DamagedBatch

class SegmentScrub:
    damage: list[DamagedBatch]
    bytes_read: int
    def __init__(self, log: LocalLog, base_offset: int) -> None: ...
    @property
    def still_there(self) -> bool: ...
    def step(self, bytes_max: int) -> bool: ...
