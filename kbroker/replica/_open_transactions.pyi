from typing import NamedTuple

from kbroker.log.engine._results import MarkerAppended
from kbroker.replica._replica import Replica

class OpenTransaction(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_offset: int

def open_transactions(replica: Replica) -> list[OpenTransaction]: ...
def abort(replica: Replica, transaction: OpenTransaction, now_ms: int = -1) -> MarkerAppended: ...
