"""One transactional id in memory: an image in slots, and what is under way: a write, or markers.

Hundreds of thousands of ids may be idle, so what an idle one keeps is small, and what few values
repeat (timeouts, versions) are shared. Everything is changed under the coordinator's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.coordinator.txn.image import TransactionImage
from kbroker.coordinator.txn.states import State

if TYPE_CHECKING:
    from kbroker.coordinator.txn.seams import MarkerOrder
    from kbroker.security.session import Session

# Timeouts as clients configure them: a few for thousands of ids.
_SHARED_MAX: Final = 1_000
_shared: Final[dict[int, int]] = {}


def _one(value: int) -> int:
    if len(_shared) < _SHARED_MAX:
        return _shared.setdefault(value, value)
    return _shared.get(value, value)


class Transaction:
    """See the module. `term`: for which it may write to its partition; see `ShardTable.term`.

    `client` is in no record, so it is unknown after a load. It is shared by its ids.
    """

    __slots__ = (
        "_client_version",
        "_epoch",
        "_last_epoch",
        "_next_producer_id",
        "_partitions",
        "_previous_producer_id",
        "_producer_id",
        "_start_ms",
        "_state",
        "_timeout_ms",
        "_update_ms",
        "client",
        "fence_failed",
        "order",
        "pending",
        "term",
    )

    def __init__(self, image: TransactionImage | None, term: int) -> None:
        """No image: the first one is being written."""
        self.term = term
        self.pending = False
        self.order: MarkerOrder | None = None  # of markers that are being written
        self.fence_failed = False
        self.client: Session | None = None
        self._state: State | None = None
        if image is not None:
            self.become(image)

    def become(self, image: TransactionImage) -> None:
        same = image.previous_producer_id == image.producer_id
        self._producer_id = image.producer_id
        self._epoch = image.epoch
        self._timeout_ms = _one(image.timeout_ms)
        self._state = image.state
        self._update_ms = image.update_ms
        self._start_ms = image.start_ms
        self._partitions = image.partitions
        self._previous_producer_id = image.producer_id if same else image.previous_producer_id
        self._next_producer_id = image.next_producer_id
        self._last_epoch = image.last_epoch
        self._client_version = image.client_version

    @property
    def state(self) -> State | None:
        """None: the first record is being written."""
        return self._state

    @property
    def is_open(self) -> bool:
        return self._state is State.ONGOING

    def unused_since(self, before_ms: int) -> bool:
        return self._state is not None and self._update_ms <= before_ms

    @property
    def image(self) -> TransactionImage | None:
        """As it is in the log, for all that this broker knows."""
        if self._state is None:
            return None
        return TransactionImage(
            self._producer_id,
            self._epoch,
            self._timeout_ms,
            self._state,
            self._update_ms,
            self._start_ms,
            self._partitions,
            self._previous_producer_id,
            self._next_producer_id,
            self._last_epoch,
            self._client_version,
        )
