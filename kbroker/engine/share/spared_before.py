"""The records that were spared at share-partitions which have ended since.

A share-partition ends with the last session of its group at this broker, and begins again with the
next one: where a group has one member, each end of its session. If it forgot then which records
were spared, a record that ends its member would be spared each time.

Bound: SHARE_SPARED_SPANS_MAX. Not synchronized: `ShareLeaders` has its lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.limits import SHARE_SPARED_SPANS_MAX

if TYPE_CHECKING:
    from kbroker.coordinator.share.images import SharePartition as Key
    from kbroker.replica.share.spared import Spared


class SparedBefore:
    """See the module."""

    def __init__(self, spans_max: int = SHARE_SPARED_SPANS_MAX) -> None:
        self._spans_max: Final = spans_max
        self._kept: dict[Key, Spared] = {}  # in the order in which they ended
        self._spans = 0

    def keep(self, key: Key, spared: Spared) -> None:
        """Its share-partition has ended."""
        self.take(key)
        if not spared.spans:
            return
        self._kept[key] = spared
        self._spans += len(spared.spans)
        while self._spans > self._spans_max:
            self.take(next(iter(self._kept)))

    def take(self, key: Key) -> Spared | None:
        """For its share-partition, which begins again."""
        spared = self._kept.pop(key, None)
        if spared is not None:
            self._spans -= len(spared.spans)
        return spared
