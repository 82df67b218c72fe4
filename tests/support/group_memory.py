"""A store and a view of groups that keep nothing, for tests of the layers above them.

Every write is said to be written at once; C gets no requests of members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.coordinator.group.images import GroupImage
    from kbroker.coordinator.group.seams import PublishedGroup


class MemoryStore:
    def state_of(self, group_id: str) -> ErrorCode:
        return ErrorCode.NONE

    def write_group(
        self, image: GroupImage, incarnation: int, done: Callable[[ErrorCode], None]
    ) -> None:
        done(ErrorCode.NONE)

    def delete_group(
        self, group_id: str, in_log: Callable[[], object], done: Callable[[ErrorCode], None]
    ) -> None:
        in_log()
        done(ErrorCode.NONE)

    def when_settled(self, group_id: str, done: Callable[[ErrorCode], object]) -> None:
        done(ErrorCode.NONE)


class NoView:
    def publish_members(
        self,
        group_id: str,
        *,
        state: int,
        generation: int,
        members: Iterable[tuple[str, str | None]],
    ) -> None:
        return

    def remove_members(self, group_id: str) -> None:
        return

    def published(self, group_id: str) -> PublishedGroup | None:
        return None

    def last_heard_ms(self, group_id: str, member_id: str) -> int:
        return 0
