"""Changes of a state that is made of records, drafted together: to be written, or taken back.

The groups of two protocols are such states: a map from the keys of their records to values. A
change sets one value; applied, it gives the change that undoes it.

No lock of its own: it belongs to the step of a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar


class AnyChange(NamedTuple):
    """`kind` is the key's version, an enumeration of its protocol's. None: it is removed."""

    kind: int
    key: str
    value: Any


class RecordState(Protocol):
    """A group as its records have it."""

    @property
    def exists(self) -> bool: ...

    @property
    def members(self) -> Mapping[str, Any]: ...

    def apply(self, change: Any) -> Any:
        """Make the change; the one that takes it back."""
        ...

    def tombstones(self) -> Iterator[Any]:
        """What removes all of it."""
        ...


S = TypeVar("S", bound=RecordState)


class DraftOf(Generic[S]):
    """Changes of a state, made one by one.

    A key that changes twice has one change, the later one, in its later place.
    """

    __slots__ = ("_changes", "_undo", "state")

    def __init__(self, state: S) -> None:
        self.state = state
        self._changes: dict[tuple[int, str], Any] = {}
        self._undo: list[Any] = []

    def put(self, kind: int, key: str, value: Any) -> None:
        change = self._change(kind, key, value)
        self._undo.append(self.state.apply(change))
        self._changes.pop((kind, key), None)
        self._changes[kind, key] = change

    def _change(self, kind: int, key: str, value: Any) -> Any:
        return AnyChange(kind, key, value)

    @property
    def changes(self) -> tuple[Any, ...]:
        return tuple(self._changes.values())

    @property
    def undo(self) -> tuple[Any, ...]:
        """In the order in which they take the changes back."""
        return tuple(reversed(self._undo))

    def take_back(self) -> None:
        for change in self.undo:
            self.state.apply(change)
        self._changes.clear()
        self._undo.clear()
