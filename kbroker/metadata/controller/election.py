"""Who is the controller: one ephemeral node, and an epoch that fences those who were it before.

Place in the flow: the controller thread calls this at start and whenever /controller changed.
Winning is one multi: create /controller, which only one session can, and raise the epoch, whose
node version then belongs to this term alone. Every later write checks that version, so two
controllers may for a moment both believe in themselves, but only the last elected can write.

Nothing here waits; a watch tells when it is worth trying again.
"""

from __future__ import annotations

from kbroker.clock import Clock
from kbroker.metadata.controller import records
from kbroker.metadata.image import NO_CONTROLLER
from kbroker.metadata.store.base import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Set,
)


class Election:
    """One broker's part in the election; `epoch` and `fence` are of the term last won."""

    def __init__(self, store: MetadataStore, node_id: int, clock: Clock) -> None:
        self._store = store
        self._node_id = node_id
        self._clock = clock
        self.epoch = 0
        self.fence = Check(records.CONTROLLER_EPOCH, -1)

    def try_win(self) -> bool:
        """Become the controller unless another broker is; False then."""
        node = self._store.get(records.CONTROLLER_EPOCH)
        epoch = records.decode_controller_epoch(records.CONTROLLER_EPOCH, node.data) + 1
        me = records.encode_controller(self._node_id, self._clock.wall_ms())
        try:
            versions = self._store.multi(
                [
                    Create(records.CONTROLLER, me, ephemeral=True),
                    Set(
                        records.CONTROLLER_EPOCH,
                        records.encode_controller_epoch(epoch),
                        node.version,
                    ),
                ]
            )
        except MultiError as error:
            if isinstance(error.cause, NodeExistsError | BadVersionError):
                return self._has_won()
            raise
        self.epoch = epoch
        self.fence = Check(records.CONTROLLER_EPOCH, versions[1])
        return True

    def _has_won(self) -> bool:
        """Whether /controller is of our own session: then the answer was lost when we won, and
        the epoch was not raised since, which only the broker that creates that node does."""
        try:
            holder = self._store.get(records.CONTROLLER)
        except NoNodeError:
            return False
        if holder.owner != self._store.session_id:
            return False
        node = self._store.get(records.CONTROLLER_EPOCH)
        self.epoch = records.decode_controller_epoch(records.CONTROLLER_EPOCH, node.data)
        self.fence = Check(records.CONTROLLER_EPOCH, node.version)
        return True

    def last_epoch(self) -> int:
        """Of the controller that was elected last."""
        node = self._store.get(records.CONTROLLER_EPOCH)
        return records.decode_controller_epoch(records.CONTROLLER_EPOCH, node.data)

    def holds_office(self) -> bool:
        """Whether /controller is ours and no other broker was elected since."""
        try:
            holder = self._store.get(records.CONTROLLER)
            epoch = self._store.get(records.CONTROLLER_EPOCH)
        except NoNodeError:
            return False
        return holder.owner == self._store.session_id and epoch.version == self.fence.version

    def current_controller(self) -> int:
        """The node id of the controller; NO_CONTROLLER if there is none."""
        try:
            node = self._store.get(records.CONTROLLER)
        except NoNodeError:
            return NO_CONTROLLER
        return records.decode_controller(records.CONTROLLER, node.data)

    def resign(self) -> bool:
        """Leave office if it is still ours, so that another need not wait for our session; whether
        it was."""
        if not self.holds_office():
            return False
        self._store.multi([self.fence, Delete(records.CONTROLLER)])
        return True
