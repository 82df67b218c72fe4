from array import array
from collections.abc import Collection, Mapping
from uuid import UUID

class TopicNumbers:
    # Each has its place in the list as its number; all others have none.
    def __new__(cls, topics: list[UUID]) -> TopicNumbers: ...
    # Where each member's topics begin; these, one member's after the other's, ascending; and by
    # number whether any member has the topic.
    def subscriptions(
        self, collections: list[Collection[UUID]]
    ) -> tuple[array[int], array[int], bytearray]: ...
    # What each of so many members has, by place, as `owners` has their places.
    def assigned(
        self, owners: array[int], firsts: array[int], members: int
    ) -> list[dict[UUID, list[int]]]: ...
    # Of each partition, the place of the member that was to have it last, or -1. `firsts`: of each
    # topic the first partition, and the end.
    def last_owners(
        self, targets: list[Mapping[UUID, Collection[int]]], firsts: array[int]
    ) -> array[int]: ...
