from typing import TypeVar

from kbroker._log import LocalLog

Log = TypeVar("Log", bound=LocalLog)

def encode_producers(log: LocalLog) -> tuple[int, bytes]: ...
def sizes(logs: list[Log]) -> list[int]: ...
