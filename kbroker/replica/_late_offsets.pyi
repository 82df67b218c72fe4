from kbroker.replica._replica import Replica

def late_count() -> int:
    """Partitions of this process of which memory does not say where the last stable offset lies;
    until that is known it stays, and committed reads end there."""

def is_late(replica: Replica) -> bool: ...
def find(replica: Replica) -> bool | None:
    """Ask the disk where it lies. True: it has moved; reads that wait are to be woken. None: an
    error of the disk leaves it late. Waits for the disk, without the log's lock."""
