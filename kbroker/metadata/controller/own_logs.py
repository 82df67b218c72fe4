"""How this broker's logs change leadership: those that fail, and those that are read at last.

Place in the flow: events of the controller's thread. If this broker is the controller, it decides;
any other broker has the controller ask (`note_log_dir_event`), and answers with the partitions that
it cannot use.

A log that a crash left is read beside what is served. Until then its partition is offline here, as
one whose log does not open: the controller takes it for closed, so no broker without its log is
elected. When it is read, the partition is applied once more, which opens it, and then it is said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from kbroker.log_lines import LogLines, first_few
from kbroker.metadata.controller.events import LogsFail
from kbroker.metadata.controller.nodes import note_log_dir_event
from kbroker.metadata.controller.topic_changes import forget_deletions
from kbroker.metadata.store.base import StoreError

if TYPE_CHECKING:
    from kbroker.metadata.controller.events import Event
    from kbroker.metadata.controller.nodes import MetadataNodes
    from kbroker.metadata.controller.partition_changes import PartitionChanges
    from kbroker.metadata.controller.propagation import Propagation
    from kbroker.metadata.store.base import MetadataStore
    from kbroker.types import TopicPartition

log: Final = logging.getLogger("kbroker.controller")
lines: Final = LogLines(log)


class OwnLogs:
    """See the head of this file."""

    def __init__(
        self,
        propagation: Propagation,
        partitions: PartitionChanges,
        node_id: int,
        again: Callable[[Event], None],
    ) -> None:
        """`again` has an event come once more, later."""
        self._propagation = propagation
        self._partitions = partitions
        self._node_id = node_id
        self._again = again

    def fail(self, nodes: MetadataNodes | None, store: MetadataStore) -> None:
        """Decide, with the `nodes` of the controller's office, or have the controller ask, which it
        also does when a broker registers."""
        if nodes is not None:
            unusable = sorted(self._propagation.unusable)
            refusing = sorted(self._propagation.refusing)
            self._partitions.note_closed(nodes, self._node_id, unusable, refusing)
            return
        try:
            note_log_dir_event(store, self._node_id)
        except StoreError as error:
            log.error("could not notify the controller of failing logs, trying again: %s", error)
            self._again(LogsFail())

    def ready(
        self,
        names: Collection[TopicPartition],
        nodes: MetadataNodes | None,
        store: MetadataStore,
        *,
        stale: bool,
    ) -> None:
        """These are worth another try, and removals that were late. `stale`: the store is read
        next, and all decided then."""
        if unremoved := self._propagation.unremoved():
            removed = self._propagation.delete(unremoved)
            if nodes is not None and removed:
                forget_deletions(nodes, removed)
        online = self._propagation.come_online(names)
        if not online:
            return
        listed = first_few([str(name) for name in online])
        lines.write(logging.INFO, "recovered", "recovered, and online: %s", listed)
        if nodes is None:
            self.fail(None, store)
        elif not stale:
            self._partitions.note_opened(nodes, online)
