"""Groups of several kinds under one id, as a log may have them: the later one stays.

A broker of an earlier version passes over groups of kinds that it does not have, and may give their
ids to groups of its own. When a later version loads that log, an id has two groups. What clients
were answered last is in the later records, so the other group goes, and its records get tombstones:
else it would be there again when the one that stays is deleted.

The loader's thread only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

Record = tuple[bytes, bytes | None]


class LoadOfKind(Protocol):
    """One load of the groups of a kind."""

    @property
    def last_offsets(self) -> Mapping[str, int]:
        """Of the last record of each group that is there."""
        ...

    def leave_out(self, group_id: str) -> list[Record]:
        """The group is not to be there; the tombstones of its records."""
        ...


def settle(loads: Sequence[LoadOfKind]) -> Iterator[tuple[str, list[Record]]]:
    """Leaves one group for each id; the ids of those that went, with their tombstones."""
    known: dict[str, tuple[int, LoadOfKind]] = {}
    for load in loads:
        for group_id, offset in list(load.last_offsets.items()):
            here, before = (offset, load), known.get(group_id)
            if before is None:
                known[group_id] = here
                continue
            earlier, known[group_id] = sorted((before, here), key=lambda each: each[0])
            yield group_id, earlier[1].leave_out(group_id)
