from collections.abc import Hashable

# How many listeners and connections have the session of this principal; None: it is none.
def references(principal: Hashable) -> int | None: ...

# (principal, index of its listener, open connections); the first `listeners` of them.
def connections(listeners: int) -> list[tuple[Hashable, int, int]]: ...
