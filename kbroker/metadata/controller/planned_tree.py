"""A store as it will be when some operations have been done: what further operations build on.

Place in the flow: `user_changes.py` plans all changes of a request before the first is written. One
may create the parents of another, or remove the last node beside it.

Made for one plan, on the controller's thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kbroker.metadata.store.base import (
    Check,
    Create,
    Delete,
    MetadataStore,
    Node,
    NoNodeError,
    Operation,
    parent_of,
)


class PlannedTree:
    def __init__(self, store: MetadataStore) -> None:
        self._store: Final = store
        self._changed: dict[str, Node | None] = {}  # None: it is gone

    def get(self, path: str) -> Node:
        """NoNodeError: there is none."""
        if path not in self._changed:
            return self._store.get(path)
        node = self._changed[path]
        if node is None:
            raise NoNodeError(path)
        return node

    def exists(self, path: str) -> bool:
        if path in self._changed:
            return self._changed[path] is not None
        return self._store.exists(path)

    def children(self, path: str) -> list[str]:
        """NoNodeError: there is no such node."""
        self.get(path)
        try:
            found = {f"{path}/{name}" for name in self._store.children(path)}
        except NoNodeError:
            found = set()
        found |= {each for each in self._changed if parent_of(each) == path}
        left = (each for each in found if self._changed.get(each, _THERE) is not None)
        return sorted(each.rpartition("/")[2] for each in left)

    def note(self, operations: Iterable[Operation]) -> None:
        """These will be done."""
        for operation in operations:
            path = operation.path
            match operation:
                case Create():
                    self._changed[path] = Node(operation.data, 0)
                case Delete():
                    self._changed[path] = None
                case Check():
                    pass
                case _:
                    self._changed[path] = Node(operation.data, self.get(path).version + 1)


_THERE: Final = Node(b"", 0)  # of one that no operation is about
