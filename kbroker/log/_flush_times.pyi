"""How long logs took to get to the disk; see _flush_times.pyx."""

# What was counted before weighs `keep` of what it weighed.
def tick(keep: float) -> None: ...

# (flushes, milliseconds together, quantiles in ms of those of late)
def read(quantiles: tuple[float, ...]) -> tuple[int, float, tuple[float, ...]]: ...

# counts since the start: (upper bound in ms, flushes), empty buckets left out
def histogram() -> list[tuple[float, int]]: ...
