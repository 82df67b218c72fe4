"""One thing that happens in a history: a method of `Cluster` with its arguments, and when."""

from __future__ import annotations

from typing import NamedTuple


class Act(NamedTuple):
    at_ms: int
    what: str
    how: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.at_ms:6} ms  {self.what}({', '.join(map(str, self.how))})"
