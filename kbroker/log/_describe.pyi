from typing import TypeVar

from kbroker._log import PartitionLog

Log = TypeVar("Log", bound=PartitionLog)

def encode_producers(log: PartitionLog) -> tuple[int, bytes]: ...
def sizes(logs: list[Log]) -> list[int]: ...
