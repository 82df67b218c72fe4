"""The debug build's check of the lock order; see _lock_order.pyx."""

DEBUG_BUILD: bool
RANKS: dict[str, int]

def order_allows(held: list[str], wanted: str) -> bool: ...
