from collections.abc import Hashable

# How many listeners and connections have the session of this principal; None: it is none.
def references(principal: Hashable) -> int | None: ...
