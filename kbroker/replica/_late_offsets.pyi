from kbroker.replica._replica import Replica

def late_count() -> int:
    """Partitions of this process of which memory does not say where the last stable offset lies;
    until that is known it stays, and committed reads end there."""

def is_late(replica: Replica) -> bool: ...
def find(replica: Replica) -> bool:
    """Ask the disk where it lies. True: it has moved; reads that wait are to be woken. An error of
    the disk leaves it late. Waits for the disk, without the log's lock."""
