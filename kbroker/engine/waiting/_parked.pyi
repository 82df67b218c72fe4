"""Parked requests, in C alone: Python holds their deadlines through _hot.HotPath."""

def bucket_of(tick: int) -> int:
    """Where the deadlines of a tick are listed, in C; for tests."""
