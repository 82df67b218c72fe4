"""How many C objects of each kind there are; see _live_objects.pyx."""

KINDS: dict[str, int]

def live_counts() -> dict[str, int]: ...
