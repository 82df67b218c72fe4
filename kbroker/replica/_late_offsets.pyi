from kbroker.replica._replica import Replica

def late_count() -> int:
    """High watermarks and last stable offsets of this process of which memory does not say where
    they lie; until that is known they stay, and reads end there."""

def what_is_late(replica: Replica) -> str:
    """The first of its offsets that is late, by name; empty: none."""

def find(replica: Replica) -> bool:
    """Ask the disk where they lie. True: one has moved; requests that wait are to be woken.

    An error of the disk leaves them late. Waits for the disk, without the log's lock.
    """
